"""How many examples hypothesis tries: EFFORT times the count, chosen by SEED."""

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import seed, settings

from tests.helpers.effort import SEED, times

Test = TypeVar("Test", bound=Callable[..., Any])


def examples(count: int) -> Callable[[Test], Test]:
    """Decorates a test of hypothesis: `count` examples at EFFORT=1, of any duration."""

    def decorate(test: Test) -> Test:
        return seed(SEED)(settings(max_examples=times(count))(test))

    return decorate
