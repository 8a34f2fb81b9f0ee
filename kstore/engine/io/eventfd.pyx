"""Something to wait on, with a descriptor, that another thread rings."""

import os

from cython cimport final, no_gc
from libc.stdint cimport uint64_t
from posix.unistd cimport close as c_close, read as c_read, write as c_write


@no_gc  # it refers to nothing
@final
cdef class EventFd:
    """Readable once it was rung, until it is cleared. Its descriptor goes with the last reference, so whoever still
    means to ring it never reaches a stranger's. Ringing is C code, which no signal interrupts."""

    cdef int fd

    def __cinit__(self):
        self.fd = -1
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)

    def fileno(self):
        """The descriptor to wait on."""
        return self.fd

    def ring(self):
        """Wakes who waits, now or later."""
        cdef uint64_t one = 1
        c_write(self.fd, &one, sizeof(one))  # fails only where it has been rung 2^64 times

    def clear(self):
        """Forgets that it was rung."""
        cdef uint64_t count
        c_read(self.fd, &count, sizeof(count))  # fails only where it was not rung
