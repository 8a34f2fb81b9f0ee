"""Worker threads: what kstore does beside the calls of the program, when it is due."""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading
import weakref
from _queue import Empty, SimpleQueue
from heapq import heappop, heappush
from itertools import count
from time import monotonic, sleep

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_IDLE = 1.0  # s: a thread that has worked waits so long for more before it ends
_BEGINS = 10.0  # s: a thread that has not begun by then ended without a word, for lack of memory
_LONGEST = 1e6  # s: of one wait
_workers: weakref.WeakSet[Worker] = weakref.WeakSet()
_at_work: dict[int, Worker] = {}  # by thread


def _system(name: str) -> Any:
    """A function of the module _thread as the system has it, though gevent may have replaced it."""
    patching = sys.modules.get("gevent.monkey")
    return getattr(_thread, name) if patching is None else patching.get_original("_thread", name)


def allocate_lock() -> _thread.LockType:
    """A lock for threads of begin_thread()."""
    lock: _thread.LockType = _system("allocate_lock")()
    return lock


def begin_thread(name: str, run: Callable[[], None]) -> None:
    """Begins a daemon thread. RuntimeError, MemoryError: there is none.

    Thread.start() takes locks, which an exception of a signal handler would leave locked. So it is called by
    another thread, in which no handler runs. Where gevent has replaced threads by greenlets, it is a thread
    without a Thread object: `run` waits in C, which would stop all greenlets of its thread.
    """
    if sys.is_finalizing():
        raise RuntimeError("can't start new thread at interpreter shutdown")
    is_told, has_begun = allocate_lock(), False
    is_told.acquire()

    def target() -> None:
        nonlocal has_begun
        has_begun = True
        is_told.release()
        run()

    def start() -> None:
        nonlocal has_begun
        try:
            threading.Thread(target=run, name=name, daemon=True).start()
            has_begun = True
        finally:
            is_told.release()

    start_new_thread = _system("start_new_thread")
    start_new_thread(start if start_new_thread is _thread.start_new_thread else target, ())
    if not is_told.acquire(timeout=_BEGINS) or not has_begun:
        raise MemoryError(f"the thread {name} could not begin")


