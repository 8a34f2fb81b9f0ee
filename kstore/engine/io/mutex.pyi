from collections.abc import Callable
from typing import final

__pyx_capi__: dict[str, object]  # what other extension modules cimport

@final
class Mutex:
    """`with guard:` is for one thread at a time. What must run under it may also be left to `later`.

    A signal handler, and the collection of garbage, may run Python code in a thread that is in here. To wait for this
    very thread would take for ever, and to go in beside it would find things half done: ReentrantCallError. What a
    finalizer has to do it leaves to `later`: that runs when the thread is through.

    `inner`: code that has it takes no lock behind it but inner ones, so others may wait for it with their locks held.

    Entering and leaving are C code, which no signal interrupts: the lock is never left locked."""

    def __new__(cls, *, inner: bool = False) -> Mutex: ...
    def later(self, call: Callable[[], object], /, *, wait: bool = False) -> None:
        """Calls it under the guard: now, or when the thread that is inside leaves; then OSErrors are lost.

        `wait`: for another thread, so that it was called when this returns. A finalizer must not: it runs anywhere."""
    def __enter__(self) -> None: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...
