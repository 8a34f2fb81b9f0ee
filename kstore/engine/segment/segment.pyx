# cython: binding=False, embedsignature=True
"""One segment: NAME.log, and NAME.index, NAME.timeindex, NAME.txnindex beside it (spec 1.2, 3, 7).

An index is a hint. What it names is compared with the batch found there; one that is missing or contradicts
itself or its log is built anew in memory, which is slower and never wrong. Nothing is written.

The file is long because each lookup also has to go on where an index is wrong or the log is damaged.
"""

import errno
from kstore.light_typing import NamedTuple

from cython cimport final, no_gc_clear
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint8_t

from kstore.engine.io.file cimport FileHandle
from kstore.engine.io.buffers cimport ReadWindow
from kstore.engine.record.batch cimport Record, RecordBatch, Records, raise_fault
from kstore.engine.record.batch_walk cimport WALK_DAMAGED, LOOK, NEAR, WALK_NONE, WALK_SYSTEM, step
from kstore.engine.segment.index cimport IndexEntries, OffsetIndex, TimeIndex, int64_of
from kstore.engine.segment.segment_files cimport SegmentFiles
from kstore.engine.segment.walks cimport SegmentEnd, recovery_walk as walk_all, walk_to, walk_to_end, whole_until
from libkstore.format cimport (
    KS_ABORTED_ENTRY,
    KS_CONTROL,
    KS_E_OFFSET,
    KS_MAGIC_END,
    KS_MIN_SIZE,
    KS_OFFSET_ENTRY,
    KS_OK,
    KS_TIME_ENTRY,
    ks_batch,
    ks_check_batch,
    ks_codec,
    ks_fail,
    ks_fault,
    ks_load_i32,
    ks_load_i64,
)

from kstore.arguments import INDEX_INTERVAL_BYTES, MAX_DECOMPRESSED_BYTES, instance
from kstore.engine.segment.index import OffsetPosition, TimestampOffset, TransactionIndex
from kstore.errors import CorruptFileError, CorruptIndexError, CorruptRecordError, LogChangedError


cdef SegmentFiles NO_FILES = SegmentFiles("", "")  # of a segment that __init__ has not seen


class OffsetAndTimestamp(NamedTuple):
    """The result of find(): the offset and timestamp of a record, and its leader epoch.

    The timestamp is -1 for an end of the log. The leader epoch is None if it is not known.
    """

    offset: int
    timestamp: int
    leader_epoch: int | None


class Located(NamedTuple):
    """A batch in a segment: its base offset, the byte where it begins, its bytes."""

    base_offset: int
    position: int
    size: int


def floor_of(tuple segments not None, offset, Py_ssize_t least=-1):
    """The index of the last of these segments that begins at `offset` or before it; `least` if none does."""
    return max(floor_at(segments, offset), least)


cdef Py_ssize_t floor_at(tuple segments, offset) except -2:
    cdef int64_t wanted
    cdef Py_ssize_t low = 0, high = len(segments), middle
    try:
        wanted = offset
    except OverflowError:
        wanted = INT64_MAX if offset > 0 else -1
    while low < high:
        middle = (low + high) // 2
        if (<Segment?>segments[middle]).base_offset <= wanted:
            low = middle + 1
        else:
            high = middle
    return low - 1


def start_of(tuple segments not None, offset):
    """The index of the one of these segments in which to look for an offset: that which floor_of() gives, or
    0; or if batches of the one before lie where it begins, that one. Reading on from there finds what is
    wrong. OSError."""
    cdef Py_ssize_t at = max(floor_at(segments, offset), 0)
    cdef Segment before
    while at > 0:
        before = segments[at - 1]
        if before._overlaps == 0 or not before.overlaps_next():
            break
        at -= 1
    return at


