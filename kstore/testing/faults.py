"""System calls of kstore that fail on request."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kstore.arguments import choice, integer
from kstore.engine.io.faults import calls_made, fail_call

HOW = ("error", "half", "kill", "kill_half")


@contextmanager
def failing(
    nth: int, error: int = errno.EIO, how: str = "error", *, this_thread: bool = False
) -> Iterator[None]:
    """Let the `nth` system call of kstore on a file (from 1 on) fail with this errno, within a `with` block.

    how: "error"; "half": a write is done in part before it fails; "kill": the process dies at that call by
    SIGKILL; "kill_half": it dies with the write half done. The calls of all threads are counted, also those
    of kstore's background threads, unless `this_thread` is True. A process may have one such block at a time.
    TypeError, ValueError.
    """
    nth = integer("nth", nth, 1)
    error = integer("error", error, 1)
    fail_call(nth, error, choice("how", how, HOW), own=this_thread)
    try:
        yield
    finally:
        fail_call(0)


def count_calls(work: Callable[[], object]) -> int:
    """Call `work` and return the number of system calls that kstore makes on files meanwhile, in all threads,
    as `failing` counts them."""
    fail_call(0)
    work()
    return calls_made()
