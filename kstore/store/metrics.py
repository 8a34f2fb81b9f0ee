"""What a store has counted, and as text for Prometheus."""

from __future__ import annotations

import contextlib
import os
import re
from itertools import accumulate

from kstore.engine.io.traffic import Traffic
from kstore.errors import KstoreError, LogClosedError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.partition import PartitionLog
from kstore.store.consumer_offsets import committed_here
from kstore.store.read.store_share_group import share_groups_here
from kstore.store.upkeep.partition_files import files_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
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
_OF_PARTITION = (  # fields of PartitionMetrics, in order
    ("log_start_offset", "First offset that can be read, at this answer"),
    ("log_end_offset", "Offset of the next record, at this answer"),
    ("durable_offset", "Offset below which a power cut takes nothing, at this answer"),
)
_OWN_LABELS = ("topic", "partition", "group", "kind", "directory", "le")
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


class PartitionMetrics(NamedTuple):
    """A partition at the time when the metrics were asked for.

    `durable_offset`: a power cut takes no record below it. That of a log that is closed is its end; in a
    store that is open for reading it is None. `oldest_timestamp`: the base timestamp of the first batch, in
    ms since 1970; -1 if there is none.
    """

    log_start_offset: int
    log_end_offset: int
    durable_offset: int | None
    oldest_timestamp: int


class StoreMetrics(NamedTuple):
    """The counters of a LogStore since its opening, and values of the time of the call.

    `topics` has TopicMetrics by topic. `append_seconds` is a Histogram of the durations of calls that append.
    Each log measures one in 16 of the calls that wait for no sync (durability "none"). `flush_seconds` is a
    Histogram of syncs, each of which may serve many appends. `open_partitions` is the number of open logs,
    and `failures` the number of failures in health(). `is_writing`: whether the store is open for writing. If
    it is not, it counts only what is read; the other counters are 0, and absent in the text for Prometheus.

    Values of the time of the call, which is `time` in ms since 1970: `partitions` has PartitionMetrics by
    TopicPartition, without partitions that cannot be read. `lag` has the lag of groups by kind, "cursor" or
    "share", group and topic: {("cursor", "billing", "orders"): 17}. LogStore.lag and LogStore.share_groups
    have it by partition. `free_bytes` has, by directory, the free bytes of its file system.
    """

    topics: dict[str, TopicMetrics]
    append_seconds: Histogram
    flush_seconds: Histogram
    open_partitions: int
    failures: int
    is_writing: bool = True
    partitions: Mapping[TopicPartition, PartitionMetrics] = {}
    lag: Mapping[tuple[str, str, str], int] = {}
    free_bytes: Mapping[str, int] = {}
    time: int = 0

    def prometheus(self, **labels: str) -> str:
        """The metrics as Prometheus reads them (text format 0.0.4), for a server of yours to answer with.

        labels: put on every sample, so that several stores can be told apart: prometheus(store="main").
        ValueError if Prometheus does not allow the name, or if it is used already.
        """
        for name, value in labels.items():
            if name in _OWN_LABELS or not _LABEL.fullmatch(name):
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
        yield from self._lines_of_now(labels)
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

    def _lines_of_now(self, labels: dict[str, str]) -> Iterator[str]:
        """What is of the time of the call, and no count."""
        for at, (field, text) in enumerate(_OF_PARTITION):
            name = f"kstore_partition_{field}"
            yield from head_of(name, "gauge", text)
            for tp, found in self.partitions.items():
                if found[at] is not None:
                    where = {"topic": tp.topic, "partition": str(tp.partition)}
                    yield f"{name}{labels_of(where | labels)} {found[at]}"
        oldest: dict[str, int] = {}
        for tp, found in self.partitions.items():
            if found.oldest_timestamp >= 0:
                oldest[tp.topic] = min(oldest.get(tp.topic, found.oldest_timestamp), found.oldest_timestamp)
        name = "kstore_topic_oldest_record_age_seconds"
        text = "Time since the timestamp of the first batch of a topic, the oldest of all its partitions"
        yield from head_of(name, "gauge", text)
        for topic, timestamp in oldest.items():
            yield f"{name}{labels_of({'topic': topic, **labels})} {(self.time - timestamp) / 1000}"
        yield from head_of(
            "kstore_group_lag",
            "gauge",
            "Offsets between the committed positions of a group and the ends of the logs of a topic, at this "
            "answer; of a share group, records that are not done",
        )
        for (kind, group, topic), lag in self.lag.items():
            where = {"kind": kind, "group": group, "topic": topic}
            yield f"kstore_group_lag{labels_of(where | labels)} {lag}"
        text = "Bytes that can still be written in the file system of a directory, at this answer"
        yield from head_of("kstore_free_bytes", "gauge", text)
        for directory, free in self.free_bytes.items():
            yield f"kstore_free_bytes{labels_of({'directory': directory, **labels})} {free}"


