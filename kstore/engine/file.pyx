"""One open file. Reads are by position only, so threads and forks share it without harm."""

import errno as _errno

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cython cimport final
from libc.errno cimport EINTR, ENOENT, errno
from libc.stdint cimport int64_t, uint8_t
from posix.fcntl cimport O_RDONLY, open as c_open
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close as c_close

cdef extern from "<fcntl.h>" nogil:
    int O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    ssize_t c_pread "pread"(int fd, void *buf, size_t count, int64_t offset)

cdef enum:
    MOST = 1 << 30  # bytes of one system call: Linux stops a little below 2 GiB


@final
cdef class File:
    """Owns a file descriptor for reading; it is closed when the last reference goes, never under a reader.

    A name that has just been given the suffix `.deleted` (a running broker's retention does that before it unlinks)
    is found under that one. Thread-safe.
    """

    def __cinit__(self, str path not None):
        self.fd = -1
        self.path = path
        cdef bytes name = path.encode("utf-8", "surrogateescape")
        cdef const char *raw = name
        with nogil:
            self.fd = c_open(raw, O_RDONLY | O_CLOEXEC)
        if self.fd < 0 and errno == ENOENT:
            name += b".deleted"
            raw = name
            self.fd = c_open(raw, O_RDONLY | O_CLOEXEC)
            if self.fd < 0:
                raise FileNotFoundError(_errno.ENOENT, "No such file or directory", path)
        if self.fd < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, path)

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)

    cdef int64_t pread(self, uint8_t *into, int64_t size, int64_t position) noexcept nogil:
        """Reads until `size` bytes or the end of the file; -1 with errno set on failure."""
        cdef int64_t done = 0
        cdef ssize_t n
        while done < size:
            n = c_pread(self.fd, into + done, <size_t>min(size - done, <int64_t>MOST), position + done)
            if n < 0:
                if errno == EINTR:
                    continue
                return -1
            if n == 0:
                break
            done += n
        return done

    cdef int64_t read_into(self, uint8_t *into, int64_t size, int64_t position) except -1:
        """The same, raising OSError; the GIL is given up only for reads that take long."""
        cdef int64_t done
        if size < 32768:
            done = self.pread(into, size, position)
        else:
            with nogil:
                done = self.pread(into, size, position)
        if done < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, self.path)
        return done

    cdef int64_t length(self) except -1:
        cdef struct_stat st
        if fstat(self.fd, &st) < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, self.path)
        return <int64_t>st.st_size

    def size(self):
        """The length of the file now, in bytes."""
        return self.length()

    def mtime_ms(self):
        """Time of the last change of its content, in milliseconds."""
        cdef struct_stat st
        if fstat(self.fd, &st) < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, self.path)
        return <int64_t>st.st_mtime * 1000 + <int64_t>(st.st_mtim.tv_nsec // 1000000)

    def read(self, int64_t position, int64_t size):
        """A fresh copy of at most `size` bytes from `position`; fewer at the end of the file."""
        if position < 0 or size < 0:
            raise ValueError(f"position {position} and size {size} must not be negative")
        size = max(<int64_t>0, min(size, self.length() - position))
        cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
        cdef int64_t done = self.read_into(<uint8_t *>PyBytes_AS_STRING(data), size, position)
        return data if done == size else data[:done]

    def fileno(self):
        """The descriptor; it stays open as long as this object lives."""
        return self.fd

    def __repr__(self):
        return f"File({self.path!r})"
