"""A lock for Python code that nothing leaves locked: neither a signal, nor the collection of garbage, nor a fork."""

from collections import deque

from cpython.pythread cimport (
    NOWAIT_LOCK,
    WAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
    PyThread_type_lock,
)
from cython cimport final, no_gc_clear

from kstore.errors import ReentrantCallError


@final
@no_gc_clear
cdef class Mutex:
    """`with guard:` is for one thread at a time. What must run under it may also be left to `later`.

    A signal handler, and the collection of garbage, may run Python code in a thread that is in here. To wait for this
    very thread would take for ever, and to go in beside it would find things half done: ReentrantCallError. What a
    finalizer has to do it leaves to `later`: that runs when the thread is through.

    Entering and leaving are C code, which no signal interrupts: the lock is never left locked.
    """

    cdef PyThread_type_lock lock
    cdef unsigned long owner   # the thread inside; 0 for none
    cdef object waiting

    def __cinit__(self):
        self.waiting = deque()
        self.lock = PyThread_allocate_lock()
        if self.lock is NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.lock is not NULL:
            PyThread_free_lock(self.lock)

    cdef int acquire(self) except -1:
        if PyThread_acquire_lock(self.lock, NOWAIT_LOCK) == 0:
            if self.owner == PyThread_get_thread_ident():
                raise ReentrantCallError("called by the thread that is inside, from a signal handler or a finalizer")
            with nogil:
                PyThread_acquire_lock(self.lock, WAIT_LOCK)
        self.owner = PyThread_get_thread_ident()
        return 0

    cdef int run_waiting(self) except -1:
        while self.waiting:
            call = self.waiting.popleft()
            try:
                call()
            except OSError:
                pass
        return 0

    def later(self, call, /):
        """Calls it under the guard: now, or when this thread, interrupted in here, leaves; then OSErrors are lost."""
        if self.owner == PyThread_get_thread_ident():
            self.waiting.append(call)
        else:
            with self:
                call()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *error):
        while True:
            try:
                self.run_waiting()
            finally:
                self.owner = 0
                PyThread_release_lock(self.lock)
            if not self.waiting:
                return
            self.acquire()  # it came after the last look
