"""One segment: NAME.log, and NAME.index, NAME.timeindex, NAME.txnindex beside it (spec 1.2, 3, 7).

An index is a hint. What it names is compared with the batch found there; one that is missing or contradicts itself or
its log is built anew in memory, which is slower and never wrong. Nothing is written.
"""

from typing import NamedTuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython cimport final
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memset

from kstore.engine.batch cimport Record, RecordBatch, Records, raise_fault
from kstore.engine.file cimport File
from kstore.engine.index cimport OffsetIndex, TimeIndex
from kstore.engine.window cimport Window
from libkstore.format cimport (
    KS_BATCH_OVERHEAD,
    KS_CONTROL,
    KS_E_CRC,
    KS_E_LENGTH,
    KS_E_OFFSET,
    KS_E_SIZE,
    KS_LOG_OVERHEAD,
    KS_MAGIC_END,
    KS_MIN_SIZE,
    KS_OK,
    ks_batch,
    ks_check_batch,
    ks_codec,
    ks_fail,
    ks_fault,
    ks_load_i16,
    ks_load_i32,
    ks_load_i64,
    ks_next_record,
    ks_parse_header,
    ks_record,
)

from kstore.engine.index import TimestampOffset, TransactionIndex
from kstore.errors import CorruptIndexError, CorruptRecordError

cdef enum:
    AHEAD = 1 << 20       # a scan reads this much at once
    LOOK = 64             # enough of a batch for its header
    NEAR = 32 << 10       # what a lookup reads where the index does not tell how far the batch goes
    NONE = -1             # no such batch
    DAMAGED = -3          # a ks_fault says how
    SYSTEM = -4           # errno, or out of memory


class OffsetAndTimestamp(NamedTuple):
    """Where a lookup ended: the offset and timestamp (-1 for none) of a record, and its leader epoch if known."""

    offset: int
    timestamp: int
    leader_epoch: int | None


class Located(NamedTuple):
    """A batch in a segment: its base offset, the byte where it begins, its bytes."""

    base_offset: int
    position: int
    size: int


class Scan(NamedTuple):
    """What a walk over every batch of a segment found; the indexes are those that recovery would write (spec 8.4)."""

    valid_bytes: int
    next_offset: int
    batch_count: int
    offset_index: OffsetIndex
    time_index: TimeIndex
    max_timestamp: TimestampOffset
    leader_epochs: list[tuple[int, int]]
    error: CorruptRecordError | None
    disordered: bool
    overflow: bool
    has_producers: bool


# One row of read_headers: a position, and the ks_batch found there.
cdef packed struct row:
    int64_t position
    ks_batch batch


cdef int64_t step(Window w, int64_t position, int64_t ahead, ks_batch *b, ks_fault *fault) noexcept nogil:
    """Reads the header at `position` as Kafka's file iteration does (spec 2.0): its entry's size, or a negative status.

    NONE where the bytes left cannot hold a whole entry.
    """
    cdef int64_t have = w.fill(position, min(<int64_t>KS_BATCH_OVERHEAD, w.limit - position), ahead)
    cdef int64_t size
    if have < 0:
        return SYSTEM
    if have <= KS_MAGIC_END:
        return NONE
    size = <int64_t>ks_load_i32(w.at(position) + 8) + KS_LOG_OVERHEAD
    if size < KS_MIN_SIZE + KS_LOG_OVERHEAD:
        ks_fail(fault, KS_E_SIZE, 8, KS_MIN_SIZE, size - KS_LOG_OVERHEAD)
        return DAMAGED
    if size > w.limit - position:
        return NONE
    if ks_parse_header(w.at(position), w.at(position) + have, b, fault) != KS_OK:
        return DAMAGED
    return size


cdef int check_marker(const uint8_t *p, const ks_batch *b, ks_fault *fault) noexcept nogil:
    """What recovery reads of a transaction marker: its first record's key, and the version of its value (spec 2.4).

    A value too short to be one is let pass, though Kafka fails on it (and cannot open such a log at all)."""
    cdef const uint8_t *q = p + KS_BATCH_OVERHEAD
    cdef ks_record r
    if b.magic < 2 or not b.attributes & KS_CONTROL or b.producer_id < 0 or b.records_count <= 0 or ks_codec(b):
        return KS_OK
    if ks_next_record(&q, p + b.size, b, &r, fault) != KS_OK:
        fault.at += KS_BATCH_OVERHEAD
        return fault.status
    if r.key_size < 4:
        return ks_fail(fault, KS_E_LENGTH, KS_BATCH_OVERHEAD, 4, r.key_size)
    if ks_load_i16(r.key) < 0:
        return ks_fail(fault, KS_E_LENGTH, <size_t>(r.key - p), 0, ks_load_i16(r.key))
    if r.value_size >= 2 and ks_load_i16(r.value) < 0:
        return ks_fail(fault, KS_E_LENGTH, <size_t>(r.value - p), 0, ks_load_i16(r.value))
    return KS_OK


