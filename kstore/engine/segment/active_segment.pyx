# cython: binding=False
"""The segment that grows: written here, its .log and its indexes as mapped files (spec 4, 5.1), or by another
process, where what came since is another segment of the same file.

The file is long because batch, index entries and end are published by one class: its state is in C fields.
"""


from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cython cimport final, no_gc_clear
from libc.errno cimport EDQUOT, EFBIG, ENOSPC, errno
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from kstore.engine.io.file cimport File
from kstore.engine.io.buffers cimport MappedFile, ReadWindow
from kstore.engine.record.batch_walk cimport FAR, NEAR, WALK_SYSTEM, step
from kstore.engine.segment.index cimport INDEX_MEMORY, OffsetIndex, TimeIndex, index_batch, int64_of, ks_index_state
from kstore.engine.segment.segment cimport Segment
from kstore.engine.segment.walks cimport check_marker, recovery_walk
from libkstore.format cimport (
    KS_BATCH_OVERHEAD,
    KS_OFFSET_ENTRY,
    KS_OK,
    KS_TIME_ENTRY,
    ks_batch,
    ks_check_batch,
    ks_fault,
)

from kstore.arguments import INDEX_INTERVAL_BYTES, MAX_DECOMPRESSED_BYTES
from kstore.engine.io.directory import take_mode, unlink
from kstore.engine.segment.index import TimestampOffset, TransactionIndex
from kstore.errors import CorruptIndexError, CorruptRecordError, LogFailedError

cdef extern from *:
    """
    /* A sequence lock: one writer, readers that try again. */
    static inline long ks_begin_read(const long *version) { return __atomic_load_n(version, __ATOMIC_ACQUIRE); }
    static inline int ks_changed(const long *version, long seen) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return (seen & 1) || __atomic_load_n(version, __ATOMIC_RELAXED) != seen;
    }
    static inline void ks_begin_write(long *version) {
        __atomic_store_n(version, *version + 1, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_RELEASE);
    }
    static inline void ks_end_write(long *version) { __atomic_store_n(version, *version + 1, __ATOMIC_RELEASE); }
    """
    long ks_begin_read(const long *version) nogil
    bint ks_changed(const long *version, long seen) nogil
    void ks_begin_write(long *version) nogil
    void ks_end_write(long *version) nogil

cdef enum:
    LEAST_BATCH = 26  # bytes: a message of magic 0 with neither key nor value
    MOST_UNSURE = 64  # entries at the end of a live index that name no batch: one was truncated, or is being written
    LEAST_AHEAD = 64 << 10   # blocks are allocated ahead in steps as large as the log is, between these
    MOST_AHEAD = 16 << 20

ROLL_REASONS = ("", "size", "time", "offset_index", "time_index", "offset_range")


