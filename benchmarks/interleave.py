"""Contestants take turns, sample by sample: A B C A B C ..., so that what the machine does meanwhile hits all
alike.

A ratio is taken within each round; the figure is the median of the ratios.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles
from time import monotonic
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.peers import SELF_CHECKED, Contestant, InProcess, Missing, Sample


@dataclass(frozen=True)
class Goal:
    """What we mean to reach against a contestant: so many times its speed, or so much of its time."""

    against: str
    speed: float | None = None  # at least
    time: float | None = None  # at most

    def __str__(self) -> str:
        return f"speed >= {self.speed:g}" if self.speed is not None else f"time <= {self.time:g}"


@dataclass
class Comparison:
    """kstore against one contestant. `ratios` are of speed or of time, one a round, as the goal asks (else of
    speed)."""

    against: str
    kind: str
    ratios: list[float]
    goal: str | None
    held: bool | None

    @property
    def median(self) -> float:
        return median(self.ratios)

    @property
    def spread(self) -> tuple[float, float]:
        """First and third quartile."""
        if len(self.ratios) < 2:
            return self.ratios[0], self.ratios[0]
        low, _, high = quantiles(self.ratios, n=4, method="inclusive")
        return low, high


def is_limit(name: str) -> bool:
    """Contestants in C are named C, or C and how they do it."""
    return name.partition(" ")[0] == "C"


def _ratio(of: Comparison | None) -> dict[str, Any] | None:
    return None if of is None else {"name": of.against, "median": of.median, "spread": of.spread}


@dataclass
class Figure:
    """What one race gave: nanoseconds a unit of every contestant, one number a round, kstore first."""

    name: str
    unit: str
    counted: str
    samples: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    goals: tuple[Goal, ...] = ()

    def compare(self) -> list[Comparison]:
        return [self._against(name) for name in list(self.samples)[1:]]

    def best(self, *, limit: bool) -> Comparison | None:
        """kstore's speed over that of the fastest peer, or of the machine's limit: the fastest of what is in
        C."""
        names = [name for name in list(self.samples)[1:] if is_limit(name) == limit]
        if not names:
            return None
        return self._speed(min(names, key=lambda name: median(self.samples[name])))

    def _speed(self, name: str) -> Comparison:
        ours, theirs = next(iter(self.samples.values())), self.samples[name]
        ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
        return Comparison(name, "speed", ratios, None, None)

    def _against(self, name: str) -> Comparison:
        ours, theirs = next(iter(self.samples.values())), self.samples[name]
        goal = next((g for g in self.goals if g.against == name), None)
        if goal is not None and goal.time is not None:
            ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
            return Comparison(name, "time", ratios, str(goal), median(ratios) <= goal.time)
        speed = self._speed(name)
        if goal is None or goal.speed is None:
            return speed
        return Comparison(name, "speed", speed.ratios, str(goal), speed.median >= goal.speed)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "counted": self.counted,
            "median_ns": {name: median(values) for name, values in self.samples.items()},
            "best_peer": _ratio(self.best(limit=False)),
            "limit": _ratio(self.best(limit=True)),
            "comparisons": [{**asdict(c), "median": c.median, "spread": c.spread} for c in self.compare()],
            "missing": self.missing,
            "samples_ns": self.samples,
        }


@dataclass(frozen=True)
class Race:
    """The fixture of a benchmark: runs the contestants and keeps the figure."""

    benchmark: BenchmarkFixture
    figures: list[Figure]
    counted: str
    rounds: int

    def __call__(
        self,
        name: str,
        unit: str,
        ours: InProcess[Any],
        *others: Contestant | Missing,
        goals: tuple[Goal, ...] = (),
        arguments: Callable[[int], tuple[int, ...]] = lambda turn: (),
        rounds: int | None = None,
    ) -> Figure:
        """`arguments(n)` is what every contestant is given in its n-th turn: a seed, a count.
        pytest-benchmark times ours; the others have their turns in its set-up, before each of ours."""
        judged = () if self.benchmark.disabled else goals  # one cold turn proves nothing
        figure = Figure(name, unit, self.counted, goals=judged)
        figure.missing = {peer.name: peer.reason for peer in others if isinstance(peer, Missing)}
        peers = [peer for peer in others if not isinstance(peer, Missing)]
        for contestant in (ours, *peers):
            end = monotonic() + (0 if self.benchmark.disabled else contestant.warm_up)
            contestant.turn(*arguments(-1))
            while monotonic() < end:
                contestant.turn(*arguments(-1))
        laps = 1 if self.benchmark.disabled else rounds or self.rounds
        field: list[Contestant] = [ours, *peers]
        samples: dict[str, list[Sample]] = {contestant.name: [] for contestant in field}
        right: dict[int, tuple[int, int]] = {}  # what a turn with these arguments must give

        def keep(contestant: Contestant, turn: int, sample: Sample) -> None:
            result = (sample.units, sample.checksum)
            if sample.checksum != SELF_CHECKED and right.setdefault(turn, result) != result:
                raise AssertionError(f"{contestant.name} does other work: {result}, {right[turn]}")
            samples[contestant.name].append(sample)

        def turn_of(contestant: Contestant) -> int:
            """Each does every turn once, at equal distances: nobody finds what another has just brought into
            the processor's cache."""
            lap, place = len(samples[contestant.name]), field.index(contestant)
            return (lap + place * laps // len(field)) % laps

        def others_first() -> tuple[tuple[Any, int], dict[str, Any]]:
            for peer in peers:
                turn = turn_of(peer)
                keep(peer, turn, peer.turn(*arguments(turn)))
            turn = turn_of(ours)
            return (ours.prepare(*arguments(turn)), turn), {}

        def our_turn(given: Any, turn: int) -> None:
            keep(ours, turn, ours.timed(given))

        def clear(given: Any, turn: int) -> None:
            ours.clear(given)

        pedantic: Any = self.benchmark.pedantic
        pedantic(our_turn, setup=others_first, teardown=clear, rounds=laps)
        for who, taken in samples.items():
            figure.samples[who] = [sample.ns / sample.units for sample in taken]
        self.figures.append(figure)
        self.benchmark.extra_info.update(figure.as_json())
        return figure