class Worker:
    """One thread that runs jobs when they are due. It begins with the first job, and ends when none is left.

    A job is asked for by one call of C, `put`, which needs no lock of Python's: signal handlers and
    finalizers may interrupt it, and ask for jobs. Only the thread touches the table of what is due.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin_anew()
        _workers.add(self)

    def _begin_anew(self) -> None:
        self._asked: SimpleQueue[tuple[Job | None, float]] = SimpleQueue()
        self._due: dict[Job, float] = {}
        self._heap: list[tuple[float, int, Job]] = []  # those of _due, and others that are passed over
        self._numbers = count()
        self._owner: dict[str, object] = {}  # the thread that works, if any: it enters itself in one step
        self._running: Job | None = None
        self._after: list[Callable[[], None]] = []
        self._is_ended = False

    def ask(self, job: Job | None, due: float) -> None:
        """Has a job done at that time of the monotonic clock. RuntimeError, MemoryError: there is no
        thread."""
        self._asked.put((job, due))
        if not (self._owner or self._is_ended or sys.is_finalizing()):
            begin_thread(self._name, self._run)

    def _run(self) -> None:
        me = object()
        while self._owner.setdefault("", me) is me:
            try:
                _at_work[_thread.get_ident()] = self
                self._work()
            finally:
                if not self._due:
                    self._heap.clear()
                _at_work.pop(_thread.get_ident(), None)
                self._owner.clear()
            # Another thread may have asked for a job before _owner was cleared: it began no thread.
            if self._is_ended or self._asked.empty():
                return

    def _work(self) -> None:
        wait = _IDLE
        while not self._is_ended:
            try:
                job, at = self._asked.get(timeout=wait)
            except Empty:
                if not self._due:
                    return
                at, _, job = self._heap[0]
                if at <= monotonic():
                    heappop(self._heap)
                    if self._due.get(job) == at:  # else it was stopped, or asked for at another time
                        del self._due[job]
                        self._do(job)
            else:
                if job is not None and job.is_stopped:
                    self._due.pop(job, None)
                    if not self._due and self._asked.empty():
                        return
                elif job is not None:
                    self._enter(job, at)
            del job  # it holds what it works for
            wait = max(0.0, min(self._heap[0][0] - monotonic(), _LONGEST)) if self._due else _IDLE

    def _enter(self, job: Job, at: float) -> None:
        heappush(self._heap, (at, next(self._numbers), job))
        self._due[job] = at

    def _do(self, job: Job) -> None:
        try:
            self._running = job
            again = None if job.is_stopped or self._is_ended else job.work()
            self._running = None
            if again is not None:
                self._enter(job, monotonic() + again)
            while self._after:
                self._after.pop()()
        except BaseException:  # noqa: BLE001 - a job must not end those of others
            threading.excepthook(threading.ExceptHookArgs([*sys.exc_info(), threading.current_thread()]))
        finally:
            self._running = None

    def stop(self, job: Job) -> None:
        """Lets the thread forget a job that is stopped, and end if that was the last one."""
        if self._owner:
            self._asked.put((job, 0.0))

    def is_here(self) -> bool:
        """Whether this is a call from within a job."""
        return self._running is not None and self.is_this_thread()

    def is_this_thread(self) -> bool:
        """Whether this is a call by its thread, in a job or after one."""
        return _at_work.get(_thread.get_ident()) is self

    @property
    def is_ended(self) -> bool:
        """Whether it begins no more jobs, because the interpreter ends."""
        return self._is_ended

    def is_at_work(self) -> bool:
        """Whether there is a thread."""
        return bool(self._owner) and not self._is_ended

    def wait_for(self, job: Job) -> None:
        """Waits as long as this job runs. Not within the thread itself."""
        while self._running is job and not self.is_here():
            sleep(0.001)

    def end(self) -> None:
        """Begins no more jobs, stops the one that runs, and waits for its end."""
        self._is_ended = True
        self._asked.put((None, 0.0))
        job = self._running
        if job is not None:
            job.is_stopped = True
            self.wait_for(job)


class Job:
    """What a worker does: `work` returns in how many seconds it is due again, or None."""

    def __init__(self, worker: Worker, work: Callable[[], float | None]) -> None:
        self._worker = worker
        self.work = work
        self.is_stopped = False

    def ask(self, seconds: float = 0.0) -> None:
        """Has it done in so many seconds, and not at another time that was asked for before. RuntimeError,
        MemoryError: there is no thread."""
        self._worker.ask(self, monotonic() + seconds)

    def stop(self, *, wait: bool = True) -> None:
        """It is not done any more when this returns. `wait`: a finalizer must not, as it runs anywhere."""
        self.is_stopped = True
        self._worker.stop(self)
        if wait:
            self._worker.wait_for(self)


# Three: a record that lingers for 5 ms must not wait for a sync, nor a sync for the reading of whole logs.
APPENDS = Worker("kstore-appends")  # appends that were gathered
MAINTENANCE = Worker("kstore-maintenance")  # syncs, deletes, rolls, writes checkpoints
CLEANING = Worker("kstore-cleaning")  # compacts, makes .keys files: as with Kafka, one log after the other


def after_job(call: Callable[[], None]) -> bool:
    """Within a job: makes a call once the job has ended, so that no `wait_for` lasts longer. Else False."""
    worker = _at_work.get(_thread.get_ident())
    if worker is None or not worker.is_here():
        return False
    worker._after.append(call)
    return True


def _end_all() -> None:
    """Before the interpreter ends: a thread that it stopped with a lock would keep every other from it."""
    for worker in list(_workers):
        worker.end()


def _forked() -> None:
    """In a child of fork there is no thread, and what was to be done is the parent's."""
    _at_work.clear()
    for worker in list(_workers):
        worker._begin_anew()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_forked)
