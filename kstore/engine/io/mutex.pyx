# cython: binding=False
"""A lock for Python code that nothing leaves locked: neither a signal, nor the collection of garbage, nor a fork."""

from collections import deque

from cython cimport final, no_gc_clear

from kstore.engine.io.owned_lock cimport (
    ks_owned_lock,
    ks_owned_lock_acquire,
    ks_owned_lock_destroy,
    ks_owned_lock_init,
    ks_owned_lock_is_mine,
    ks_owned_lock_release,
)

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

    cdef ks_owned_lock lock
    cdef object waiting

    def __cinit__(self):
        self.waiting = deque()
        ks_owned_lock_init(&self.lock)

    def __dealloc__(self):
        ks_owned_lock_destroy(&self.lock)

    cdef int acquire(self) except -1:
        if not ks_owned_lock_acquire(&self.lock):
            raise ReentrantCallError("called by the thread that is inside, from a signal handler or a finalizer")
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
        if ks_owned_lock_is_mine(&self.lock):
            self.waiting.append(call)
        else:
            self.acquire()
            try:  # no `with`: Cython's ends the process if there is no memory for a traceback
                call()
            finally:
                self.leave()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *error):
        self.leave()

    cdef int leave(self) except -1:
        while True:
            try:
                self.run_waiting()
            finally:
                ks_owned_lock_release(&self.lock)
            if not self.waiting:
                return 0
            self.acquire()  # it came after the last look
