"""What a store has counted, and as text for Prometheus."""

from __future__ import annotations

import contextlib
import re
from itertools import accumulate

from kstore.engine.io.file import Traffic
from kstore.errors import LogClosedError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.store.upkeep.partition_files import files_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kstore.log.files.layout import TopicPartition
    from kstore.store.open_partitions import OpenPartitions

BOUNDS = tuple(1024 * 2**i / 1e9 for i in range(23))  # as the engine has them
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_TOPIC = (  # fields of TopicMetrics, in order: whether it only grows, and what it is
    ("partitions", False, "Partitions in use"),
    ("segments", False, "Segments"),
    ("size_bytes", False, "Bytes in segments"),
    ("records_in", True, "Records appended"),
    ("bytes_in", True, "Bytes of batches appended"),
    ("records_out", True, "Records of batches read"),
    ("bytes_out", True, "Bytes of batches read"),
    ("deleted_segments", True, "Segments deleted by retention"),
    ("compactions", True, "Compactions that found something to do"),
    ("compacted_records", True, "Records removed by compaction"),
    ("compacted_bytes", True, "Bytes gained by compaction"),
    ("recovered_partitions", True, "Partitions that were not closed cleanly"),
    ("recovered_segments", True, "Segments that recovery walked"),
    ("truncated_bytes", True, "Bytes that recovery cut off"),
)
_OF_READERS = ("records_out", "bytes_out")  # a store that is open for reading has no other counters


class Histogram(NamedTuple):
    """How long calls took. `counts[i]` took up to `bounds[i]` seconds, and more than the bound before; the
    last of the counts is of those above all bounds. `sum` is the time of all, in seconds.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    @property
    def calls(self) -> int:
        """How many calls there were."""
        return sum(self.counts)


class TopicMetrics(NamedTuple):
    """What a store has counted of a topic since it was opened; `partitions`, `segments` and `size_bytes` are
    of now.

    Records and bytes out are those of the batches that readers came by, whole, though they wanted a part of
    them: only get() counts one record, with the size of its key and value. Slices and spans count their
    bytes, and no records.
    """

    partitions: int
    segments: int
    size_bytes: int
    records_in: int
    bytes_in: int
    records_out: int
    bytes_out: int
    deleted_segments: int
    compactions: int
    compacted_records: int
    compacted_bytes: int
    recovered_partitions: int
    recovered_segments: int
    truncated_bytes: int


class StoreMetrics(NamedTuple):
    """What a LogStore has counted since it was opened.

    `topics` has TopicMetrics by topic. `append_seconds` is a Histogram of calls that append, as long as the
    caller waited: of one in 16, to each log, if they wait for no sync (durability "none"), because to read
    the clock takes time. `flush_seconds` is of syncs, each of which may serve many appends. `open_partitions`
    is how many logs are open, and `failures` how many things health() names. `is_writing`: whether the store
    is open for writing. If it is not, it counts only what is read; the other numbers are 0, and the text for
    Prometheus leaves them out.
    """

    topics: dict[str, TopicMetrics]
    append_seconds: Histogram
    flush_seconds: Histogram
    open_partitions: int
    failures: int
    is_writing: bool = True

    def prometheus(self, **labels: str) -> str:
        """The metrics as Prometheus reads them (text format 0.0.4), for a server of yours to answer with.

        labels: put on every sample, so that several stores can be told apart: prometheus(store="main").
        ValueError if Prometheus does not allow the name, or if it is used already.
        """
        for name, value in labels.items():
            if name in ("topic", "le") or not _LABEL.fullmatch(name):
                raise ValueError(f"{name!r} cannot be the name of a label of these metrics")
            if not isinstance(value, str):
                raise TypeError(f"label {name} must be a str, not {value!r}")
        return "".join(f"{line}\n" for line in self._lines(labels))

    def _lines(self, labels: dict[str, str]) -> Iterator[str]:
        for at, (field, grows, text) in enumerate(_TOPIC):
            if grows and not self.is_writing and field not in _OF_READERS:
                continue
            name = f"kstore_topic_{field}" + "_total" * grows
            yield from head_of(name, "counter" if grows else "gauge", text)
            for topic, metrics in self.topics.items():
                yield f"{name}{labels_of({'topic': topic, **labels})} {metrics[at]}"
        for name, text, value in (
            ("kstore_open_partitions", "Logs that are open", self.open_partitions),
            ("kstore_failures", "Things that health() names", self.failures),
        ):
            yield from head_of(name, "gauge", text)
            yield f"{name}{labels_of(labels)} {value}"
        if not self.is_writing:
            return
        for name, text, times in (
            (
                "kstore_append_seconds",
                "How long appends took; a sample: of those that wait for no sync, each log counts one in 16",
                self.append_seconds,
            ),
            ("kstore_flush_seconds", "How long syncs took", self.flush_seconds),
        ):
            yield from head_of(name, "histogram", text)
            for bound, count in zip([*times.bounds, "+Inf"], accumulate(times.counts), strict=True):
                yield f"{name}_bucket{labels_of({**labels, 'le': str(bound)})} {count}"
            yield f"{name}_sum{labels_of(labels)} {times.sum}"
            yield f"{name}_count{labels_of(labels)} {times.calls}"


def head_of(name: str, kind: str, text: str) -> tuple[str, str]:
    """What stands before a metric's samples."""
    return f"# HELP {name} {text}.", f"# TYPE {name} {kind}"


def labels_of(labels: dict[str, str]) -> str:
    """The labels of a sample, escaped."""
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    pairs = ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def measure(logs: OpenPartitions, failures: int) -> StoreMetrics:
    """The metrics of a store at this moment. OSError, if a directory cannot be listed."""
    topics = {name: [0, 0, 0] for name in logs.catalog.topics}
    for tp, directory in logs.catalog.partitions.items():
        sums = topics.setdefault(tp.topic, [0, 0, 0])
        count, size = _size_of(logs, tp, directory.path_of(tp))
        sums[:] = sums[0] + 1, sums[1] + count, sums[2] + size
    known = logs.traffic
    times = [each.times() for each in list(known.values())] or [Traffic().times()]
    appends, flushes = (
        Histogram(
            BOUNDS,
            tuple(map(sum, zip(*(counts for counts, _ in kind), strict=True))),
            sum(ns for _, ns in kind) / 1e9,
        )
        for kind in zip(*times, strict=True)
    )
    return StoreMetrics(
        {
            name: TopicMetrics(*sums, *(known[name] if name in known else Traffic()).counts())
            for name, sums in sorted(topics.items())
        },
        appends,
        flushes,
        len(logs),
        failures,
        logs.catalog.is_writing,
    )


def _size_of(logs: OpenPartitions, tp: TopicPartition, path: Path) -> tuple[int, int]:
    """The number of segments of a partition, and their bytes."""
    log = logs.peek(tp)
    if log is not None:
        with contextlib.suppress(LogClosedError):  # meanwhile
            segments = log.segments
            return len(segments), sum(segment.size for segment in segments)
    moment = logs.facts.moment
    known = logs.facts.get("size", tp)
    if known is None:
        known = 0, 0
        with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
            files = files_of(path)
            known = len(files), sum(size for _, size in files)
        if logs.catalog.is_writing:  # else others may change the files
            logs.facts.keep("size", tp, known, moment)
    return known