@final
@no_gc_clear  # its methods rely on the files and maps; whatever cycle it is in, others break it
cdef class ActiveSegment:
    """The only segment of a log that grows. One thread at a time appends; any may take views meanwhile.

    An append is staged batch by batch (`stage`), then written and published in one go (`write`), or forgotten
    (`unstage`). Index files are made at the first append or flush, as Kafka does. `segment`: what is there
    already. `joined`: other processes have its files open for writing; `take` says what is there.
    """

    def __cinit__(
        self,
        str directory not None,
        str stem not None,
        int64_t base_offset,
        *,
        Segment segment=None,
        next_offset=None,
        int64_t created_ms=0,
        int64_t roll_jitter_ms=0,
        int64_t index_interval_bytes=INDEX_INTERVAL_BYTES,
        int64_t segment_index_bytes=10 << 20,
        int64_t segment_bytes=1 << 30,
        int64_t max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
        bint preallocate=False,
        bint joined=False,
    ):
        self.directory = directory
        self.stem = stem
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.index_interval_bytes = index_interval_bytes
        self.segment_index_bytes = segment_index_bytes
        self.segment_bytes = segment_bytes
        self.allocates = not preallocate
        memset(&self.staged, 0, sizeof(self.staged))
        self.staged.indexed.max_timestamp = -1
        self.staged.indexed.max_timestamp_offset = base_offset
        self.staged.next_offset = base_offset if next_offset is None else next_offset
        if joined:
            self.log = File(self.path_of(".log"), "r+")
            self.map_indexes()
            self._transaction_index = TransactionIndex(base_offset)
        elif segment is None:
            self.log = File(self.path_of(".log"), "w")
            if preallocate and self.log.resize(segment_bytes) < 0:
                self.log.raise_errno()
            self._transaction_index = TransactionIndex(base_offset)
        else:
            self.log = File(self.path_of(".log"), "r+")
            self.staged.size = self.allocated = segment.size
            timestamp, offset = segment.max_timestamp_so_far
            self.staged.indexed.max_timestamp = timestamp
            self.staged.indexed.max_timestamp_offset = offset
            self._transaction_index = segment.transaction_index
            if self.staged.size:
                self.staged.first_timestamp = segment.batch_at(0).max_timestamp
            self.use_indexes(segment.offset_index, segment.time_index)
        self.unlimited = Segment(
            directory, stem, base_offset, index_interval_bytes=index_interval_bytes,
            max_decompressed_bytes=max_decompressed_bytes,
        )
        self.unlimited.files.handle.pin(self.log)
        self.publish()

    def path_of(self, str kind):
        """The path of its file of a kind: ".log", ".index", ".timeindex" or ".txnindex"."""
        return f"{self.directory}/{self.stem}{kind}"

    @property
    def path(self):
        return self.path_of(".log")

    @property
    def size(self):
        """Bytes written."""
        return self.published.size

    @property
    def next_offset(self):
        """The offset after the last record written; the base offset of an empty segment just made."""
        return self.published.next_offset

    @property
    def transaction_index(self):
        return self._transaction_index

    # ---- indexes -------------------------------------------------------------------------------------------

    cdef object fresh(self, str kind):
        """An empty index file under a new inode: readers of the old one keep what they have. Mode and owner
        are the log's."""
        unlink(self.path_of(kind), missing_ok=True)
        file = File(self.path_of(kind), "x")
        take_mode(file, self.path_of(".log"))
        return file

    cdef void use_indexes(self, OffsetIndex offsets, TimeIndex times):
        """Keeps these entries until the files are made."""
        self.offsets = offsets
        self.times = times
        self.staged.offset_entries = offsets.count
        self.staged.time_entries = times.count

    cdef int prepare(self) except -1:
        """Makes the index files at their full size, with the entries there are, and maps them."""
        cdef OffsetIndex offsets = self.offsets
        cdef TimeIndex times = self.times
        cdef int64_t size
        if self.time_map is not None:
            return 0
        if offsets is None:
            offsets = OffsetIndex(self.base_offset)
            times = TimeIndex(self.base_offset)
        size = max(self.segment_index_bytes, (offsets.count + 1) * KS_OFFSET_ENTRY) // KS_OFFSET_ENTRY * KS_OFFSET_ENTRY
        offset_map = MappedFile(self.fresh(".index"), size)
        offsets = <OffsetIndex>offsets.mapped(offset_map)
        size = max(self.segment_index_bytes, (times.count + 2) * KS_TIME_ENTRY) // KS_TIME_ENTRY * KS_TIME_ENTRY
        time_map = MappedFile(self.fresh(".timeindex"), size)
        times = <TimeIndex>times.mapped(time_map)
        self.offsets = offsets
        self.times = times
        self.offset_map = offset_map
        self.time_map = time_map
        return 0

    cdef int map_indexes(self) except -1:
        """Maps the index files that another process has made."""
        offset_file, time_file = File(self.path_of(".index"), "r+"), File(self.path_of(".timeindex"), "r+")
        self.offset_map = MappedFile(offset_file, max(offset_file.size(), KS_OFFSET_ENTRY))
        self.time_map = MappedFile(time_file, max(time_file.size(), KS_TIME_ENTRY))
        self.offsets = <OffsetIndex>OffsetIndex(self.base_offset).mapped(self.offset_map)
        self.times = <TimeIndex>TimeIndex(self.base_offset).mapped(self.time_map)
        # of the process that has made them, which may have another configuration: the limits of the entries
        self.segment_index_bytes = min(self.segment_index_bytes, self.offset_map.size, self.time_map.size)
        return 0

    def is_at_its_name(self):
        """Whether the names of the log and its index still stand for the files that are open here."""
        if self.offset_map is None:
            return False
        index = self.offset_map.file
        return self.log.is_at(self.log.path) and index.is_at(index.path)

    def load_transactions(self):
        """Reads the aborted transactions that another process has written. OSError."""
        index = TransactionIndex(self.base_offset)
        try:
            self.transaction_file = File(self.path_of(".txnindex"), "r+")
            index = TransactionIndex(
                self.base_offset, self.transaction_file.read(0, self.transaction_file.size()),
                path=self.path_of(".txnindex"),
            )
            index.truncate_to(self.staged.next_offset)
            if self.transaction_file.size() > len(index.to_bytes()):  # its marker did not come: the process has died
                self.transaction_file.truncate(len(index.to_bytes()))
        except FileNotFoundError:
            self.transaction_file = None
        self._transaction_index = index

    def prepare_indexes(self):
        """Makes the index files now. OSError."""
        self.prepare()

    cdef int reserve(self, int64_t batches) noexcept nogil:
        """Sees to it that staging so many batches and sealing find room in the index files. -1 with errno
        set."""
        if self.offsets.reserve(batches) < 0 or self.times.reserve(batches + 1) < 0:
            return -1
        return 0

    cdef str lost_index(self):
        """Which index file another program has shortened, and that it has; None if none is known."""
        return None if self.time_map is None else self.offset_map.loss() or self.time_map.loss()

    cdef int check_indexes(self) except -1:
        """LogFailedError if another program has shortened an index file."""
        if self.offset_map.look() or self.time_map.look():
            raise LogFailedError("nothing is written until the log is opened again: " + self.lost_index())
        return 0

    # ---- appending -----------------------------------------------------------------------------------------

    cdef int roll_reason(
        self, int64_t size, int64_t max_timestamp, int64_t last_offset, int64_t now, int64_t segment_bytes,
        int64_t segment_ms,
    ) noexcept nogil:
        """Why a new segment must begin before `size` more bytes are appended (spec 5.1); ROLL_NOT if it need
        not."""
        cdef ks_extent *s = &self.staged
        cdef int64_t waited
        if s.size > segment_bytes - size:
            return ROLL_SIZE
        if s.size > 0:
            if s.first_timestamp >= 0:
                waited = <int64_t>(<uint64_t>max_timestamp - <uint64_t>s.first_timestamp)
            else:
                waited = <int64_t>(<uint64_t>now - <uint64_t>self.created_ms)
            if waited > segment_ms - self.roll_jitter_ms:
                return ROLL_TIME
        if self.offsets is not None:
            if self.offsets.count >= self.offset_limit():
                return ROLL_OFFSET_INDEX
            if self.times.count >= self.time_limit():
                return ROLL_TIME_INDEX
        if last_offset < self.base_offset or last_offset - self.base_offset > INT32_MAX:
            return ROLL_OFFSET
        return ROLL_NOT

    cdef inline int64_t offset_limit(self) noexcept nogil:
        return self.segment_index_bytes // KS_OFFSET_ENTRY

    cdef inline int64_t time_limit(self) noexcept nogil:
        """One slot is kept for the entry that sealing adds. Of less than two slots every append finds it
        full."""
        return self.segment_index_bytes // KS_TIME_ENTRY - 1

    cdef void stage(self, const ks_batch *b) noexcept nogil:
        """Counts a batch in, with its index entry where one is due (spec 4.1). An index that is full takes no
        more."""
        cdef ks_extent *s = &self.staged
        if s.size == 0:
            s.first_timestamp = b.max_timestamp
        index_batch(
            &s.indexed, self.offsets, self.times, self.index_interval_bytes, self.offset_limit(), self.time_limit(),
            b, s.size,
        )
        s.size += b.size
        s.next_offset = b.last_offset + 1
        s.records += 1 if b.magic < 2 else b.records_count
        s.offset_entries = self.offsets.count
        s.time_entries = self.times.count

    cdef void unstage(self) noexcept nogil:
        """Forgets what was staged and not written."""
        self.staged = self.published
        if self.offsets is not None:
            self.offsets.count = self.staged.offset_entries
            self.times.count = self.staged.time_entries

    cdef int write(self, const uint8_t *data, int64_t size) noexcept nogil:
        """Writes the bytes of the batches staged, and publishes them.

        WRITE_REFUSED or WRITE_UNKNOWN with errno set on failure: `take_rest` comes next."""
        cdef int64_t at = self.published.size
        if self.allocates and at + size > self.allocated:
            self.allocate_ahead()
        if self.log.pwrite(data, size, at) < size:
            self.unstage()
            return WRITE_REFUSED if errno == ENOSPC or errno == EDQUOT or errno == EFBIG else WRITE_UNKNOWN
        self.publish()
        return 0

    cdef int allocate_ahead(self) noexcept nogil:
        """Blocks for what comes next. That there is no room for them now is for the write to find out."""
        cdef int64_t more = min(max(self.staged.size, <int64_t>LEAST_AHEAD), <int64_t>MOST_AHEAD)
        cdef int64_t until = min(self.staged.size + more, max(self.segment_bytes, self.staged.size))
        cdef int status = self.log.allocate(self.published.size, until - self.published.size, True)
        if status > 0:
            self.allocates = False
        self.allocated = until
        return status

    cdef void publish(self) noexcept nogil:
        ks_begin_write(&self.version)
        self.published = self.staged
        ks_end_write(&self.version)

    cdef int take(self, const ks_extent *extent) except -1:
        """Goes on from where another process has come to. LogFailedError if that cannot be."""
        if (
            extent.size < 0
            or not 0 <= extent.offset_entries <= self.offset_map.size // KS_OFFSET_ENTRY
            or not 0 <= extent.time_entries <= self.time_map.size // KS_TIME_ENTRY
        ):
            raise LogFailedError(f"{self.path}: another program has changed what the processes that write it share")
        self.staged = extent[0]
        self.offsets.count = extent.offset_entries
        self.times.count = extent.time_entries
        # Their blocks are there, and must not be written as zeros, as `reserve` does where there is no fallocate.
        self.offset_map.reserved = max(self.offset_map.reserved, self.offsets.count * KS_OFFSET_ENTRY)
        self.time_map.reserved = max(self.time_map.reserved, self.times.count * KS_TIME_ENTRY)
        self.publish()
        return 0

    cdef int take_rest(self) except -1:
        """Takes in the whole batches behind the end, and cuts off the rest. OSError.

        A process that has died or whose write has failed left them. Readers may have seen them, so they stay."""
        cdef ReadWindow w = ReadWindow.__new__(ReadWindow)
        cdef ks_batch b
        cdef int64_t size = 0
        w.reset(self.log, self.log.length(), 0)
        while (size := sound(w, self.staged.size, FAR, self.staged.next_offset - 1, INT64_MAX, &b)) >= 0:
            if self.reserve(1) < 0:
                self.log.raise_errno()
            self.stage(&b)
        if size == WALK_SYSTEM:
            w.raise_failure(-1)
        if self.log.resize(self.staged.size) < 0:
            self.log.raise_errno()
        self.allocated = self.staged.size
        self.publish()
        return 0

    cdef int64_t taken(self, ks_extent *into) noexcept nogil:
        """A copy of what is published, all of one moment; its size."""
        cdef long seen
        while True:
            seen = ks_begin_read(&self.version)
            into[0] = self.published
            if not ks_changed(&self.version, seen):
                return into.size

    # ---- reading -------------------------------------------------------------------------------------------

    def view(self):
        """(segment, next offset) as they are now, for readers: later appends do not show. Thread-safe.

        It returns one tuple again and again until something is appended."""
        cdef ks_extent extent
        cdef Segment segment
        self.taken(&extent)
        if self._view is not None and self._view_size == extent.size and self._view[1] == extent.next_offset:
            return self._view
        segment = self.unlimited.shown_until(extent.size, INT64_MAX)
        if self.offset_map is None:
            segment._offset_index = OffsetIndex(self.base_offset) if self.offsets is None else self.offsets
            segment._time_index = TimeIndex(self.base_offset) if self.times is None else self.times
        else:
            segment._offset_index = <OffsetIndex>self.offsets.view(extent.offset_entries)
            segment._time_index = <TimeIndex>self.times.view(extent.time_entries)
        segment._max_timestamp_so_far = TimestampOffset(
            extent.indexed.max_timestamp, extent.indexed.max_timestamp_offset
        )
        segment._transaction_index = self._transaction_index
        self._view_size = extent.size
        self._view = (segment, extent.next_offset)
        return self._view

    # ---- becoming inactive ---------------------------------------------------------------------------------

    def sealed(self, int64_t end_offset):
        """The sealed segment that it becomes, before a segment that begins at `end_offset`."""
        cdef Segment segment = Segment(
            self.directory, self.stem, self.base_offset, end_offset, index_interval_bytes=self.index_interval_bytes,
            max_decompressed_bytes=self.unlimited.max_decompressed_bytes,
        )
        segment.files.key_index = self.unlimited.files.key_index
        return segment

    def seal(self):
        """Trims its files: the last time entry is added, indexes and log get their exact lengths (spec 4.2).
        OSError.

        The blocks allocated ahead are given back. LogFailedError if another program has shortened an index
        file."""
        cdef int status = 0
        self.drop_ahead()
        if self.offsets is not None:  # those on the disk may be of before a recovery
            self.prepare()
        if self.time_map is not None:
            self.times.put(self.staged.indexed.max_timestamp, self.staged.indexed.max_timestamp_offset)
            self.check_indexes()
            with nogil:
                status = self.offset_map.resize(self.offsets.count * KS_OFFSET_ENTRY)
                if status == 0:
                    status = self.time_map.resize(self.times.count * KS_TIME_ENTRY)
        if status == 0:
            with nogil:
                status = self.log.resize(self.staged.size)
        if status < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, self.path)
        self.allocated = self.staged.size

    def unseal(self):
        """Makes a sealed segment writable again, because the next one could not be made. OSError."""
        cdef int status = 0
        if self.time_map is not None:
            self.times.count = self.published.time_entries
            self.offset_map.reserved = 0
            self.time_map.reserved = 0
            status = self.offset_map.resize(self.offset_map.size)
            if status == 0:
                status = self.time_map.resize(self.time_map.size)
            if status == 0:
                status = self.offset_map.reserve(self.offsets.count * KS_OFFSET_ENTRY)
            if status == 0:
                status = self.time_map.reserve(self.times.count * KS_TIME_ENTRY)
            if status < 0:
                PyErr_SetFromErrnoWithFilenameObject(OSError, self.path)

    def sync(self, *, bint indexes=True):
        """Brings the log, and its indexes, to the disk; index files that are not there yet are made.
        OSError."""
        cdef int status
        if indexes:
            self.prepare()
            self.check_indexes()
        with nogil:
            status = self.log.sync_all()
            if status == 0 and indexes:
                status = self.offset_map.sync()
            if status == 0 and indexes:
                status = self.time_map.sync()
        if status < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, self.path)

    def files(self):
        """The Files of the log and of the indexes that were made: what must reach the disk once they are
        sealed."""
        files = [self.log]
        if self.time_map is not None:
            files += [self.offset_map.file, self.time_map.file]
        if self.transaction_file is not None:
            files.append(self.transaction_file)
        return files

    def write_aborted(self, txns):
        """Writes aborted transactions to the .txnindex, which is made when the first one comes (spec 3.4),
        before their markers are in the log: if that fails, nothing has happened. They count once they are
        appended. OSError."""
        self.drop_ahead()
        if self.transaction_file is None:
            self.transaction_file = File(self.path_of(".txnindex"), "a")
        position = len(self._transaction_index.to_bytes())
        entries = TransactionIndex(self.base_offset)
        for txn in txns:
            entries.append(txn)
        self.ahead = entries.to_bytes()  # first: a part of it may be there if it fails
        self.transaction_file.write(position, self.ahead)

    def append_aborted(self, txn):
        """Adds an aborted transaction, and writes it if that was not done. OSError."""
        before = self._transaction_index.to_bytes()
        if self.transaction_file is None:
            self.transaction_file = File(self.path_of(".txnindex"), "a")
        self._transaction_index.append(txn)
        entry = self._transaction_index.to_bytes()[len(before):]
        if self.ahead is not None and self.ahead.startswith(entry):
            self.ahead = self.ahead[len(entry):] or None
        else:
            self.transaction_file.write(len(before), entry)

    def drop_ahead(self):
        """Takes back what was written of transactions whose markers did not come. OSError."""
        if self.ahead is None:
            return
        size = len(self._transaction_index.to_bytes())
        if size:
            self.transaction_file.truncate(size)
        else:
            unlink(self.path_of(".txnindex"), missing_ok=True)
            self.transaction_file = None
        self.ahead = None

    def after_fork(self):
        """Another thread, which a child of fork does not have, may have been publishing."""
        if self.version & 1:
            self.version -= 1
            self.publish()

    def __repr__(self):
        return f"Active({self.path!r}, size={self.size})"


