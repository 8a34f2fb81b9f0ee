from collections.abc import Callable
from typing import final

@final
class Mutex:
    """`with guard:` is for one thread at a time. What must run under it may also be left to `later`.

    A signal handler, and the collection of garbage, may run Python code in a thread that is in here. To wait for this
    very thread would take for ever, and to go in beside it would find things half done: ReentrantCallError. What a
    finalizer has to do it leaves to `later`: that runs when the thread is through.

    Entering and leaving are C code, which no signal interrupts: the lock is never left locked."""

    def later(self, call: Callable[[], object], /) -> None:
        """Calls it under the guard: now, or when this thread, interrupted in here, leaves; then OSErrors are lost."""
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...
