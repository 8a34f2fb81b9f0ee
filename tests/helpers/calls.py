"""How much work a call is, without measuring time; and operations that end at one of their system calls."""

import errno
import itertools
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NamedTuple

import kstore
from kstore.testing import failing
from tests.helpers.effort import EFFORT, SEED, some

FAILURES = ((errno.EIO, "error"), (errno.ENOSPC, "error"), (errno.EIO, "half"), (errno.ENOSPC, "half"))
WAYS = (*FAILURES, (errno.EIO, "kill"), (errno.EIO, "kill_half"))


def count_calls(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, this thread calls meanwhile."""
    count = 0

    def seen(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


class End(NamedTuple):
    """A system call, counted from 1, and how it ends an operation: as for kstore.testing.failing."""

    nth: int
    error: int
    how: str

    def of(self, work: Callable[[], object]) -> bool:
        """Works until that call fails, or kills the process: then in a child. Whether it ended so."""
        if self.how.startswith("kill"):
            child = os.fork()
            if child == 0:
                try:
                    with failing(*self):
                        work()
                finally:
                    os._exit(0)
            return os.WIFSIGNALED(os.waitpid(child, 0)[1])
        try:
            with failing(*self):
                work()
        except OSError as e:
            assert e.errno == self.error, (SEED, self)  # noqa: PT017 - or another call was the last one
            return True
        except kstore.KstoreError:
            return True  # refused, because a call in the background had failed
        return False


def ends(total: int, count: int, what: object, ways: Sequence[tuple[int, str]] = WAYS) -> list[End]:
    """`count` of the ways in which one of `total` system calls can end an operation, at EFFORT=1."""
    every = [End(nth, error, how) for nth in range(1, total + 1) for error, how in ways]
    return some(every, count, what)


def some_calls(total: int, share: int, case: object) -> list[int]:
    """Of 1 .. total one in each run of `share` at EFFORT=1, and N in each at EFFORT=N."""
    return some(range(1, total + 1), -(-total // share), case)


def some_points(share: int, case: object) -> Iterator[int]:
    """The same of points of which nobody knows yet how many there are: 1, ..., without an end."""
    share = max(share // EFFORT, 1)
    rng = random.Random(f"{SEED} {case!r}")
    return (first + rng.randrange(share) for first in itertools.count(1, share))
