"""System calls of kstore that fail when a test wants it."""

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
    """Within this block the `nth` system call that kstore makes on a file (from 1 on) fails with this errno.

    how: "error"; "half", so that a write first lands in part; "kill", so that the process dies at that call
    by SIGKILL; "kill_half", so that it dies with the write half done. The calls of all threads count, those
    of kstore's own in the background too, unless `this_thread` is True. One block at a time in a process.
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
    """How many system calls kstore makes on files while `work` is called, in all threads: what `failing`
    counts."""
    fail_call(0)
    work()
    return calls_made()