@final
cdef class Segment:
    """A segment of a log, read-only. Files are opened at first use and stay open as long as the segment lives.

    base_offset is the number in its name, end_offset the base offset of the segment after it (2^63 - 1 for the last).
    `suffixes` gives names such as NAME.log.swap, by kind; positions count from `origin`, which is 0 but where one file
    stands for several segments (spec 8.7, split).
    `size` is the part of the .log that counts: behind it may lie what recovery would cut off. Thread-safe.
    """

    def __cinit__(
        self,
        str directory not None,
        str stem not None,
        int64_t base_offset,
        int64_t end_offset=INT64_MAX,
        dict suffixes=None,
        int64_t origin=0,
        int64_t index_interval_bytes=4096,
        int64_t max_decompressed_bytes=256 << 20,
    ):
        self.directory = directory
        self.stem = stem
        self.suffixes = suffixes
        self.origin = origin
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.index_interval_bytes = index_interval_bytes
        self.max_decompressed_bytes = max_decompressed_bytes
        self._limit = -1

    # ---- files ----------------------------------------------------------------------------------------------------

    def path_of(self, str kind):
        """The path of its file of a kind: ".log", ".index", ".timeindex" or ".txnindex"."""
        return f"{self.directory}/{self.stem}{kind}{self.suffixes.get(kind, '') if self.suffixes else ''}"

    @property
    def path(self):
        if self._path is None:
            self._path = self.path_of(".log")
        return self._path

    cdef File opened(self):
        if self._log is None:
            self._log = File(self.path)
        return self._log

    cdef int64_t limit(self) except -1:
        if self._limit < 0:
            self._limit = self.opened().length() - self.origin
        return self._limit

    @property
    def size(self):
        """Bytes of the log that count. Taken when first asked, and kept: later appends are not seen."""
        return self.limit()

    def file(self):
        """The .log as a File."""
        return self.opened()

    def mtime_ms(self):
        """When the .log was last changed, in ms: Kafka's substitute for timestamps where there are none."""
        return self.opened().mtime_ms()

    cdef bytes contents(self, str kind):
        """All of one of its small files, or None where there is none."""
        cdef File file
        try:
            file = File(self.path_of(kind))
        except FileNotFoundError:
            return None
        return file.read(0, file.length())

    def limit_to(self, int64_t size):
        """Lets nothing from byte `size` on count. Only before the segment is shared."""
        self._limit = size

    def adopt(self, OffsetIndex offset_index, TimeIndex time_index, transaction_index=None):
        """Uses these indexes instead of the files'. Only before the segment is shared."""
        if offset_index is not None:
            self._offset_index = offset_index
        if time_index is not None:
            self._time_index = time_index
        if transaction_index is not None:
            self._transaction_index = transaction_index

    def take_max_timestamp(self, max_timestamp):
        """Uses this TimestampOffset instead of the last time entry. Only before the segment is shared."""
        self._max_timestamp_so_far = max_timestamp

    # ---- indexes --------------------------------------------------------------------------------------------------

    cdef OffsetIndex offsets(self):
        cdef OffsetIndex index
        if self._offset_index is None:
            try:
                entries = self.contents(".index")
                if entries is None:
                    raise CorruptIndexError("no offset index", file=self.path_of(".index"), position=0)
                index = OffsetIndex(self.base_offset, entries, path=self.path_of(".index"))
                index.check()
                if index.count and index.position_at(index.count - 1) >= self.limit():
                    raise CorruptIndexError(
                        "position in an offset index",
                        file=index.path,
                        position=8 * index.count - 4,
                        expected=f"below {self.limit()}, the size of the log",
                        found=index.position_at(index.count - 1),
                    )
                self._offset_index = index
            except CorruptIndexError as e:
                self.rebuild(e)
        return self._offset_index

    cdef TimeIndex times(self):
        cdef TimeIndex index
        if self._time_index is None:
            try:
                entries = self.contents(".timeindex")
                if entries is None:
                    raise CorruptIndexError("no time index", file=self.path_of(".timeindex"), position=0)
                index = TimeIndex(self.base_offset, entries, path=self.path_of(".timeindex"))
                index.check()
                self._time_index = index
                self.check_last_time()
            except CorruptIndexError as e:
                self.rebuild(e)
        return self._time_index

    cdef int check_last_time(self) except -1:
        """The last entry decides which segment a time is looked up in, so it is compared with its batch at once."""
        cdef TimeIndex index = self._time_index
        cdef ks_batch b
        cdef Window w
        cdef int64_t slot = index.count - 1
        if slot >= 0:
            w = self.borrow()
            if (
                self.locate(index.offset_at(slot), w, &b, False) < 0
                or b.last_offset != index.offset_at(slot)
                or b.max_timestamp != index.timestamp_at(slot)
            ):
                raise self.time_fault(index, slot, "another batch")
            self._spare = w
        return 0

    def rebuild(self, reason):
        """Replaces both indexes by ones made from the log, and notes why."""
        found = self.scan(verify=False)
        self._notes = (*self.notes, reason)
        self.adopt(found.offset_index, found.time_index)

    @property
    def notes(self):
        """Why an index was made anew, as errors; empty where its files served."""
        return self._notes or ()

    @property
    def offset_index(self):
        return self.offsets()

    @property
    def time_index(self):
        return self.times()

    @property
    def transaction_index(self):
        """Aborted transactions whose markers are in here; empty where there is no file. CorruptIndexError."""
        if self._transaction_index is None:
            self._transaction_index = TransactionIndex(
                self.base_offset, self.contents(".txnindex") or b"", path=self.path_of(".txnindex")
            )
        return self._transaction_index

    @property
    def max_timestamp_so_far(self):
        """The largest timestamp and the last offset of the first batch to have it; (-1, base_offset) for none."""
        if self._max_timestamp_so_far is not None:
            return self._max_timestamp_so_far
        return self.times().last_entry

    @property
    def largest_timestamp(self):
        """The same timestamp, or the file's modification time where there is none (spec 7.6)."""
        cdef int64_t timestamp = self.max_timestamp_so_far.timestamp
        return timestamp if timestamp >= 0 else self.mtime_ms()

    # ---- lookups --------------------------------------------------------------------------------------------------

    cdef Window borrow(self):
        """A window on the log: the spare one, or a new one while another thread has that."""
        cdef Window w = self._spare
        self._spare = None
        if w is None:
            w = Window.__new__(Window)
        w.reset(self.opened(), self.limit(), self.origin)
        return w

    cdef int load(self, Window w, int64_t position, ks_batch *b) except -1:
        """Brings the whole batch at `position`, whose header is b, into the window and checks it.

        Its offsets, which no checksum covers, must lie in the segment and below those of the batch behind it."""
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

    cdef int load_between(self, Window w, int64_t position, int64_t end) except -1:
        """Checks the batches from `position` up to `end` whole: a lookup passed them by on their headers' word."""
        cdef ks_batch b
        b.last_offset = self.base_offset - 1
        b.size = 0
        while 0 <= position < end:
            position = self.after(w, position, &b)
            if position >= 0:
                self.load(w, position, &b)
                position += b.size
        return 0

    cdef int64_t walk_to(
        self, int64_t target, int64_t position, Window w, ks_batch *b, ks_fault *fault
    ) noexcept nogil:
        """From `position` on, the position of the first batch with last offset >= target; or a negative status.

        A fault's `at` is counted from the start of the file."""
        cdef int64_t size, last = self.base_offset - 1
        while True:
            size = step(w, position, LOOK, b, fault)
            if size >= 0 and b.base_offset <= last:
                ks_fail(fault, KS_E_OFFSET, 0, last + 1, b.base_offset)
                size = DAMAGED
            if size < 0:
                if size == DAMAGED:
                    fault.at += <size_t>position
                return size
            last = b.last_offset
            if b.last_offset >= target:
                return position
            position += size

    cdef int64_t locate(self, int64_t target, Window w, ks_batch *b, bint whole) except -2:
        """Position of the first batch with last offset >= target, its header in b; NONE past the end.

        `whole`: the caller goes on to read all of it, so as much is read at once."""
        cdef OffsetIndex index = self.offsets()
        cdef int64_t slot = index.floor(target), position, ahead, found
        cdef ks_fault fault
        cdef int attempt
        for attempt in range(2):
            # An entry holds the last offset of its batch, so the batch wanted is that of the entry at or above the
            # target whenever every batch has an entry: look there first.
            if slot < 0 or index.offset_at(slot) != target:
                slot += 1
            if slot < index.count:
                position = index.position_at(slot)
                ahead = index.position_at(slot + 1) - position if slot + 1 < index.count else <int64_t>NEAR
                found = step(w, position, min(ahead + LOOK, <int64_t>NEAR) if whole else <int64_t>LOOK, b, &fault)
                if found == SYSTEM:
                    w.raise_failure(-1)
                if found >= 0 and b.magic == 2 and b.base_offset <= target and b.last_offset == index.offset_at(slot):
                    return position
                if found < 0 or b.last_offset > index.offset_at(slot):
                    index = self.distrusted(slot, b.last_offset if found >= 0 else -1)
                    slot = index.floor(target)
                    continue
            slot = index.floor(target)
            position = index.position_at(slot) if slot >= 0 else 0
            if slot >= 0:
                found = step(w, position, LOOK, b, &fault)
                if found == SYSTEM:
                    w.raise_failure(-1)
                if found < 0 or b.last_offset > index.offset_at(slot):
                    index = self.distrusted(slot, b.last_offset if found >= 0 else -1)
                    slot = index.floor(target)
                    continue
            found = self.walk_to(target, position, w, b, &fault)
            if found == SYSTEM:
                w.raise_failure(-1)
            if slot >= 0 and attempt == 0 and (
                (found == position and b.base_offset > target)  # the batch before may be the one
                or found == DAMAGED
                or (found == NONE and target <= index.offset_at(index.count - 1))
            ):
                index = self.distrusted(slot, b.last_offset if found >= 0 else -1)
                slot = index.floor(target)
                continue
            if found == DAMAGED:
                at = <int64_t>fault.at
                fault.at = 0
                raise_fault(&fault, self.path, at, -1)
            return found
        raise CorruptIndexError("an index made from the log does not fit it", file=self.path, position=position)

    cdef OffsetIndex distrusted(self, int64_t slot, int64_t found):
        """The index made anew, because the entry in `slot` does not fit the log."""
        cdef OffsetIndex index = self.offsets()
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

    def translate(self, int64_t offset):
        """The first batch with last offset >= `offset`, as a Located; None past the end (spec 7.1)."""
        cdef Window w = self.borrow()
        cdef ks_batch b
        cdef int64_t position = self.locate(offset, w, &b, False)
        self._spare = w
        if position < 0:
            return None
        base = self.batch_at(position).base_offset if b.magic < 2 and ks_codec(&b) else b.base_offset
        return Located(base, position, b.size)

    def batch_at(self, int64_t position):
        """The batch that begins at this byte, as it lies there (`is_valid` tells whether it is sound)."""
        cdef Window w = self.borrow()
        cdef ks_batch b
        cdef ks_fault fault
        cdef int64_t size = step(w, position, NEAR, &b, &fault), have
        if size == SYSTEM:
            w.raise_failure(-1)
        if size == DAMAGED:
            raise_fault(&fault, self.path, position, -1)
        if size == NONE:
            raise CorruptRecordError(
                "no whole batch", file=self.path, position=position, expected="a batch", found=f"{w.limit} bytes"
            )
        have = w.fill(position, size, size)
        if have < size:
            w.raise_failure(-1)
        batch = RecordBatch.new(w.at(position), &b, self.path, position, self.max_decompressed_bytes)
        self._spare = w
        return batch

    def get(self, int64_t offset):
        """The first record of data with at least this offset; None if the segment has none. CRC checked."""
        cdef Window w = self.borrow()
        cdef ks_batch b
        cdef Records records
        cdef Record record = None
        cdef int64_t position = self.locate(offset, w, &b, True), slot
        if position > 0 and b.base_offset > offset and b.magic == 2:  # a gap, or damage that looks like one
            slot = self.offsets().floor(offset)
            self.load_between(w, self.offsets().position_at(slot) if slot >= 0 else 0, position)
        while position >= 0 and record is None:
            self.load(w, position, &b)
            if not (b.magic == 2 and b.attributes & KS_CONTROL):
                records = Records.__new__(Records)
                records.limit = self.max_decompressed_bytes
                records.begin(w.at(position), &b, self.path, position)
                record = records.first_from(offset)
            if record is None:
                position = self.after(w, position + b.size, &b)
        self._spare = w
        return record

    cdef int64_t after(self, Window w, int64_t position, ks_batch *b) except -2:
        """`position` if a whole batch begins there (its header in b), NONE at the end. b was the batch before it."""
        cdef ks_fault fault
        cdef int64_t last = b.last_offset
        cdef int64_t size = step(w, position, min(max(b.size + LOOK, <int64_t>4096), <int64_t>NEAR), b, &fault)
        if size >= 0 and b.base_offset <= last:
            ks_fail(&fault, KS_E_OFFSET, 0, last + 1, b.base_offset)
            size = DAMAGED
        if size == SYSTEM:
            w.raise_failure(-1)
        if size == DAMAGED:
            raise_fault(&fault, self.path, position, -1)
        return NONE if size == NONE else position

    def find_timestamp(self, int64_t timestamp, int64_t start_offset=0):
        """The first record with at least this timestamp and at least start_offset, as OffsetAndTimestamp, or None.

        Spec 7.6, steps 2 to 4: from the batch that the time index names on. Where that batch is not what the index
        says, both indexes are made anew and the search begins again.
        """
        cdef Window w = self.borrow()
        cdef ks_batch b
        cdef TimeIndex times
        cdef Records records
        cdef Record record
        cdef int64_t slot, hint, position, promised
        for _ in range(2):
            times = self.times()
            slot = times.floor(timestamp)
            hint = times.offset_at(slot) if slot >= 0 else self.base_offset
            promised = hint if slot >= 0 else -1  # the batch ending here must have the index entry's timestamp
            position = self.locate(max(hint, start_offset), w, &b, False)
            if position < 0 and promised >= 0 and hint >= start_offset:
                self.rebuild(self.time_fault(times, slot, "none"))
                continue
            while position >= 0:
                if promised >= 0 and b.last_offset >= promised:
                    if hint >= start_offset and (
                        b.last_offset != promised or b.max_timestamp != times.timestamp_at(slot)
                    ):
                        break
                    promised = -1
                elif b.max_timestamp < timestamp:  # passed by on its header's word
                    self.load(w, position, &b)
                if b.max_timestamp >= timestamp:
                    self.load(w, position, &b)
                    records = Records.__new__(Records)
                    records.limit = self.max_decompressed_bytes
                    records.begin(w.at(position), &b, self.path, position)
                    record = records.first_since(timestamp, start_offset)
                    if record is not None:
                        self._spare = w
                        return OffsetAndTimestamp(
                            record.offset, record.timestamp, b.leader_epoch if b.leader_epoch >= 0 else None
                        )
                position = self.after(w, position + b.size, &b)
            if position < 0:
                self._spare = w
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
        """The first record with the segment's largest timestamp, as OffsetAndTimestamp, or None (spec 7.5)."""
        cdef Window w = self.borrow()
        cdef ks_batch b
        cdef Records records
        cdef Record record
        timestamp, offset = self.max_timestamp_so_far
        cdef int64_t wanted = timestamp, position = self.locate(offset, w, &b, True)
        if position < 0:
            return None
        self.load(w, position, &b)
        records = Records.__new__(Records)
        records.limit = self.max_decompressed_bytes
        records.begin(w.at(position), &b, self.path, position)
        record = records.first_since(wanted, 0)
        self._spare = w
        if record is None or record.timestamp != wanted or b.magic == 0:
            return None
        return OffsetAndTimestamp(record.offset, wanted, b.leader_epoch if b.leader_epoch >= 0 else None)

    def read_next_offset(self):
        """The offset after the last batch: from the last index entry to the end, checksums unread (spec 8.6).

        `tail_bytes` then tells how many bytes behind that batch hold no whole one."""
        cdef Window w = self.borrow()
        cdef ks_batch b
        cdef ks_fault fault
        cdef OffsetIndex index = self.offsets()
        cdef int64_t slot, size, position, next_offset
        cdef int attempt
        for attempt in range(2):
            slot = index.count - 1
            position = index.position_at(slot) if slot >= 0 else 0
            next_offset = self.base_offset
            while True:
                size = step(w, position, NEAR, &b, &fault)
                if size < 0:
                    break
                next_offset = b.last_offset + 1
                position += size
            if size == SYSTEM:
                w.raise_failure(-1)
            if slot >= 0 and next_offset <= index.offset_at(slot) and attempt == 0:
                index = self.distrusted(slot, next_offset - 1)
                continue
            break
        self._spare = w
        self.tail_bytes = w.limit - position
        return next_offset

    # ---- growth ---------------------------------------------------------------------------------------------------

    def is_file_of_its_name(self):
        """Whether the .log's name still stands for the file that this segment has open."""
        import os

        try:
            return os.stat(self.path).st_ino == os.fstat(self.opened().fd).st_ino
        except FileNotFoundError:
            return False

    def grown(self, int64_t end_offset):
        """The same segment with the whole batches that were appended to it since, checksums verified, and another
        offset behind it; itself where there is nothing new.

        Its indexes are added to as the writer's were."""
        cdef Segment twin
        cdef Window w = Window.__new__(Window)
        cdef OffsetIndex offsets
        cdef TimeIndex times
        cdef ks_batch b
        cdef ks_fault fault
        cdef int64_t position = self.limit(), size, have, since, last = self.base_offset - 1
        cdef int64_t length = self.opened().length() - self.origin
        if length <= position and end_offset == self.end_offset:
            return self
        if position:
            last = self.read_next_offset() - 1
        offsets = self.offsets().copy()
        times = self.times().copy()
        timestamp, offset = self.max_timestamp_so_far
        cdef int64_t max_timestamp = timestamp, max_offset = offset
        since = position - (offsets.position_at(offsets.count - 1) if offsets.count else 0)
        w.reset(self.opened(), length, self.origin)
        with nogil:
            while True:
                size = step(w, position, AHEAD, &b, &fault)
                if size < 0:
                    break
                have = w.fill(position, size, AHEAD)
                if have < size or ks_check_batch(w.at(position), w.at(position) + have, &b, &fault) != KS_OK:
                    break
                if b.base_offset <= last or b.last_offset >= end_offset:
                    break
                if b.max_timestamp > max_timestamp:
                    max_timestamp = b.max_timestamp
                    max_offset = b.last_offset
                if since > self.index_interval_bytes:
                    if offsets.put(b.last_offset, position) == 0:
                        times.put(max_timestamp, max_offset)
                    since = 0
                last = b.last_offset
                since += size
                position += size
        if position == self.limit() and end_offset == self.end_offset:
            return self
        twin = Segment(
            self.directory, self.stem, self.base_offset, end_offset, self.suffixes, self.origin,
            self.index_interval_bytes, self.max_decompressed_bytes,
        )
        twin._log = self._log
        twin._limit = position
        twin._offset_index = offsets
        twin._time_index = times
        twin._max_timestamp_so_far = TimestampOffset(max_timestamp, max_offset)
        return twin

    def followed(self, int64_t last_offset, int64_t most=4 << 20):
        """(segment, its last offset): this one, whose last offset is given, with the whole batches that were appended
        behind it, checksums verified; itself where there are none. About `most` bytes at most.

        Unlike `grown` it leaves the indexes as they are, so that what it costs does not depend on the segment."""
        cdef Segment twin
        cdef Window w
        cdef ks_batch b
        cdef ks_fault fault
        cdef int64_t position = self.limit(), size, have, until
        cdef int64_t length = self.opened().length() - self.origin
        if length <= position:
            return self, last_offset
        w = self._spare  # no borrow(): its limit is ours
        self._spare = None
        if w is None:
            w = Window.__new__(Window)
        w.reset(self._log, length, self.origin)
        until = position + most
        with nogil:
            while position < until:
                size = step(w, position, NEAR, &b, &fault)
                if size < 0:
                    break
                have = w.fill(position, size, NEAR)
                if have < size or ks_check_batch(w.at(position), w.at(position) + have, &b, &fault) != KS_OK:
                    break
                if b.base_offset <= last_offset or b.last_offset >= self.end_offset:
                    break
                last_offset = b.last_offset
                position += size
        if position == self.limit():
            self._spare = w
            return self, last_offset
        twin = Segment(
            self.directory, self.stem, self.base_offset, self.end_offset, self.suffixes, self.origin,
            self.index_interval_bytes, self.max_decompressed_bytes,
        )
        twin._log = self._log
        twin._limit = position
        twin._offset_index = self.offsets()
        twin._time_index = self.times()
        twin._spare = w
        return twin, last_offset

    def whole_until(self, int64_t start, int64_t end):
        """The last byte up to `end` where a batch ends, from the batch that begins at `start` on; headers only."""
        cdef Window w
        cdef ks_batch b
        cdef ks_fault fault
        cdef OffsetIndex index
        cdef int64_t position = start, size, low, high, middle
        if end <= start:
            return start
        index = self.offsets()
        w = self.borrow()
        low, high = 0, index.count
        while low < high:  # to the first entry behind `end`
            middle = (low + high) // 2
            if index.position_at(middle) <= end:
                low = middle + 1
            else:
                high = middle
        if low > 0 and index.position_at(low - 1) > start:  # a hint: it counts if the batch there is the one it names
            position = index.position_at(low - 1)
            if step(w, position, LOOK, &b, &fault) < 0 or b.last_offset != index.offset_at(low - 1):
                position = start
        while True:
            size = step(w, position, 4096, &b, &fault)
            if size == SYSTEM:
                w.raise_failure(-1)
            if size < 0 or position + size > end:
                break
            position += size
        self._spare = w
        return position

    # ---- walks ----------------------------------------------------------------------------------------------------

    def scan(self, *, bint verify=True, int64_t stop=INT64_MAX):
        """Walks every batch (checking its CRC, unless verify is false) and returns a Scan.

        It ends at the first byte that recovery would cut off (spec 8.4); `error` says what is wrong there, None where
        nothing is left. `disordered`: an offset did not rise at an index entry. `overflow`: an offset lies more than
        2^31 - 1 above the base, so the segment must be split. Offsets that do not rise from batch to batch are damage
        too (Kafka does not look); of two batches that contradict each other the one out of line is blamed. The
        segment itself is not changed. The GIL is free while it runs.
        """
        cdef Window w = Window.__new__(Window)
        cdef OffsetIndex offsets = OffsetIndex(self.base_offset)
        cdef TimeIndex times = TimeIndex(self.base_offset)
        cdef ks_batch b
        cdef ks_fault fault
        cdef int64_t position = 0, size = 0, have, since = 0, count = 0, next_offset = self.base_offset
        cdef int64_t max_timestamp = -1, max_offset = self.base_offset, interval = self.index_interval_bytes
        cdef int64_t ahead = AHEAD, previous = -1, last = self.base_offset - 1
        cdef int32_t epoch = -1
        cdef int put = 0
        cdef bint overflow = False
        cdef bint producers = False
        cdef bint unordered = False
        cdef bint follows_on = True  # whether the last batch began right behind the one before
        w.reset(self.opened(), min(self.limit(), stop), self.origin)
        epochs = []
        memset(&fault, 0, sizeof(fault))
        with nogil:
            while True:
                size = step(w, position, ahead, &b, &fault)
                if size < 0:
                    break
                if verify:
                    have = w.fill(position, size, AHEAD)
                    if have < 0:
                        size = SYSTEM
                        break
                    if (
                        ks_check_batch(w.at(position), w.at(position) + have, &b, &fault) != KS_OK
                        or check_marker(w.at(position), &b, &fault) != KS_OK
                    ):
                        size = DAMAGED
                        break
                else:  # large batches: step over their records instead of reading them
                    ahead = LOOK if size > NEAR else AHEAD
                if b.base_offset <= last or b.last_offset >= self.end_offset:
                    unordered = True
                    break
                if b.last_offset - self.base_offset > INT32_MAX:
                    overflow = True
                    break
                if b.max_timestamp > max_timestamp:
                    max_timestamp = b.max_timestamp
                    max_offset = b.last_offset
                if since > interval:
                    put = offsets.put(b.last_offset, position)
                    if put == 0:
                        put = times.put(max_timestamp, max_offset)
                    if put:
                        break
                    since = 0
                if b.leader_epoch > epoch and b.magic == 2:
                    epoch = b.leader_epoch
                    with gil:
                        epochs.append((epoch, b.base_offset))
                producers = producers or b.producer_id >= 0
                count += 1
                follows_on = b.base_offset == last + 1
                last = b.last_offset
                next_offset = last + 1
                since += size
                previous = position
                position += size
        if size == SYSTEM:
            w.raise_failure(-1)
        if unordered and not follows_on and b.base_offset <= last:  # the batch before is the one out of line
            found = self.scan(verify=verify, stop=previous)
            ks_fail(&fault, KS_E_OFFSET, 0, b.base_offset - 1, last)
            try:
                raise_fault(&fault, self.path, previous, -1)
            except CorruptRecordError as e:
                return found._replace(error=e)
        error = None
        if unordered:
            ks_fail(&fault, KS_E_OFFSET, 0, last + 1, b.base_offset)
            size = DAMAGED
        if put or overflow:
            ks_fail(&fault, KS_E_OFFSET, 0, offsets.last_offset + 1, b.last_offset)
            size = DAMAGED
        if size == DAMAGED:
            try:
                raise_fault(&fault, self.path, position, b.base_offset if fault.status == KS_E_CRC else -1)
            except CorruptRecordError as e:
                error = e
        elif position < w.limit:
            error = CorruptRecordError(
                "the bytes end inside a batch",
                file=self.path,
                position=position,
                offset=next_offset,
                expected="a whole batch",
                found=f"{w.limit - position} bytes",
            )
        times.put(max_timestamp, max_offset)
        return Scan(
            position, next_offset, count, offsets, times, TimestampOffset(max_timestamp, max_offset), epochs, error,
            put != 0, overflow, producers,
        )

    def read_headers(self, int64_t start=0):
        """The headers of all batches from byte `start` on, as a numpy structured array of one row a batch.

        Columns: position, base_offset, last_offset, base_timestamp, max_timestamp, producer_id, size, crc,
        leader_epoch, last_offset_delta, base_sequence, records_count (-1 for magic 0 and 1), producer_epoch,
        attributes, magic. Checksums are not computed. CorruptRecordError where a header makes no sense; bytes at the
        end that hold no whole batch are left out. The GIL is free while it runs.
        """
        import numpy

        cdef Window w = Window.__new__(Window)
        cdef ks_batch b
        cdef ks_fault fault
        cdef int64_t position = start, size = 0, count = 0, room = 0, ahead = AHEAD
        cdef row *rows = NULL
        cdef Py_buffer view
        w.reset(self.opened(), self.limit(), self.origin)
        table = numpy.empty(0, dtype=header_dtype())
        while True:
            # numpy asks for huge pages, which spares most of the page faults; its arrays are sized by what the rest
            # of the log would fill at the rate so far, so that the second is nearly always the last
            room = 1024 if count == 0 else count + <int64_t>(1.05 * count * (w.limit - position) / (position - start))
            larger = numpy.empty(room + 64, dtype=header_dtype())
            larger[:count] = table
            table = larger
            room = len(table)
            PyObject_GetBuffer(table, &view, PyBUF_SIMPLE)
            try:
                rows = <row *>view.buf
                with nogil:
                    while count < room:
                        size = step(w, position, ahead, &b, &fault)
                        if size < 0:
                            break
                        ahead = LOOK if size > NEAR else AHEAD
                        rows[count].position = position
                        rows[count].batch = b
                        count += 1
                        position += size
            finally:
                PyBuffer_Release(&view)
            if size == SYSTEM:
                w.raise_failure(-1)
            if size == DAMAGED:
                raise_fault(&fault, self.path, position, -1)
            if size == NONE:
                return table[:count]

    def __repr__(self):
        return f"Segment({self.path!r}, base_offset={self.base_offset})"


cdef object header_layout = None


cdef object header_dtype():
    """The layout of `row` for numpy, made once (numpy is imported only when columns are asked for)."""
    global header_layout
    if header_layout is None:
        import numpy

        fields = (
            ("base_offset", "i8"), ("last_offset", "i8"), ("base_timestamp", "i8"), ("max_timestamp", "i8"),
            ("producer_id", "i8"), ("size", "i8"), ("crc", "u4"), ("leader_epoch", "i4"),
            ("last_offset_delta", "i4"), ("base_sequence", "i4"), ("records_count", "i4"), ("producer_epoch", "i2"),
            ("attributes", "i2"), ("magic", "i1"),
        )
        names, formats, offsets, at = ["position"], ["i8"], [0], 8
        for name, kind in fields:  # ks_batch has its widest fields first, so there is no padding between them
            names.append(name)
            formats.append(kind)
            offsets.append(at)
            at += int(kind[1])
        header_layout = numpy.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": sizeof(row)}
        )
    return header_layout