# ---- grown by another process ------------------------------------------------------------------------------

cdef int64_t sound(
    ReadWindow w, int64_t position, int64_t ahead, int64_t last, int64_t end, ks_batch *b
) noexcept nogil:
    """The size of the batch at `position` if recovery would keep it: whole, its checksum right, its offsets
    above `last` and below `end`; and if it does not go on from `last`, not contradicted by the next one. Its
    header is in b. Negative if it is not so; WALK_SYSTEM if that cannot be told."""
    cdef ks_batch following
    cdef int64_t size = checked(w, position, ahead, b), more
    if size < 0:
        return size
    if b.base_offset <= last or b.last_offset >= end:
        return -1
    if b.base_offset > last + 1:  # no checksum covers that
        more = checked(w, position + size, ahead, &following)
        if more == WALK_SYSTEM:
            return more
        if more > 0 and following.base_offset <= b.last_offset:
            return -1
    return size


cdef int64_t checked(ReadWindow w, int64_t position, int64_t ahead, ks_batch *b) noexcept nogil:
    """The size of the batch at `position` if it is whole, and its checksum right."""
    cdef ks_fault fault
    cdef int64_t size = step(w, position, ahead, b, &fault), have
    if size < 0:
        return size
    have = w.fill(position, size, ahead)
    if have < 0:
        return WALK_SYSTEM
    if (
        have < size
        or ks_check_batch(w.at(position), w.at(position) + have, b, &fault) != KS_OK
        or check_marker(w.at(position), b, &fault) != KS_OK
    ):
        return -1
    return size


