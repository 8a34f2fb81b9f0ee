# cython: binding=False
"""A lock for Python code that nothing leaves locked: neither a signal, nor the collection of garbage, nor a
fork."""

from collections import deque

from cython cimport final, no_gc_clear

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