def head_of(name: str, kind: str, text: str) -> tuple[str, str]:
    """What stands before a metric's samples."""
    return f"# HELP {name} {text}.", f"# TYPE {name} {kind}"


def labels_of(labels: dict[str, str]) -> str:
    """The labels of a sample, escaped."""
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    pairs = ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def sizes_of(logs: OpenPartitions) -> list[tuple[str, int, int, int]]:
    """Each topic with the number of its partitions and segments, and their bytes. OSError."""
    topics = {name: (0, 0, 0) for name in logs.catalog.topics}
    for tp, path in logs.catalog.partition_paths().items():
        partitions, segments, size = topics.get(tp.topic, (0, 0, 0))
        count, here = _size_of(logs, tp, path)
        topics[tp.topic] = partitions + 1, segments + count, size + here
    return [(name, *sums) for name, sums in sorted(topics.items())]


def measure(logs: OpenPartitions, failures: int) -> StoreMetrics:
    """The metrics of a store at this moment. OSError, if a directory cannot be listed."""
    known, partitions = logs.traffic, _partitions_of(logs)
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
            for name, *sums in sizes_of(logs)
        },
        appends,
        flushes,
        len(logs),
        failures,
        logs.catalog.is_writing,
        partitions,
        _lag_of(logs, partitions),
        dict(_free_bytes(directory.path for directory in logs.catalog.live())),
        logs.catalog.now(),
    )


def _partitions_of(logs: OpenPartitions) -> dict[TopicPartition, PartitionMetrics]:
    found = {}
    for tp, path in sorted(logs.catalog.partition_paths().items()):
        with contextlib.suppress(OSError, KstoreError):  # health() names it, or it was deleted meanwhile
            found[tp] = _partition_of(logs, tp, path)
    return found


def _partition_of(logs: OpenPartitions, tp: TopicPartition, path: str) -> PartitionMetrics:
    """A partition as it is now. One that is closed, in a store that writes, is read once."""
    log = logs.peek(tp)
    if log is not None:
        with contextlib.suppress(LogClosedError):  # meanwhile
            start, end, durable = log.log_start_offset, log.log_end_offset, log.durable_offset
            return PartitionMetrics(start, end, durable, _oldest_timestamp(log))
    moment = logs.facts.moment
    offsets, oldest = logs.facts.get("offsets", tp), logs.facts.get("oldest", tp)
    if offsets is None or oldest is None:
        with PartitionLog(path) as read:
            offsets = read.log_start_offset, read.log_end_offset
            oldest = _oldest_timestamp(read), 0
        if logs.catalog.is_writing:  # else others may change the files
            logs.facts.keep("offsets", tp, offsets, moment)
            logs.facts.keep("oldest", tp, oldest, moment)
    return PartitionMetrics(*offsets, offsets[1] if logs.catalog.is_writing else None, oldest[0])


def _oldest_timestamp(log: PartitionLog) -> int:
    """The base timestamp of the first batch; -1 if there is none. CorruptFileError, OSError."""
    found = log.translate(log.log_start_offset)
    if found is None:
        return -1
    segment = log.segments[log.floor_segment(log.log_start_offset)]
    return int(segment.batch_at(found.position).base_timestamp)


def _lag_of(
    logs: OpenPartitions, partitions: Mapping[TopicPartition, PartitionMetrics]
) -> dict[tuple[str, str, str], int]:
    """The lag of groups by kind, group and topic, as far as their files can be read."""
    paths = logs.catalog.partition_paths()
    lag: dict[tuple[str, str, str], int] = {}
    with contextlib.suppress(OSError, KstoreError):  # cursors() raises it: the other metrics are right
        for group, committed in committed_here(paths).items():
            topics = {tp.topic for tp in committed}
            for tp, (start, end, *_) in partitions.items():
                if tp.topic in topics:
                    at = committed[tp].offset if tp in committed else 0
                    name = "cursor", group, tp.topic
                    lag[name] = lag.get(name, 0) + end - max(at, start)
    with contextlib.suppress(OSError, KstoreError):
        for group, states in share_groups_here(paths).items():
            for tp, state in states.items():
                name = "share", group, tp.topic
                lag[name] = lag.get(name, 0) + state.lag
    return lag


def _free_bytes(directories: Iterable[Path]) -> Iterator[tuple[str, int]]:
    for directory in directories:
        with contextlib.suppress(OSError):  # health() names it
            found = os.statvfs(directory)
            yield str(directory), found.f_bavail * found.f_frsize


def _size_of(logs: OpenPartitions, tp: TopicPartition, path: str) -> tuple[int, int]:
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