cdef int64_t end_of(Segment segment, int64_t end_offset) noexcept:
    """The offset that no batch of the segment may reach: the next segment's, or what its indexes cannot
    name."""
    if end_offset - segment.base_offset > INT32_MAX:
        return segment.base_offset + INT32_MAX + 1
    return end_offset


def grown(Segment segment not None, int64_t end_offset):
    """The segment with the whole batches that were appended to its file since, and another end offset: a new
    one, or itself if nothing is new. Checksums are verified.

    It adds to the indexes as the writer did."""
    cdef Segment twin
    cdef ReadWindow w = ReadWindow.__new__(ReadWindow)
    cdef OffsetIndex offsets
    cdef TimeIndex times
    cdef ks_batch b
    cdef ks_index_state indexed
    cdef int64_t position = segment.limit(), size, last = segment.base_offset - 1
    cdef int64_t end = end_of(segment, end_offset)
    cdef int64_t length = segment.files.opened().length() - segment.origin
    cdef int put = 0
    if length <= position and end_offset == segment.end_offset:
        return segment
    if position:
        last = segment.read_next_offset() - 1
    offsets = segment.offsets().copy()
    times = segment.times().copy()
    timestamp, offset = segment.max_timestamp_so_far
    indexed.max_timestamp = timestamp
    indexed.max_timestamp_offset = offset
    indexed.since_entry = position - (offsets.position_at(offsets.count - 1) if offsets.count else 0)
    w.reset(segment.files.opened(), length, segment.origin)
    with nogil:
        while (size := sound(w, position, FAR, last, end, &b)) >= 0:
            put = index_batch(
                &indexed, offsets, times, segment.index_interval_bytes, INT64_MAX, INT64_MAX, &b, position
            )
            if put == INDEX_MEMORY:
                break
            last = b.last_offset
            position += size
    if put == INDEX_MEMORY:
        raise MemoryError()
    if size == WALK_SYSTEM:
        w.raise_failure(-1)
    if position == segment.limit() and end_offset == segment.end_offset:
        return segment
    twin = segment.shown_until(position, end_offset)
    twin._offset_index = offsets
    twin._time_index = times
    twin._max_timestamp_so_far = TimestampOffset(indexed.max_timestamp, indexed.max_timestamp_offset)
    return twin


