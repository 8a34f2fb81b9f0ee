"""Curves: cost of a unit of work against a size. A curve that rises with the size grows faster than its
work."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import log2
from statistics import median, quantiles
from time import perf_counter_ns
from typing import Any

TOLERANCE = (
    1.3  # so much dearer than the cheapest point before it may be noise, or a cache that no longer holds it
)
ROUNDS = 7


@dataclass(frozen=True)
class Point:
    size: float
    ns: float  # a unit, median
    low: float
    high: float


@dataclass
class Curve:
    """`fair` says what the cost of a unit may be, relative: constant unless told, log2 for a search."""

    name: str
    unit: str
    against: str
    counted: str
    fair: Callable[[float], float] = lambda size: 1.0
    points: list[Point] = field(default_factory=list)

    def add(self, size: float, samples: list[float]) -> None:
        low, _, high = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
        self.points.append(Point(size, median(samples), low, high))

    def growth(self) -> tuple[float, float, float] | None:
        """The worst rise beyond what is fair, and from which size to which; None with fewer than two points.
        Of lower quartiles: what else runs on the machine makes samples longer, never shorter."""
        worst = None
        for i, late in enumerate(self.points):
            for early in self.points[:i]:
                rise = late.low / early.low * self.fair(early.size) / self.fair(late.size)
                if worst is None or rise > worst[0]:
                    worst = rise, early.size, late.size
        return worst

    def verdict(self) -> str:
        growth = self.growth()
        if growth is None:
            return "one point"
        rise, early, late = growth
        if rise <= TOLERANCE:
            return f"no faster than its work (at most {rise:.2f} x)"
        return f"GROWS: {rise:.2f} x the cost a {self.unit} from {short(early)} to {short(late)}"

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "against": self.against,
            "counted": self.counted,
            "growth": self.growth(),
            "verdict": self.verdict(),
            "points": [[p.size, p.ns, p.low, p.high] for p in self.points],
        }


def logarithm(size: float) -> float:
    return max(log2(size), 1.0)


def short(size: float) -> str:
    for scale, letter in ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")):
        if size >= scale and size % scale == 0:
            return f"{size / scale:g} {letter}"
    return f"{size / 1e6:.3g} M" if size >= 1e6 else f"{size:g}"


def measure(work: Callable[[], int], rounds: int = ROUNDS) -> list[float]:
    """Nanoseconds a unit, one number a round; the first is thrown away. `work` gives its units."""
    samples = []
    for _ in range(rounds + 1):
        start = perf_counter_ns()
        units = work()
        samples.append((perf_counter_ns() - start) / units)
    return samples[1:]


def table(curves: list[Curve]) -> list[str]:
    """A curve a line: cost of a unit at each size, and the verdict."""
    lines = []
    for curve in curves:
        costs = "  ".join(f"{short(p.size)}: {p.ns:.3g}" for p in curve.points)
        lines.append(f"{curve.name} against {curve.against}, ns a {curve.unit}: {costs}")
        lines.append(f"    {curve.verdict()}")
    return lines
