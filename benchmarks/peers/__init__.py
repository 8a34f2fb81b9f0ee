"""Contestants: whatever does the same work on the same data and says how long it took."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Generic, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
SELF_CHECKED = -1  # a checksum that others cannot have: the contestant looks at its own work afterwards


class Sample(NamedTuple):
    """One turn: its time, how many units of work were done, and a number that only the right work gives."""

    ns: int
    units: int
    checksum: int


class Contestant(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def warm_up(self) -> float:
        """Seconds of turns that do not count."""

    def turn(self, *args: int) -> Sample: ...


@dataclass(frozen=True)
class Missing:
    """A contestant that this machine does not have. It is named in the report, and the rest goes on."""

    name: str
    reason: str


@dataclass(frozen=True)
class InProcess(Generic[T]):
    """Work done in this interpreter. `prepare` and `clear` are not counted; `work` gives (units,
    checksum)."""

    name: str
    prepare: Callable[..., T]
    work: Callable[[T], tuple[int, int]]
    warm_up: float = 0.3
    clear: Callable[[T], None] = lambda given: None

    def timed(self, given: T) -> Sample:
        start = perf_counter_ns()
        units, checksum = self.work(given)
        return Sample(perf_counter_ns() - start, units, checksum)

    def turn(self, *args: int) -> Sample:
        given = self.prepare(*args)
        sample = self.timed(given)
        self.clear(given)
        return sample
