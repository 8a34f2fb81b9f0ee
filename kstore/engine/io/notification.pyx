# cython: binding=False
"""What a follower waits on: inotify says that a directory has changed, an eventfd that another thread asks
for it.

Both have a descriptor that becomes readable.
"""

import os

from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cython cimport final, no_gc
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t, uint64_t
from posix.unistd cimport close as c_close, read as c_read, write as c_write

from kstore.engine.io.faults cimport gate
from kstore.engine.io.file cimport encoded


cdef extern from "<sys/inotify.h>":
    enum:
        IN_MODIFY
        IN_MOVED_FROM
        IN_MOVED_TO
        IN_CREATE
        IN_DELETE
        IN_DELETE_SELF
        IN_MOVE_SELF
        IN_ONLYDIR
        IN_NONBLOCK
        IN_CLOEXEC
    struct inotify_event:
        int wd
        uint32_t mask
        uint32_t len
        char name[0]
    int inotify_init1(int flags) nogil
    int inotify_add_watch(int fd, const char *path, uint32_t mask) nogil

MODIFY = IN_MODIFY


@final
cdef class Inotify:
    """Gathers what happens to the names in some directories, and to the content of the files there.

    `fileno` becomes readable when there is something to `take`. OSError where the system has no inotify, or
    no more of it to give.
    """

    cdef int fd

    def __cinit__(self):
        self.fd = -1
        if gate(0) == 0:
            self.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
        if self.fd < 0:
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)

    def add(self, str path not None):
        """Watches a directory; returns the number by which its events are known. OSError."""
        cdef bytes name = encoded(path)
        cdef uint32_t mask = (
            IN_MODIFY | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR
        )
        cdef int number = -1
        if gate(0) == 0:
            number = inotify_add_watch(self.fd, name, mask)
        if number < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, path)
        return number

    def read_events(self):
        """What has happened since: (number of the directory, event bits, name) each; the number is -1 where
        events were lost, the name empty where it concerns the directory itself. Does not wait. OSError."""
        cdef char[4096] buffer  # more stays for the next turn of the loop
        cdef ssize_t size, at
        cdef inotify_event *event
        events = []
        while True:
            size = -1 if gate(0) else c_read(self.fd, buffer, sizeof(buffer))
            if size < 0 and errno == EINTR:
                continue
            if size < 0 and errno != EAGAIN:
                raise OSError(errno, os.strerror(errno))
            if size <= 0:
                return events
            at = 0
            while at < size:
                event = <inotify_event *>(buffer + at)
                name = (<bytes>event.name).decode("utf-8", "surrogateescape") if event.len else ""
                events.append((event.wd, event.mask, name))
                at += <ssize_t>sizeof(inotify_event) + event.len

    def fileno(self):
        """The descriptor to wait on; it stays open as long as this object lives."""
        return self.fd


@no_gc  # it refers to nothing
@final
cdef class EventFd:
    """An event with a descriptor: readable once it was set, until it is cleared. The descriptor is closed
    with the last reference, so a late `set` never reaches another file. `set` is C code, which no signal
    interrupts."""

    cdef int fd
    cdef object __weakref__

    def __cinit__(self):
        self.fd = -1
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)

    def fileno(self):
        """The descriptor to wait on."""
        return self.fd

    def set(self):
        """Wakes the thread that waits, now or later."""
        cdef uint64_t one = 1
        c_write(self.fd, &one, sizeof(one))  # fails only after it was set 2^64 times

    def clear(self):
        """Forgets that it was set."""
        cdef uint64_t count
        c_read(self.fd, &count, sizeof(count))  # fails only if it was not set
