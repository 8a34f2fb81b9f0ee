# cython: binding=False
"""What threads wait for: a lock for Python code that nothing leaves locked, neither a signal, nor the collection
of garbage, nor a fork; inotify, which says that a directory has changed; and an eventfd, by which another thread
asks for something.

The last two have a descriptor that becomes readable.
"""

import os
from collections import deque

from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cython cimport final, no_gc, no_gc_clear
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t, uint64_t
from posix.unistd cimport close as c_close, read as c_read, write as c_write

from kstore.engine.io.faults cimport gate
from kstore.engine.io.file cimport encoded
from kstore.engine.io.owned_lock cimport (
    ks_is_ending,
    ks_owned_lock_acquire,
    ks_owned_lock_destroy,
    ks_owned_lock_init,
    ks_owned_lock_is_mine,
    ks_owned_lock_release,
    ks_owned_lock_try,
)

from kstore.errors import LogFailedError, ReentrantCallError


cdef extern from *:
    """
    static _Thread_local int ks_inner; /* how many inner ones the thread has */
    #define ks_add_inner(count) (ks_inner += (count))
    """
    int ks_add_inner(int count)


ENDING = "the interpreter ends, and has stopped a thread that was at work here"
_INSIDE = (
    "called by the thread that is inside, from a signal handler, a finalizer, or a function that the log calls, "
    "such as its clock, progress or where"
)


cdef bint holds_inner() noexcept:
    """Whether this thread is inside an inner Mutex. Then it must not wait for a lock that is not inner: the
    thread that holds that one may be waiting for the inner one. Only a signal handler or a finalizer comes to
    this."""
    return ks_add_inner(0) > 0


@final
@no_gc_clear
cdef class Mutex:
    """`with guard:` is for one thread at a time. What must run under it may also be left to `later`.

    A signal handler, and the collection of garbage, may run Python code in a thread that is in here. To wait
    for this very thread would take for ever, and to go in beside it would find things half done:
    ReentrantCallError. What a finalizer has to do it leaves to `later`: that runs when the thread is through.

    `inner`: code that has it takes no lock behind it but inner ones, so others may wait for it with their
    locks held.

    Entering and leaving are C code, which no signal interrupts: the lock is never left locked.
    """

    def __cinit__(self, *, bint inner=False):
        self.waiting = deque()
        self.inner = inner
        ks_owned_lock_init(&self.lock)

    def __dealloc__(self):
        ks_owned_lock_destroy(&self.lock)

    cdef int acquire(self) except -1:
        if not ks_owned_lock_try(&self.lock):
            if not self.inner and holds_inner() or not ks_owned_lock_acquire(&self.lock):
                raise LogFailedError(ENDING) if ks_is_ending() else ReentrantCallError(_INSIDE)
        ks_add_inner(self.inner)
        return 0

    cdef bint acquire_now(self) noexcept:
        """Whether it was free: then this thread holds it now."""
        if not ks_owned_lock_try(&self.lock):
            return False
        ks_add_inner(self.inner)
        return True

    cdef void release(self) noexcept:
        ks_add_inner(-self.inner)
        ks_owned_lock_release(&self.lock)

    cdef int run_waiting(self) except -1:
        while self.waiting:
            call = self.waiting.popleft()
            try:
                call()
            except OSError:
                pass
        return 0

    def refuse_reentrance(self):
        """ReentrantCallError if this thread is in here."""
        if ks_owned_lock_is_mine(&self.lock):
            raise ReentrantCallError(_INSIDE)

    def later(self, call, /, *, bint wait=False):
        """Calls it under the guard: now, or when the thread that is inside leaves; then OSErrors are lost.

        `wait`: for another thread, so that it was called when this returns. A finalizer must not: it runs
        anywhere."""
        if wait and not ks_owned_lock_is_mine(&self.lock):
            self.acquire()
            try:  # no `with`: Cython's ends the process if there is no memory for a traceback
                call()
            finally:
                self.leave()
            return
        self.waiting.append(call)
        if self.acquire_now():  # else whoever has it looks once more after leaving
            self.leave()

    def __enter__(self):
        self.acquire()

    def __exit__(self, kind, error, trace):  # not *error: there may be no memory for a tuple
        self.leave()

    cdef int leave(self) except -1:
        while True:
            try:
                self.run_waiting()
            finally:
                self.release()
            if not self.waiting:
                return 0
            self.acquire()  # it came after the last look


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
    cdef readonly bint is_set
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
        self.is_set = True
        c_write(self.fd, &one, sizeof(one))  # fails only after it was set 2^64 times

    def clear(self):
        """Forgets that it was set."""
        cdef uint64_t count
        c_read(self.fd, &count, sizeof(count))  # fails only if it was not set
        self.is_set = False  # after it: at worst a set is missing here, and the descriptor is readable