cdef bint is_named(Segment segment, OffsetIndex index, int64_t slot, ReadWindow w, ks_batch *b) except -1:
    """Whether the entry names a sound batch."""
    cdef ks_fault fault
    cdef int64_t position = index.position_at(slot), have
    cdef int64_t size = step(w, position, NEAR, b, &fault)
    if size >= 0 and b.last_offset == index.offset_at(slot) and b.base_offset >= segment.base_offset:
        have = w.fill(position, size, size)
        if have < 0:
            w.raise_failure(have)
        return have >= size and ks_check_batch(w.at(position), w.at(position) + have, b, &fault) == KS_OK
    if size == WALK_SYSTEM:
        w.raise_failure(-1)
    return False


cdef bytes used_entries(Segment segment, str kind, int64_t width):
    """The entries of an index file of a live log: behind them are zeros, in room that was set aside. None if
    there is no such file."""
    cdef File file = segment.files.index_file(kind)
    cdef int64_t low = 0, high, middle
    if file is None:
        return None
    high = min(file.length() // width, segment.limit() // LEAST_BATCH + 2)
    while low < high:
        middle = (low + high) // 2
        if any(file.read(middle * width, width)):
            low = middle + 1
        else:
            high = middle
    entries = file.read(0, low * width)
    return entries[:len(entries) // width * width]


def walk_on(Segment segment not None, until=INT64_MAX):
    """A RecoveryWalk as `segment.recovery_walk` makes it, which trusts the index files: it reads only what
    follows their last entries, of offsets below `until`. None if they do not fit the log.

    For a segment that is being written, before it is shared. The writer may be a step ahead in the indexes, or
    behind, and entries of its past may follow those that count. So the last entry that names a sound batch is
    looked for, and the walk begins at the one before, of which all is written."""
    cdef OffsetIndex offsets
    cdef TimeIndex times
    cdef ReadWindow w
    cdef ks_batch b
    cdef Segment twin
    cdef int64_t slot, promised, end = int64_of("until", until)
    if segment.origin or segment.suffixes:
        return None
    w = segment.fresh()
    entries = used_entries(segment, ".index", KS_OFFSET_ENTRY)
    timed = used_entries(segment, ".timeindex", KS_TIME_ENTRY)
    if entries is None or timed is None:
        return None
    offsets = OffsetIndex(segment.base_offset, entries, path=segment.path_of(".index"))
    times = TimeIndex(segment.base_offset, timed, path=segment.path_of(".timeindex"))
    offsets.keep_rising(end, segment.limit())
    slot = offsets.count - 1
    while slot > 0 and not is_named(segment, offsets, slot, w, &b):
        slot -= 1
        if slot < offsets.count - MOST_UNSURE:
            return None
    if slot <= 0 or not is_named(segment, offsets, slot - 1, w, &b):
        return None
    promised = offsets.offset_at(slot)
    offsets.count = slot
    times.keep_rising(offsets.last_offset)
    twin = segment.shown_until(segment.limit(), segment.end_offset)
    twin.use_indexes(offsets, times)
    try:
        twin.check_last_time()
    except (CorruptIndexError, CorruptRecordError):
        return None
    found = recovery_walk(
        w, segment.path, segment.base_offset, segment.end_offset, segment.index_interval_bytes, True, offsets, times
    )
    if found.next_offset <= promised or found.disordered or found.overflow:
        return None
    if found.error is not None and not found.torn and any(segment.file().read(found.valid_bytes, KS_BATCH_OVERHEAD)):
        return None  # and not room that was set aside
    segment._transaction_index = None  # perhaps of a moment before
    return found
