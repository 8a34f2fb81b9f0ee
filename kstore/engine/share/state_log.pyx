# cython: binding=False
"""Small files of batches that several processes append to, under a lock on a file beside."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cython cimport final, no_gc
from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore.engine.io.faults cimport gate
from kstore.engine.io.file cimport File
from kstore.engine.io.synchronization cimport Mutex
from kstore.engine.record.batch_builder cimport BatchBuilder, ks_fields


cdef extern from "<sys/file.h>" nogil:
    enum:
        LOCK_EX
        LOCK_UN
    int flock(int fd, int operation)


cdef extern from "<sys/stat.h>" nogil:
    """
    /* Not fstat: a file system that is asked for the times of a file dates each later write exactly. */
    static int ks_links_and_size(int fd, unsigned *links, long long *size)
    {
        struct statx st;
        if (statx(fd, "", AT_EMPTY_PATH, STATX_NLINK | STATX_SIZE, &st) < 0)
            return -1;
        *links = st.stx_nlink;
        *size = (long long)st.stx_size;
        return 0;
    }
    """
    int ks_links_and_size(int fd, unsigned *links, long long *size)


cdef enum:
    PROBE = 61  # bytes of the header of a batch

UNCHANGED, GROWN, REPLACED = 0, 1, 2


@final
@no_gc  # it refers to a file and a mutex only
cdef class FileLock:
    """`with lock:` is for one thread of one process at a time. The system releases the lock of a process that
    dies. Entering and leaving are C code, which no signal interrupts; a signal handler that raises ends the
    waiting. OSError. ReentrantCallError, as for a Mutex."""

    cdef readonly File file
    cdef Mutex mutex

    def __cinit__(self, str path not None):
        self.file = File(path, "a")
        self.mutex = Mutex()

    def __enter__(self):
        cdef int status = -1
        self.mutex.acquire()
        try:
            while True:
                with nogil:
                    status = flock(self.file.fd, LOCK_EX)
                if status == 0:
                    return
                if errno != EINTR:
                    self.file.raise_errno()
                PyErr_CheckSignals()
        finally:
            if status < 0:
                self.mutex.leave()

    def __exit__(self, kind, error, trace):
        flock(self.file.fd, LOCK_UN)
        self.mutex.leave()


def look_behind(File file not None, int64_t position):
    """Whether a file has other bytes than zeros from a position on, GROWN; or REPLACED if it has no name any
    more, because another file was renamed over it. Else UNCHANGED. OSError."""
    cdef uint8_t probe[PROBE]
    cdef unsigned links = 0
    cdef long long length = 0
    cdef int64_t size, i
    if gate(0) or ks_links_and_size(file.fd, &links, &length) < 0:
        file.raise_errno()
    if links == 0:
        return REPLACED
    if length <= position:
        return UNCHANGED
    size = file.pread(probe, PROBE, position)
    if size < 0:
        file.raise_errno()
    for i in range(size):
        if probe[i] != 0:
            return GROWN
    return UNCHANGED


def write_batch(
    File file not None,
    int64_t position,
    bytes key not None,
    bytes value not None,
    int64_t timestamp,
    int64_t base_offset,
    int64_t producer_id,
    int32_t base_sequence,
):
    """Writes a batch of one record at a position, and returns its size. OSError."""
    cdef BatchBuilder builder = BatchBuilder.__new__(BatchBuilder)
    cdef ks_fields f
    cdef int status
    cdef int64_t done
    f.key, f.key_size = <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)
    f.value, f.value_size = <const uint8_t *>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
    f.headers, f.headers_size = <const uint8_t *>b"\0", 1
    status = builder.begin(base_offset, -1, 0)
    if status == 0:
        builder.batch.producer_id = producer_id
        builder.batch.producer_epoch = 0
        builder.batch.base_sequence = base_sequence
        status = builder.add(timestamp, &f)
    if status < 0:
        builder.raise_status(status, "a record of a state is too large", f.value_size, 0)
    builder.finish()
    with nogil:
        done = file.pwrite(builder.data, builder.used, position)
    if done < builder.used:
        file.raise_errno()
    return builder.used
