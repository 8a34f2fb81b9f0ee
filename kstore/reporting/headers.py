"""The headers of batches, summed up for a page. No record is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from kstore.engine.record.batch import CODECS
from kstore.reporting.facts import BatchFacts, Rate

if TYPE_CHECKING:
    from collections.abc import Sequence

FIELDS = (
    "base_timestamp",
    "max_timestamp",
    "last_offset_delta",
    "size",
    "records_count",
    "attributes",
    "producer_id",
)
_POINTS = 512  # of each segment that the rate is made of
_PERIODS = 120
_DAY_MS = 86_400_000


class Summed(NamedTuple):
    """The figures of a segment, None if they are not known."""

    batches: int | None
    records: int | None
    first_timestamp: int
    max_timestamp: int
    size: int  # of whole batches
    has_producers: bool  # whether a batch has a producer id


_NOTHING = Summed(0, 0, -1, -1, 0, False)


class HeaderSums:
    """Sums over the headers of many segments: by codec and size, and bytes over time by topic."""

    def __init__(self) -> None:
        self._codecs: dict[int, BatchFacts] = {}
        self._times: dict[str, list[Any]] = {}
        self._sizes: dict[str, list[Any]] = {}

    def add(self, topic: str, headers: Sequence[Any]) -> list[Summed]:
        """Add the headers of some segments, and return the figures of each."""
        if not sum(map(len, headers)):
            return [_NOTHING] * len(headers)
        kind = headers[0].dtype  # as bytes: concatenating structures looks at their fields each time
        every = numpy.concatenate([each.view(numpy.uint8) for each in headers]).view(kind)
        sizes = every["size"].astype(numpy.int64)
        counts = every["records_count"].astype(numpy.int64)
        counts = numpy.where(counts < 0, every["last_offset_delta"] + 1, counts)  # magic 0 and 1
        times = every["max_timestamp"]
        self._add_codecs(every["attributes"] & 7, sizes, counts)
        filled = numpy.array([len(each) for each in headers])
        begins = (numpy.cumsum(filled) - filled)[filled > 0]
        firsts = numpy.where(every["base_timestamp"] < 0, times, every["base_timestamp"])
        found = zip(
            filled[filled > 0].tolist(),
            numpy.add.reduceat(counts, begins).tolist(),
            numpy.minimum.reduceat(firsts, begins).tolist(),
            numpy.maximum.reduceat(times, begins).tolist(),
            numpy.add.reduceat(sizes, begins).tolist(),
            (numpy.maximum.reduceat(every["producer_id"], begins) >= 0).tolist(),
            strict=True,
        )
        if len(times) > _POINTS * len(headers):
            at = numpy.linspace(0, len(times), _POINTS * len(headers), endpoint=False).astype(numpy.int64)
            times, sizes = times[at], numpy.add.reduceat(sizes, at)
        self._times.setdefault(topic, []).append(times)
        self._sizes.setdefault(topic, []).append(sizes)
        return [Summed(*next(found)) if len(each) else _NOTHING for each in headers]

    def add_unread(self, topic: str, timestamp: int, size: int) -> None:
        """Add the bytes of a segment whose headers are not read, at its largest timestamp."""
        self._times.setdefault(topic, []).append(numpy.array([timestamp]))
        self._sizes.setdefault(topic, []).append(numpy.array([size]))

    def _add_codecs(self, codecs: Any, sizes: Any, counts: Any) -> None:
        exponents = numpy.frexp(sizes - 1)[1]
        for codec in numpy.flatnonzero(numpy.bincount(codecs)).tolist():
            of_codec = codecs == codec
            before = self._codecs.get(codec, BatchFacts(0, 0, 0, {}))
            by_size = before.by_size
            for at, number in enumerate(numpy.bincount(exponents[of_codec]).tolist()):
                if number:
                    by_size[at] = by_size.get(at, 0) + number
            self._codecs[codec] = BatchFacts(
                before.batches + int(of_codec.sum()),
                before.size + int(sizes[of_codec].sum()),
                before.records + int(counts[of_codec].sum()),
                by_size,
            )

    def codecs(self) -> dict[str, BatchFacts]:
        """The figures by the name of the codec."""
        return {
            CODECS[codec] if codec < len(CODECS) else f"unknown {codec}": found
            for codec, found in sorted(self._codecs.items())
        }

    def rate(self, now_ms: int) -> Rate | None:
        """Bytes over time. Periods cover the timestamps of 99 % of the bytes, and none in the future; None if
        no record has a timestamp."""
        if not self._times:
            return None
        times = {topic: numpy.concatenate(parts) for topic, parts in self._times.items()}
        sizes = {topic: numpy.concatenate(parts) for topic, parts in self._sizes.items()}
        every, weights = numpy.concatenate([*times.values()]), numpy.concatenate([*sizes.values()])
        usable = (every >= 0) & (every <= now_ms + _DAY_MS)
        if not usable.any():
            return None
        start, stop = _common(every[usable], weights[usable])
        step = max((stop - start) // _PERIODS + 1, 1)
        edges = start + step * numpy.arange((stop - start) // step + 2)
        found = {topic: numpy.histogram(times[topic], edges, weights=sizes[topic])[0] for topic in times}
        topics = {topic: periods.astype(numpy.int64).tolist() for topic, periods in found.items()}
        return Rate(start, step, topics, int(weights.sum()) - sum(map(sum, topics.values())))


def _common(times: Any, sizes: Any) -> tuple[int, int]:
    """The first and the last of the timestamps, without the first and last 0.5 % of the bytes if these are
    far away from the others."""
    order = numpy.argsort(times, kind="stable")
    share = numpy.cumsum(sizes[order]) / max(int(sizes.sum()), 1)
    ends = numpy.searchsorted(share, (0.005, 0.995)).clip(max=len(order) - 1)
    low, high = times[order[ends]].tolist()
    margin = max(high - low, 1000)
    first, last = int(times[order[0]]), int(times[order[-1]])
    return (first if low - first <= margin else low), (last if last - high <= margin else high)
