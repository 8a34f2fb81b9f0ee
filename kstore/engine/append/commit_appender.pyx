# cython: binding=False
"""Commits of cursors: made a batch, and appended to a file to which other processes append in turn."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from posix.stat cimport fstat, struct_stat

from kstore.engine.io.file cimport File, gate
from kstore.engine.record.batch_builder cimport BatchBuilder, ks_fields
from libkstore.format cimport ks_store_u16, ks_store_u32, ks_store_u64

cdef const uint8_t *NO_HEADERS = <const uint8_t *>b"\0"

cdef extern from *:
    """
    #include <fcntl.h>
    #include <unistd.h>
    static int ks_lock_byte(int fd, short kind, int64_t at) {
        struct flock wanted = {0};
        wanted.l_type = kind;
        wanted.l_whence = SEEK_SET;
        wanted.l_start = at;
        wanted.l_len = 1;
        return fcntl(fd, F_SETLK, &wanted);
    }
    """
    enum:
        F_WRLCK
        F_UNLCK
    int ks_lock_byte(int fd, short kind, int64_t at) nogil

cdef enum:
    READS = 0      # for the gate: it looks at something
    VALUE_VERSION = 4
    VALUE_HEAD = 14    # bytes: version, offset, leader epoch
    VALUE_TAIL = 9     # time, number of tagged fields
    ID_SIZE = 16


def encode_value(
    int64_t offset, int32_t leader_epoch, bytes metadata not None, int64_t timestamp, bytes topic_id not None
):
    """An OffsetCommitValue of version 4; without a topic id, if that is empty. ValueError for what is too long."""
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
    """A batch of (key, value) pairs of bytes, the value None for a tombstone, all with one timestamp. `member` is its
    producer, `sequence` its base sequence."""
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
    """Whether a file has this size still, and a name."""
    cdef struct_stat st
    return gate(READS) == 0 and fstat(file.fd, &st) == 0 and st.st_nlink > 0 and st.st_size == size


def append_if_same(
    File locks not None, int64_t byte, int64_t locks_size, File file not None, int64_t end, bytes data not None
):
    """Appends `data` under the lock on a byte of `locks`, if `locks` has `locks_size` bytes and `file` has `end`.

    True if it did; False if nothing was written: somebody has the lock now, or has changed one of the files. OSError:
    what was written is cut off again, unless that fails as well."""
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef int64_t size = PyBytes_GET_SIZE(data), done = -1
    cdef int error = 0
    with nogil:
        if ks_lock_byte(locks.fd, F_WRLCK, byte) == 0:
            if is_as_it_was(locks, locks_size) and is_as_it_was(file, end):
                done = file.pwrite(p, size, end)
                if done < size:
                    error = errno
                    file.resize(end)
            ks_lock_byte(locks.fd, F_UNLCK, byte)
    if error:
        (&errno)[0] = error
        file.raise_errno()
    return done == size
