# cython: binding=False, embedsignature=True
"""Commits of cursors: made a batch, and appended to a file to which other processes append in turn."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from libc.errno cimport errno
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from kstore.engine.io.file cimport File, gate, monotonic_ns
from kstore.engine.io.mutex cimport Mutex
from kstore.engine.record.batch cimport Record
from kstore.engine.record.batch_builder cimport BatchBuilder, ks_fields
from libkstore.build cimport ks_put_crc
from libkstore.format cimport (
    KS_BASE_SEQUENCE_AT,
    KS_BASE_TIMESTAMP_AT,
    KS_MAX_TIMESTAMP_AT,
    ks_store_u16,
    ks_store_u32,
    ks_store_u64,
)

cdef const uint8_t *NO_HEADERS = <const uint8_t *>b"\0"

cdef extern from *:
    """
    #include <sys/file.h>
    #include <unistd.h>
    /* kstore reads and writes by position, so where this leaves the file does not matter. */
    static int64_t ks_end_of_file(int fd) {
        return lseek(fd, 0, SEEK_END);
    }
    """
    enum:
        LOCK_EX
        LOCK_NB
        LOCK_UN
    int flock(int fd, int operation) nogil
    int64_t end_of_file "ks_end_of_file"(int fd) nogil

cdef extern from "Python.h":
    object allocated "PyType_GenericAlloc"(type kind, Py_ssize_t items)
    void put_item "PyTuple_SET_ITEM"(object items, Py_ssize_t i, object item)
    int64_t as_int64 "PyLong_AsLongLongAndOverflow"(object value, int *overflow) except? -1

cdef enum:
    LONGEST = 1 << 20  # bytes of a file, from which on it is looked at for being written anew
    OFFSET_AT = 2      # in an OffsetCommitValue
    READS = 0      # for the gate: it looks at something
    VALUE_VERSION = 4
    VALUE_HEAD = 14    # bytes: version, offset, leader epoch
    VALUE_TAIL = 9     # time, number of tagged fields
    ID_SIZE = 16


def encode_value(
    int64_t offset, int32_t leader_epoch, bytes metadata not None, int64_t timestamp, bytes topic_id not None
):
    """An OffsetCommitValue of version 4; without a topic id, if that is empty. ValueError for what is too
    long."""
    cdef int64_t size = PyBytes_GET_SIZE(metadata)
    cdef bint has_id = PyBytes_GET_SIZE(topic_id) != 0
    if size + 1 >= 1 << 14 or (has_id and PyBytes_GET_SIZE(topic_id) != ID_SIZE):
        raise ValueError(f"{size} bytes of metadata, {len(topic_id)} of an id")
    cdef bytes value = PyBytes_FromStringAndSize(
        NULL, VALUE_HEAD + 1 + (size + 1 >= 0x80) + size + VALUE_TAIL + (ID_SIZE + 2 if has_id else 0)
    )
    cdef uint8_t *p = <uint8_t *>PyBytes_AS_STRING(value)
    ks_store_u16(p, VALUE_VERSION)
    ks_store_u64(p + 2, <uint64_t>offset)
    ks_store_u32(p + 10, <uint32_t>leader_epoch)
    p += VALUE_HEAD
    if size + 1 >= 0x80:
        p[0] = <uint8_t>((size + 1) & 0x7F | 0x80)
        p += 1
        p[0] = <uint8_t>((size + 1) >> 7)
    else:
        p[0] = <uint8_t>(size + 1)
    p += 1
    memcpy(p, PyBytes_AS_STRING(metadata), <size_t>size)
    p += size
    ks_store_u64(p, <uint64_t>timestamp)
    p[8] = has_id  # how many tagged fields
    if has_id:
        p[9] = 0
        p[10] = ID_SIZE
        memcpy(p + 11, PyBytes_AS_STRING(topic_id), ID_SIZE)
    return value


def encode_commits(
    int64_t member, int64_t base_offset, int64_t timestamp, list records not None, int32_t sequence
):
    """A batch of (key, value) pairs of bytes, the value None for a tombstone, all with one timestamp.
    `member` is its producer, `sequence` its base sequence."""
    cdef BatchBuilder builder = BatchBuilder.__new__(BatchBuilder)
    cdef ks_fields f
    cdef bytes key
    cdef bytes value
    f.headers = NO_HEADERS
    f.headers_size = 1
    if builder.begin(base_offset, -1, 0) < 0:
        raise MemoryError("a batch of commits")
    builder.batch.producer_id = member
    builder.batch.producer_epoch = 0
    builder.batch.base_sequence = sequence
    for key, value in records:
        f.key = <const uint8_t *>PyBytes_AS_STRING(key)
        f.key_size = PyBytes_GET_SIZE(key)
        f.value = NULL
        f.value_size = -1
        if value is not None:
            f.value = <const uint8_t *>PyBytes_AS_STRING(value)
            f.value_size = PyBytes_GET_SIZE(value)
        if builder.add(timestamp, &f) < 0:
            raise MemoryError("a batch of commits")
    builder.finish()
    return PyBytes_FromStringAndSize(<const char *>builder.data, <Py_ssize_t>builder.used)


cdef bint is_as_it_was(File file, int64_t size) noexcept nogil:
    """Whether a file has this size still. That costs a third of what fstat() does, which commits would feel;
    no file is put in the place of another without a claim, which makes the lock file longer."""
    return gate(READS) == 0 and end_of_file(file.fd) == size


cdef int64_t append_under_lock(
    File locks, int64_t locks_size, File file, int64_t end, const uint8_t *p, int64_t size, int *error
) noexcept nogil:
    """How many bytes it appended under the lock of `file`, if both files are as they were; -1 if it did
    nothing. Where not all could be written, `error` says why, and it is cut off again unless that fails as
    well.

    A flock costs two thirds of what a lock on a byte does, which commits would feel."""
    cdef int64_t done = -1
    if flock(file.fd, LOCK_EX | LOCK_NB) == 0:
        if is_as_it_was(locks, locks_size) and is_as_it_was(file, end):
            done = file.pwrite(p, size, end)
            if done < size:
                error[0] = errno
                file.resize(end)
        flock(file.fd, LOCK_UN)
    return done


cdef int raise_error(File file, int error) except -1:
    (&errno)[0] = error
    return file.raise_errno()


def append_if_same(
    File locks not None, int64_t locks_size, File file not None, int64_t end, bytes data not None
):
    """Appends `data` to `file` under its lock, if `locks` has `locks_size` bytes and `file` has `end`.

    True if it did; False if nothing was written: somebody has the lock now, or has changed one of the files.
    OSError: what was written is cut off again, unless that fails as well."""
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef int64_t size = PyBytes_GET_SIZE(data), done
    cdef int error = 0
    with nogil:
        done = append_under_lock(locks, locks_size, file, end, p, size, &error)
    if error:
        raise_error(file, error)
    return done == size


# ---- commits that change nothing but the offset ------------------------------------------------------------

cdef class CommitLocks:
    """The lock file of a directory, in C. LockFile says what the fields are."""

    cdef public Mutex mutex
    cdef public File file


cdef class CommitContent:
    """What was read of a file of commits so far, in C: the entries, the end in bytes, the offset of the next
    batch.

    The last commit that changed nothing but an offset is kept as numbers, until somebody asks for the
    entries."""

    cdef dict known
    cdef object latest         # whose entry is older than the numbers; None: nobody's
    cdef object latest_epoch
    cdef int64_t latest_offset
    cdef int64_t latest_time
    cdef int64_t latest_member
    cdef public int64_t end
    cdef public int64_t next_offset
    cdef public int64_t synced

    @property
    def entries(self):
        self.settle()
        return self.known

    @entries.setter
    def entries(self, dict entries not None):
        self.known, self.latest = entries, None

    cdef int settle(self) except -1:
        """Makes the numbers an entry, in the place of one. The collector may run, and others commit
        meanwhile."""
        cdef int64_t offset
        while self.latest is not None:
            latest, offset = self.latest, self.latest_offset
            entry = self.known[latest]
            commit = entry[0]
            position = position_like(commit[0], offset, self.latest_epoch, self.latest_time)
            entry = tuple_like(entry, tuple_like(commit, position, commit[1]), self.latest_member)
            if self.latest is latest and self.latest_offset == offset:
                self.known[latest] = entry
                self.latest = None
        return 0


cdef class CommitFile:
    """A file of commits as this process last saw it, in C. GroupFile says what the fields are."""

    cdef public int64_t member
    cdef public object look
    cdef public CommitLocks lock_file
    cdef public int64_t _claims
    cdef public File _file
    cdef public File _doubtful
    cdef public CommitContent _content
    cdef public File _mine
    cdef public int64_t _mine_end
    cdef public tuple _synced


cdef int set_item(object items, Py_ssize_t i, object item) except -1:
    Py_INCREF(item)  # put_item takes it over
    put_item(items, i, item)
    return 0


cdef object tuple_like(object known, object first, object second):
    """A tuple of the type of `known`, of two items. Without the Python code that is in a NamedTuple's
    __new__."""
    made = allocated(type(known), 2)
    set_item(made, 0, first)
    set_item(made, 1, second)
    return made


cdef object position_like(object known, int64_t offset, object epoch, int64_t now):
    """A position of the type of `known`, without metadata."""
    made = allocated(type(known), 4)
    set_item(made, 0, offset)
    set_item(made, 1, epoch)
    set_item(made, 2, "")
    set_item(made, 3, now)
    return made


cdef class OffsetCommitter:
    """What a cursor knows of its last commit, so that one that is not to be durable needs only a few system
    calls.

    The class that derives from it says by `_prepare` what a commit looks like, once it has looked at all:
    those that follow differ by offset and time, as long as nothing else has changed and the look is fresh."""

    cdef public object _view
    cdef public CommitFile _file
    cdef public object _look
    cdef public double _fresh_until
    cdef public int64_t _floor
    cdef public bint _closed
    cdef object committed      # the last position, or the one before that which is in numbers
    cdef int64_t newest        # its offset; -1: it is no newer
    cdef int64_t newest_time
    cdef object tp
    cdef object epochs        # of the view, when it was prepared
    cdef object loaded        # what the view showed then, or later with the same epochs; None: nothing yet
    cdef int64_t loaded_end   # its end
    cdef object epoch
    cdef int64_t epoch_start
    cdef bytearray batch
    cdef int64_t value_at
    cdef object trying        # the commit that was being written when it failed

    def __cinit__(self, *args, **options):
        self._closed = True
        self.newest = -1

    cdef object last_committed(self):
        """The last position, whole. The collector may run, and others commit meanwhile."""
        cdef int64_t newest
        while self.newest >= 0:
            newest = self.newest
            position = position_like(self.committed, newest, self.epoch, self.newest_time)
            if self.newest == newest:
                self.committed, self.newest = position, -1
        return self.committed

    @property
    def _committed(self):
        return self.last_committed()

    @_committed.setter
    def _committed(self, position):
        self.committed, self.newest = position, -1

    def _prepare(self, tp, epochs, epoch, int64_t epoch_start, bytes key not None, bytes topic_id not None):
        """Commits that follow are of this partition, of offsets above `epoch_start`, which is where the
        view's last epoch starts; None for `tp`: they are to be made by `_commit`."""
        cdef bytes value
        self.batch = None
        self.last_committed()  # which is of the epoch before
        self.loaded = None
        if tp is not None:
            value = encode_value(0, epoch, b"", 0, topic_id)
            self.tp, self.epochs, self.epoch, self.epoch_start = tp, epochs, epoch, epoch_start
            batch = bytearray(encode_commits(self._file.member, 0, 0, [(key, value)], 0))
            self.value_at = len(batch) - 1 - len(value)
            self.batch = batch

    def _commit(self, record, durable, metadata):
        """Commits in whatever case."""
        raise NotImplementedError

    def _find_out(self, commit):
        """Whether a commit that was broken off is there nevertheless."""
        raise NotImplementedError

    def commit(self, record=None, *, durable=True, metadata=""):
        """Writes down that the records up to this one are done: the next cursor of the group begins behind
        it.

        record: a Record, or the offset of one. Default: the last one that was given out. durable: True
        returns when the position is safe from a power cut. False is faster: it is safe if only the process
        dies, and from a power cut after the next durable commit or close(). metadata: a text to keep with the
        position, of at most 4096 bytes.

        ValueError if it would move the position backwards, which only seek() allows; OffsetOutOfRangeError
        for a record behind the end of the log. CursorLockedError if the lock was lost, LogClosedError if the
        cursor is closed or belongs to the parent of this process, LogNotFoundError if the partition was
        deleted. OSError: the position is the old one or the new one.
        """
        cdef int64_t offset = -1
        cdef int overflow = 0
        if durable is False and self.batch is not None and type(metadata) is str and not metadata:
            if type(record) is int:
                offset = as_int64(record, &overflow)
            elif type(record) is Record:
                offset = as_int64((<Record>record).offset, &overflow)
            if 0 <= offset < INT64_MAX and self.commit_soon(offset + 1):
                return
        self._commit(record, durable, metadata)

    cdef bint commit_soon(self, int64_t offset) except -1:
        """Commits, if nothing has changed since it was last looked at. False if it cannot: then nothing was
        done."""
        cdef CommitFile file = self._file
        cdef Mutex mutex
        view = self._view
        loaded = view._loaded
        if loaded is not self.loaded:
            if loaded.leader_epochs is not self.epochs:
                return False
            self.loaded_end = loaded.log_end_offset
            self.loaded = loaded
        if offset <= self.epoch_start or offset > self.loaded_end or view._closed:
            return False
        if monotonic_ns() * 1e-9 >= self._fresh_until:
            return False
        mutex = file.lock_file.mutex
        if not mutex.acquire_now():
            return False
        broken = None
        try:
            try:
                return self.commit_now(file, offset)
            except BaseException:
                broken, self.trying = self.trying, None
                raise
            finally:
                mutex.leave()
        except BaseException:
            if broken is not None:
                self._find_out(broken)
            raise

    cdef bint commit_now(self, CommitFile file, int64_t offset) except -1:
        """The same, with the mutex held."""
        cdef CommitContent content = file._content
        cdef File there = file._file
        cdef bytearray batch = self.batch
        cdef uint8_t *p
        cdef uint8_t *value
        cdef int64_t size, done, now, synced = content.synced
        cdef timespec t
        cdef int error = 0
        cdef File locks = file.lock_file.file
        cdef int64_t before = self.newest
        if (
            self._closed or offset < self._floor or self._look is not file.look or there is None or locks is None
            or there is file._doubtful or content.end > LONGEST or batch is None or self.committed is None
        ):
            return False
        if before < 0:
            before = self.committed[0]
        if before == offset or (content.latest is not self.tp and self.tp not in content.known):
            return False
        if content.latest is not self.tp:
            content.settle()
        clock_gettime(CLOCK_REALTIME, &t)
        now = <int64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000
        p = <uint8_t *>PyByteArray_AS_STRING(batch)
        size = PyByteArray_GET_SIZE(batch)
        value = p + self.value_at
        ks_store_u64(p, <uint64_t>max(content.next_offset, <int64_t>0))
        ks_store_u64(p + KS_BASE_TIMESTAMP_AT, <uint64_t>now)
        ks_store_u64(p + KS_MAX_TIMESTAMP_AT, <uint64_t>now)
        known, upto = file._synced  # as GroupFile has it
        if known is there:
            synced = max(synced, <int64_t>upto)
        ks_store_u32(p + KS_BASE_SEQUENCE_AT, <uint32_t>min(synced + 1, <int64_t>INT32_MAX))
        ks_store_u64(value + OFFSET_AT, <uint64_t>offset)
        ks_store_u64(value + VALUE_HEAD + 1, <uint64_t>now)
        ks_put_crc(p, size)
        with nogil:
            done = append_under_lock(locks, file._claims, there, content.end, p, size, &error)
        if error:
            commit = content.entries[self.tp][0]
            self.trying = tuple_like(commit, position_like(commit[0], offset, self.epoch, now), commit[1])
            raise_error(there, error)
        if done != size:
            return False
        # numbers alone, so none of it fails
        content.latest, content.latest_epoch, content.latest_member = self.tp, self.epoch, file.member
        content.latest_offset, content.latest_time = offset, now
        content.next_offset = max(content.next_offset, <int64_t>0) + 1
        content.end += size
        file._mine, file._mine_end = there, content.end
        self.newest, self.newest_time, self._floor = offset, now, offset
        return True
