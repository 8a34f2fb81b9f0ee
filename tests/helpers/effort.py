"""How much the tests try: one setting, EFFORT, for all of them.

At EFFORT=1, the default, they try what `make test` has time for. At EFFORT=N a test tries about N times as
much, at most everything there is. SEED, 1 by default, chooses other cases wherever chance chooses them; a
failure names the seed.
"""

import os
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")
EFFORT = max(int(os.environ.get("EFFORT", "1")), 1)
SEED = int(os.environ.get("SEED", "1"))


def times(count: int) -> int:
    """The number of cases for this effort, where EFFORT=1 tries `count`."""
    return count * EFFORT


def some(cases: Sequence[T], count: int, what: object = "") -> list[T]:
    """`count` of the cases at EFFORT=1, N times as many at EFFORT=N: one of each of so many equal runs of
    them.

    The same `what` and SEED choose the same cases.
    """
    wanted = min(times(count), len(cases))
    rng = random.Random(f"{SEED} {what!r}")
    bounds = [len(cases) * part // wanted for part in range(wanted + 1)] if wanted else []
    return [cases[rng.randrange(first, end)] for first, end in pairwise(bounds)]
