"""How much work a call is, without looking at a clock; and which of many system calls are to fail."""

import itertools
import os
import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType

STEP = int(os.environ.get("KSTORE_CALL_STEP", "1"))  # of those that are tried, only each STEPth


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


def some_calls(total: int, share: int, case: object) -> list[int]:
    """Of 1 .. total one in each run of `share`, others for another case; with KSTORE_CALLS=all every one, with KSTORE_CALL_STEP
    fewer."""
    if os.environ.get("KSTORE_CALLS") == "all":
        return list(range(1, total + 1))
    rng = random.Random(repr(case))
    share *= STEP
    return [min(first + rng.randrange(share), total) for first in range(1, total + 1, share)]


def some_points(share: int, case: object) -> Iterator[int]:
    """The same of points of which nobody knows yet how many there are: 1, ..., without an end."""
    if os.environ.get("KSTORE_CALLS") == "all":
        share = 1
    rng = random.Random(repr(case))
    return (first + rng.randrange(share) for first in itertools.count(1, share))