@final
@no_gc_clear  # it uses its handle to the end; what may be in a cycle with it can be cleared
cdef class Segment:
    """One segment of a log, for reading: a .log file and its index files. log.segments has them.

    base_offset is the number in its name, end_offset the base offset of the next segment (2^63 - 1 for the
    last one). `size` is the part of the .log file that counts; recovery would cut off what is after it.
    `damage` is the error that rebuilding the indexes found in the .log file, or None; the indexes end there.
    Files are opened when they are needed. Threads may share it.

    `suffixes` gives the suffix of files that are named otherwise, such as .swap, by kind. Positions count
    from `origin`, which is 0 unless one file holds several segments (section 8.7 of docs/spec.md).
    """

    def __cinit__(self):
        self.files = NO_FILES
        self._limit = self._claimed = self._overlaps = -1

    def __init__(
        self,
        str directory not None,
        str stem not None,
        int64_t base_offset,
        int64_t end_offset=INT64_MAX,
        dict suffixes=None,
        int64_t origin=0,
        int64_t index_interval_bytes=INDEX_INTERVAL_BYTES,
        int64_t max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
    ):
        self.files = SegmentFiles(directory, stem, base_offset, suffixes)
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.origin = origin
        self.index_interval_bytes = index_interval_bytes
        self.max_decompressed_bytes = max_decompressed_bytes

    # ---- files ---------------------------------------------------------------------------------------------

    @property
    def directory(self):
        return self.files.directory

    @property
    def stem(self):
        return self.files.stem

    @property
    def suffixes(self):
        return self.files.suffixes

    @property
    def path(self):
        """The path of its .log file."""
        return self.files.log_path()

    def path_of(self, str kind):
        """The path of its file of a kind: ".log", ".index", ".timeindex" or ".txnindex"."""
        return self.files.path_of(kind)

    def file(self):
        """The .log as a File, which stays open as long as a reference to it exists."""
        return self.files.opened()

    def mtime_ms(self):
        """When the .log file was last changed, in ms since 1970. Kafka uses it if records have no
        timestamps."""
        return self.files.opened().mtime_ms()

    cdef int64_t limit(self) except -1:
        cdef int64_t length
        if self._limit < 0:
            length = self.files.opened().length()
            if length > INT32_MAX:  # positions in indexes have 32 bits; Kafka does not open such a file either
                what = f"a segment has at most {INT32_MAX} bytes, and this file has {length}"
                raise OSError(errno.EFBIG, what, self.files.log_path())
            self._limit = length - self.origin
        return self._limit

    @property
    def size(self):
        """Bytes of the log that count. Taken when first asked, and kept: later appends are not seen."""
        return self.limit()

    cdef Segment shown_until(self, int64_t limit, int64_t end_offset):
        """Another segment of this file, of which the bytes up to `limit` count; -1 for all. It has no
        indexes yet."""
        cdef Segment other = Segment.__new__(Segment)
        other.files = self.files
        other.base_offset = self.base_offset
        other.end_offset = end_offset
        other.origin = self.origin
        other.index_interval_bytes = self.index_interval_bytes
        other.max_decompressed_bytes = self.max_decompressed_bytes
        other._limit = limit
        return other

    def limit_to(self, size):
        """Lets nothing from byte `size` on count. Only before the segment is shared. TypeError or ValueError
        unless it is an int from 0 on."""
        cdef int64_t most = int64_of("size", size)
        if most < 0:
            raise ValueError(f"size is from 0 on, not {most}")
        self._limit = most
        self._end = None

    def use_indexes(self, OffsetIndex offset_index, TimeIndex time_index, transaction_index=None):
        """Uses these indexes instead of the files'. Only before the segment is shared."""
        if offset_index is not None:
            self._offset_index = offset_index
            self._end = None
        if time_index is not None:
            self._time_index = time_index
        if transaction_index is not None:
            self._transaction_index = transaction_index

    def set_max_timestamp(self, max_timestamp):
        """Uses this TimestampOffset instead of the last time entry. Only before the segment is shared.
        TypeError or ValueError unless it is one, of two ints."""
        timestamp, offset = instance("max_timestamp", max_timestamp, TimestampOffset)
        self._max_timestamp_so_far = TimestampOffset(int64_of("timestamp", timestamp), int64_of("offset", offset))

    # ---- indexes -------------------------------------------------------------------------------------------

    cdef OffsetIndex offsets(self):
        if self._offset_index is None or self._offset_index.is_lost():
            self.load_offsets()
        return self._offset_index

    cdef int load_offsets(self) except -1:
        cdef OffsetIndex index
        if self._offset_index is None:
            try:
                entries = self.files.contents(".index", KS_OFFSET_ENTRY, "no offset index")
                index = OffsetIndex(self.base_offset, entries, path=self.path_of(".index"))
                index.check()
                index.check_positions(self.limit())
                self._offset_index = index
            except CorruptIndexError as e:
                self.rebuild(e)
        return self.replace_lost(self._offset_index)

    cdef TimeIndex times(self):
        if self._time_index is None or self._time_index.is_lost():
            self.load_times()
        return self._time_index

    cdef int load_times(self) except -1:
        cdef TimeIndex index
        if self._time_index is None:
            try:
                entries = self.files.contents(".timeindex", KS_TIME_ENTRY, "no time index")
                index = TimeIndex(self.base_offset, entries, path=self.path_of(".timeindex"))
                index.check()
                self._time_index = index
                self.check_last_time()
            except CorruptIndexError as e:
                self.rebuild(e)
        return self.replace_lost(self._time_index)

    cdef int replace_lost(self, IndexEntries index) except -1:
        """Rebuilds the indexes if this one is a writer's, which readers of its process share, and another
        program has shortened the file. A reader that keeps the index must ask: it may not touch what is gone
        before."""
        reason = index.shortened()
        if reason is not None:
            self.rebuild(reason)
        return 0

    cdef int check_last_time(self) except -1:
        """The last entry decides which segment a time is looked up in, so it is compared with its batch at
        once."""
        cdef TimeIndex index = self._time_index
        cdef ks_batch b
        cdef ReadWindow w
        cdef int64_t slot = index.count - 1
        if slot >= 0:
            w = self.borrow()
            if (
                self.locate(index.offset_at(slot), w, &b, False) < 0
                or b.last_offset != index.offset_at(slot)
                or b.max_timestamp != index.timestamp_at(slot)
            ):
                raise self.time_fault(index, slot, "another batch")
            self.give_back(w)
        return 0

    cdef int rebuild(self, reason) except -1:
        """Replaces both indexes by ones made from the log, and notes why."""
        found = self.recovery_walk(verify=False)
        if found.error is not None:
            self.damage = found.error
            if self._offset_index is not None and self._offset_index.count:
                self._claimed = max(self._claimed, self._offset_index.offset_at(self._offset_index.count - 1))
        self._notes = (*self.notes, reason)
        self.use_indexes(found.offset_index, found.time_index)
        return 0

    @property
    def notes(self):
        """Why indexes were rebuilt in memory, as errors. Empty if the files are used."""
        return self._notes or ()

    @property
    def offset_index(self):
        """Its OffsetIndex, rebuilt in memory if the file is missing or damaged. CorruptRecordError,
        OSError."""
        self.load_offsets()
        return self._offset_index

    @property
    def time_index(self):
        """Its TimeIndex, rebuilt in memory if the file is missing or damaged. CorruptRecordError, OSError."""
        self.load_times()
        return self._time_index

    @property
    def transaction_index(self):
        """The aborted transactions whose markers are in this segment. CorruptIndexError if the file is
        damaged."""
        if self._transaction_index is None:
            try:
                entries = self.files.contents(".txnindex", KS_ABORTED_ENTRY) or b""
            except LogChangedError:
                if self._transaction_index is None:
                    raise
            # a compaction in another thread takes it up before it sets the file aside, and may do so right
            # now
            if self._transaction_index is None:
                self._transaction_index = TransactionIndex(
                    self.base_offset, entries, path=self.path_of(".txnindex")
                )
        return self._transaction_index

    @property
    def max_timestamp_so_far(self):
        """The largest timestamp, and the last offset of the first batch that has it; (-1, base_offset) if
        there is none.
        """
        if self._max_timestamp_so_far is not None:
            return self._max_timestamp_so_far
        return self.times().last_entry

    @property
    def largest_timestamp(self):
        """The largest timestamp of its records; if no record has one, the time the file was last changed."""
        cdef int64_t timestamp = self.max_timestamp_so_far.timestamp
        return timestamp if timestamp >= 0 else self.mtime_ms()

    # ---- lookups -------------------------------------------------------------------------------------------

    cdef ReadWindow borrow(self):
        """A window on the log: the spare one, or a new one while another thread has that."""
        cdef FileHandle handle = self.files.handle
        cdef ReadWindow w = handle.spare
        handle.spare = None
        if w is None:
            w = ReadWindow.__new__(ReadWindow)
        w.reset(self.files.opened(), self.limit(), self.origin)
        return w

    cdef void give_back(self, ReadWindow w) noexcept:
        """The window is spare again, unless its file is to be closed."""
        if w.file is self.files.handle.file:
            self.files.handle.spare = w

    cdef int load(self, ReadWindow w, int64_t position, ks_batch *b) except -1:
        """Brings the whole batch at `position`, whose header is b, into the window and checks it.

        Its offsets, which no checksum covers, must lie in the segment and below those of the batch behind
        it."""
        cdef ks_fault fault
        cdef const uint8_t *p
        cdef int64_t have = w.fill(position, min(b.size + KS_MAGIC_END, w.limit - position), b.size + LOOK)
        cdef int64_t following = self.end_offset
        if have < 0:
            w.raise_failure(have)
        p = w.at(position)
        if ks_check_batch(p, p + have, b, &fault) != KS_OK:
            raise_fault(&fault, self.path, position, b.base_offset)
        if have >= b.size + KS_MAGIC_END and ks_load_i32(p + b.size + 8) >= KS_MIN_SIZE and p[b.size + 16] <= 2:
            following = min(following, ks_load_i64(p + b.size))
        if b.base_offset < self.base_offset or b.last_offset >= following:
            ks_fail(&fault, KS_E_OFFSET, 0, following - 1, b.last_offset)
            raise_fault(&fault, self.path, position, b.base_offset)
        return 0

    cdef Records records(self, ReadWindow w, int64_t position, const ks_batch *b):
        """A cursor over the records of the batch at `position`, which was loaded."""
        cdef Records records = Records.__new__(Records)
        records.limit = self.max_decompressed_bytes
        records.begin(w.at(position), b, self.files.log_path(), position)
        return records

    cdef int load_between(self, ReadWindow w, int64_t position, int64_t end) except -1:
        """Checks the batches from `position` up to `end` whole: a lookup passed them by on their headers'
        word."""
        cdef ks_batch b
        b.last_offset = self.base_offset - 1
        b.size = 0
        while 0 <= position < end:
            position = self.after(w, position, &b)
            if position >= 0:
                self.load(w, position, &b)
                position += b.size
        return 0

    cdef int64_t locate(self, int64_t target, ReadWindow w, ks_batch *b, bint whole) except -2:
        """Position of the first batch with last offset >= target, its header in b; WALK_NONE past the end.

        `whole`: the caller goes on to read all of it, so as much is read at once."""
        cdef OffsetIndex index = self.offsets()
        cdef int64_t slot = index.floor(target), position, ahead, found, promised
        cdef ks_fault fault
        cdef int attempt
        for attempt in range(2):
            # An entry holds the last offset of its batch, so the batch wanted is that of the entry at or
            # above the target whenever every batch has an entry: look there first.
            if slot < 0 or index.offset_at(slot) != target:
                slot += 1
            if slot < index.count:
                position = index.position_at(slot)
                ahead = index.position_at(slot + 1) - position if slot + 1 < index.count else <int64_t>NEAR
                found = step(w, position, min(ahead + LOOK, <int64_t>NEAR) if whole else <int64_t>LOOK, b, &fault)
                if found == WALK_SYSTEM:
                    w.raise_failure(-1)
                if (
                    found >= 0 and b.magic == 2 and b.base_offset <= target <= b.last_offset
                    and b.last_offset == index.offset_at(slot)
                ):
                    return position
                if found < 0 or b.last_offset > index.offset_at(slot):
                    index = self.distrusted(index, slot, b.last_offset if found >= 0 else -1)
                    slot = index.floor(target)
                    continue
            slot = index.floor(target)
            position = index.position_at(slot) if slot >= 0 else 0
            if slot >= 0:
                found = step(w, position, LOOK, b, &fault)
                if found == WALK_SYSTEM:
                    w.raise_failure(-1)
                if found < 0 or b.last_offset > index.offset_at(slot):
                    index = self.distrusted(index, slot, b.last_offset if found >= 0 else -1)
                    slot = index.floor(target)
                    continue
            promised = index.offset_at(slot) if slot >= 0 else -1
            found = walk_to(w, self.base_offset, target, position, promised, b, &fault)
            if found == WALK_SYSTEM:
                w.raise_failure(-1)
            if attempt == 0 and (
                (slot >= 0 and found == position and b.base_offset > target)  # the batch before may be the one
                or (slot >= 0 and found == WALK_DAMAGED)
                or (found == WALK_NONE and index.count and target <= index.offset_at(index.count - 1))
            ):
                index = self.distrusted(index, max(slot, <int64_t>0), b.last_offset if found >= 0 else -1)
                slot = index.floor(target)
                continue
            if found == WALK_DAMAGED:
                at = <int64_t>fault.at
                fault.at = 0
                raise_fault(&fault, self.path, at, -1)
            if found == WALK_NONE:
                self.torn(<int64_t>fault.at, target)
            return found
        raise CorruptIndexError("an index made from the log does not fit it", file=self.path, position=position)

    cdef int torn(self, int64_t position, int64_t target) except -1:
        """CorruptRecordError if the whole batches end at `position`, bytes are left, and something with the
        offset `target` or others must follow: the log goes on behind this segment, or an index knew of
        more."""
        if position < self.limit() and (self.end_offset != INT64_MAX or target <= self._claimed):
            raise CorruptRecordError(
                "a batch that ends behind the segment, and others follow",
                file=self.path,
                position=position,
                expected="a whole batch",
                found=f"{self.limit() - position} bytes",
            )
        return 0

    def check_end(self):
        """CorruptRecordError unless the batches from the last index entry on are sound."""
        cdef OffsetIndex index = self.offsets()
        cdef ReadWindow w = self.borrow()
        self.load_between(w, index.position_at(index.count - 1) if index.count else 0, self.limit())
        self.give_back(w)

    cdef OffsetIndex distrusted(self, OffsetIndex index, int64_t slot, int64_t found):
        """The index made anew, because the entry in `slot` of this one does not fit the log."""
        self.rebuild(
            CorruptIndexError(
                "entry of an offset index",
                file=index.path or self.path_of(".index"),
                position=8 * slot,
                expected=f"a batch with last offset {index.offset_at(slot)} at byte {index.position_at(slot)}",
                found="none" if found < 0 else found,
            )
        )
        return self._offset_index

    def translate(self, offset):
        """Where the batch is that holds `offset`, or the first one after it, as a Located; None after the
        last batch.
        """
        cdef int64_t wanted = int64_of("offset", offset)
        cdef ReadWindow w = self.borrow()
        cdef ks_batch b
        cdef int64_t position = self.locate(wanted, w, &b, False)
        self.confirm_gap(w, position, &b, wanted)
        self.give_back(w)
        if position < 0:
            return None
        base = self.batch_at(position).base_offset if b.magic < 2 and ks_codec(&b) else b.base_offset
        return Located(base, position, b.size)

    def scan_start(self, offset, since=-1):
        """Where a scan of the segment begins, as an OffsetPosition: the first offset wanted, and the byte of
        its batch.

        None if no record is at `offset` or later and, unless `since` is -1, has that timestamp or a later
        one. CorruptRecordError.
        """
        cdef int64_t first = int64_of("offset", offset)
        if int64_of("since", since) >= 0:
            found = self.find_timestamp(since, first)
            if found is None:
                return None
            first = found.offset
        if first <= self.base_offset:
            return OffsetPosition(self.base_offset, 0)
        located = self.translate(first)
        return None if located is None else OffsetPosition(first, located.position)

    def batch_at(self, position):
        """The batch that begins at this byte of the .log file. Its `is_valid` says whether it is
        undamaged."""
        cdef int64_t at = int64_of("position", position)
        cdef ReadWindow w = self.borrow()
        cdef ks_batch b
        cdef ks_fault fault
        cdef int64_t size = step(w, at, NEAR, &b, &fault), have
        if size == WALK_SYSTEM:
            w.raise_failure(-1)
        if size == WALK_DAMAGED:
            raise_fault(&fault, self.path, at, -1)
        if size == WALK_NONE:
            raise CorruptRecordError(
                "no whole batch", file=self.path, position=at, expected="a batch", found=f"{w.limit} bytes"
            )
        have = w.fill(at, size, size)
        if have < size:
            w.raise_failure(-1)
        batch = RecordBatch.new(w.at(at), &b, self.path, at, self.max_decompressed_bytes)
        self.give_back(w)
        return batch

    def get(self, offset):
        """The record at this offset, or the first one after it; None if the segment has none. The checksum is
        checked.
        """
        cdef int64_t wanted = int64_of("offset", offset)
        cdef ReadWindow w = self.borrow()
        cdef ks_batch b
        cdef Record record = None
        cdef int64_t position = self.locate(wanted, w, &b, True)
        self.confirm_gap(w, position, &b, wanted)
        while position >= 0 and record is None:
            self.load(w, position, &b)
            if not (b.magic == 2 and b.attributes & KS_CONTROL):
                record = self.records(w, position, &b).first_from(wanted)
            if record is None:
                position = self.after(w, position + b.size, &b)
        self.give_back(w)
        return record

    cdef int confirm_gap(self, ReadWindow w, int64_t position, ks_batch *b, int64_t offset) except -1:
        """Checks the batch at `position`, and those that a lookup passed by, if it lies behind the offset
        looked for: in a gap no batch holds that, but damage looks like a gap. Headers of old messages do not
        tell where they begin."""
        cdef OffsetIndex index
        cdef int64_t slot
        if position < 0 and (offset >= self.end_offset or self.end_offset == INT64_MAX):
            return 0
        if position >= 0 and (b.base_offset <= offset or b.magic < 2):
            return 0
        index = self.offsets()
        slot = index.floor(offset)
        self.load_between(
            w, index.position_at(slot) if slot >= 0 else 0, position if position >= 0 else self.limit()
        )
        if position < 0:
            return 0
        if b.base_offset > self.base_offset:
            self.load(w, position, b)
        return 0

    cdef int64_t after(self, ReadWindow w, int64_t position, ks_batch *b) except -2:
        """`position` if a whole batch begins there, its header in b; else WALK_NONE. b was the batch before
        it."""
        cdef ks_fault fault
        cdef int64_t last = b.last_offset
        cdef int64_t size = step(w, position, min(max(b.size + LOOK, <int64_t>4096), <int64_t>NEAR), b, &fault)
        if size >= 0 and b.base_offset <= last:
            ks_fail(&fault, KS_E_OFFSET, 0, last + 1, b.base_offset)
            size = WALK_DAMAGED
        if size == WALK_SYSTEM:
            w.raise_failure(-1)
        if size == WALK_DAMAGED:
            raise_fault(&fault, self.path, position, -1)
        if size == WALK_NONE:
            self.torn(position, last + 1)
            return WALK_NONE
        return position

    def find_timestamp(self, timestamp, start_offset=0):
        """The first record with this timestamp or a later one, and at least start_offset, as
        OffsetAndTimestamp; or None.

        The search begins at the batch that the time index names. If that batch is not what the index says,
        both indexes are rebuilt in memory and the search begins again (section 7.6 of docs/spec.md).
        """
        cdef int64_t since = int64_of("timestamp", timestamp), first = int64_of("start_offset", start_offset)
        cdef ReadWindow w = self.borrow()
        cdef ks_batch b
        cdef TimeIndex times
        cdef Record record
        cdef int64_t slot, hint, position, promised
        for _ in range(2):
            times = self.times()
            slot = times.floor(since)
            hint = times.offset_at(slot) if slot >= 0 else self.base_offset
            promised = hint if slot >= 0 else -1  # the batch ending here must have the index entry's timestamp
            position = self.locate(max(hint, first), w, &b, False)
            if position < 0 and promised >= 0 and hint >= first:
                self.rebuild(self.time_fault(times, slot, "none"))
                continue
            while position >= 0:
                if promised >= 0 and b.last_offset >= promised:
                    if hint >= first and (
                        b.last_offset != promised or b.max_timestamp != times.timestamp_at(slot)
                    ):
                        break
                    promised = -1
                elif b.max_timestamp < since:  # passed by on its header's word
                    self.load(w, position, &b)
                if b.max_timestamp >= since:
                    self.load(w, position, &b)
                    record = self.records(w, position, &b).first_since(since, first)
                    if record is not None:
                        self.give_back(w)
                        return OffsetAndTimestamp(
                            record.offset, record.timestamp, b.leader_epoch if b.leader_epoch >= 0 else None
                        )
                position = self.after(w, position + b.size, &b)
            if position < 0:
                self.give_back(w)
                return None
            self.rebuild(self.time_fault(times, slot, (b.max_timestamp, b.last_offset)))
        raise CorruptIndexError("an index made from the log does not fit it", file=self.path, position=position)

    cdef object time_fault(self, TimeIndex times, int64_t slot, found):
        return CorruptIndexError(
            "entry of a time index",
            file=times.path or self.path_of(".timeindex"),
            position=12 * slot,
            expected=f"a batch with (max timestamp, last offset) {tuple(times.entry(slot))}",
            found=found,
        )

    def find_max_timestamp(self):
        """The first record with the largest timestamp of the segment, as OffsetAndTimestamp; None if no
        record has one.
        """
        cdef ReadWindow w = self.borrow()
        cdef ks_batch b
        cdef Record record
        timestamp, offset = self.max_timestamp_so_far
        cdef int64_t wanted = timestamp, position = self.locate(offset, w, &b, True)
        if position < 0:
            return None
        self.load(w, position, &b)
        record = self.records(w, position, &b).first_since(wanted, 0)
        self.give_back(w)
        if record is None or record.timestamp != wanted or b.magic == 0:
            return None
        return OffsetAndTimestamp(record.offset, wanted, b.leader_epoch if b.leader_epoch >= 0 else None)

    # ---- the end -------------------------------------------------------------------------------------------

    def read_next_offset(self):
        """The offset after the last batch. Checksums are not checked. CorruptRecordError, OSError."""
        return self.end().next_offset

    def read_end(self):
        """How the segment ends, as a SegmentEnd: it is found when first asked, and kept. CorruptRecordError,
        OSError."""
        return self.end()

    cdef SegmentEnd end(self):
        if self._end is None:
            self._end = self.find_end()
        return self._end

    cdef SegmentEnd find_end(self):
        cdef ReadWindow w = self.borrow()
        cdef OffsetIndex index = self.offsets()
        cdef SegmentEnd end = walk_to_end(w, self.base_offset, index)
        if index.count and end.next_offset <= index.last_offset:
            index = self.distrusted(index, index.count - 1, end.next_offset - 1)
            end = walk_to_end(w, self.base_offset, index)
        self.give_back(w)
        return end

    def has_its_last_batch(self):
        """Whether the file still has the batch that `read_end` found last. If not, another program has cut
        the file, which may have grown again. The header tells, as it has the checksum. OSError."""
        cdef SegmentEnd end = self.end()
        if end.last_header is None:
            return True
        found = self.files.opened().read(self.origin + end.last_position, len(end.last_header))
        return found == end.last_header

    def overlaps_next(self):
        """Whether it has batches where the next segment begins, because files of several copies of a log are
        mixed, say. A file that cannot be read overlaps nothing, nor does a batch that does not follow on from
        the one before: reading raises for those. OSError."""
        cdef Segment twin
        if self._overlaps < 0:
            twin = self.shown_until(self._limit, self.end_offset)
            try:
                self._overlaps = twin.end().next_offset > self.end_offset and twin.follows_on_beyond()
            except FileNotFoundError:
                return False
            except CorruptFileError:
                self._overlaps = False
        return self._overlaps > 0

    cdef bint follows_on_beyond(self) except -1:
        """Whether its first batch that reaches to its end offset follows on from the one before."""
        headers = self.read_headers(fields=["base_offset", "last_offset"])
        beyond = (headers["last_offset"] >= self.end_offset).nonzero()[0]
        if not len(beyond):  # an index misled the search for the end
            return False
        at = int(beyond[0])
        return headers["base_offset"][at] == (headers["last_offset"][at - 1] + 1 if at else self.base_offset)

    def whole_until(self, start, end):
        """The last byte up to `end` where a batch ends, from the batch that begins at `start` on; headers only.
        `start` if that batch ends behind `end`."""
        cdef int64_t first = int64_of("start", start), most = int64_of("end", end)
        cdef ReadWindow w
        if most <= first:
            return first
        w = self.borrow()
        most = whole_until(w, first, most, self.offsets())
        self.give_back(w)
        return most

    # ---- walks ---------------------------------------------------------------------------------------------

    cdef ReadWindow fresh(self):
        """A window of its own on the log: a walk reads far more at once than the spare one should keep."""
        cdef ReadWindow w = ReadWindow.__new__(ReadWindow)
        w.reset(self.files.opened(), self.limit(), self.origin)
        return w

    def recovery_walk(self, *, bint verify=True):
        """Walks all batches as recovery would, and returns a RecoveryWalk. verify=False leaves checksums
        unread."""
        return walk_all(self.fresh(), self.path, self.base_offset, self.end_offset, self.index_interval_bytes, verify)

    def read_headers(self, start=0, fields=None):
        """The headers of all batches from byte `start` on, as a numpy structured array of one row a batch.

        fields: names of columns. Default: all. Two or three of them take half the time, and little memory.

        Columns: position, base_offset, last_offset, base_timestamp, max_timestamp, producer_id, size, crc,
        leader_epoch, last_offset_delta, base_sequence, records_count (-1 for magic 0 and 1), producer_epoch,
        attributes, magic. Checksums are not computed. CorruptRecordError where a header makes no sense; bytes
        at the end that hold no whole batch are left out. The GIL is free while it runs.
        """
        cdef int64_t at = int64_of("start", start)
        from kstore.engine.record.batch_fields import header_table  # needs numpy, as few programs do

        return header_table(self.fresh(), self.path, at, fields)

    def __repr__(self):
        end = "" if self.end_offset == INT64_MAX else f", end_offset={self.end_offset}"
        return f"<Segment {self.path!r}: base_offset={self.base_offset}{end}>"
