"""What tasks write before it is published: a log for each partition they have rows for, in a directory of
their own."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy
from numpy.typing import NDArray

from kstore.engine.io.directory import make_directory, sync_directory
from kstore.errors import KstoreError
from kstore.libraries import library
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.writer import LogWriter
from kstore.spark.arrow import require_pyarrow
from kstore.spark.errors import coded, failure, translated
from kstore.spark.paths import mapped_root
from kstore.spark.writing.configuration import Configurations
from kstore.spark.writing.partitioner import partitions_of_keys

BATCH_BYTES = 128 << 10
FLUSH_RECORDS = 50_000  # so often the disk gets what there is, in the background: at the end little is left
_APPENDED = ("key", "value", "timestamp", "headers")


class StagedFile(NamedTuple):
    """A .log file of a staged log: its name, its bytes, its records."""

    name: str
    size: int
    record_count: int


class Staged(NamedTuple):
    """A staged log: so many records for a partition, in these files of the directory `path`."""

    topic: str
    partition: int
    path: str
    record_count: int
    files: tuple[StagedFile, ...]

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @classmethod
    def of(cls, raw: Sequence[Any]) -> "Staged":
        """From JSON."""
        topic, partition, path, record_count, files = raw
        return cls(topic, partition, path, record_count, tuple(StagedFile(*file) for file in files))


@dataclass
class Stage:
    """Takes Arrow batches of rows and appends them to staged logs, routed to partitions.

    A row goes to the partition it names, else by its key's hash as Kafka's producer does, else round robin.
    Rows keep their order. `topic`, if given, is where all rows go; else the column topic says it. `counts`
    tells how many partitions the topics have that exist; others get `default_count`. The directory is made at
    the first row, and must not be there.
    """

    directory: str
    configs: Configurations
    counts: Mapping[str, int]
    default_count: int
    topic: str | None
    task: int = 0
    _logs: dict[TopicPartition, LogWriter] = field(default_factory=dict)
    _turn: int = 0
    _made: bool = False

    def __post_init__(self) -> None:
        self._turn = self.task

    def add(self, rows: Any) -> None:
        """Appends the rows of a RecordBatch. SparkSourceError."""
        pa = require_pyarrow()
        if rows.num_rows == 0:
            return
        if self.topic is not None or "topic" not in rows.schema.names:
            self._add_topic(pa, self.topic, rows)
            return
        topics = rows.column("topic")
        compute = library("pyarrow.compute")  # pyarrow alone does not bring it
        names = topics.unique().to_pylist()
        for topic in names:
            own = rows if len(names) == 1 else rows.filter(compute.equal(topics, topic))
            self._add_topic(pa, topic, own)

    def _add_topic(self, pa: Any, topic: str | None, rows: Any) -> None:
        if topic is None or not layout.is_valid_topic(topic):
            why = (
                "a row names no topic, and there is no option topic"
                if topic is None
                else "no name of a topic"
            )
            raise failure("KSTORE_INVALID_RECORD", why, topic=topic)
        count = self.counts.get(topic, self.default_count)
        keys = rows.column("key").cast(pa.binary()) if "key" in rows.schema.names else None
        partitions = self._route(topic, rows, keys, count)
        counts = numpy.bincount(partitions, minlength=count)
        if counts.max() < rows.num_rows:
            # a stable sort of 16-bit numbers is by far the fastest
            narrow = partitions.astype(numpy.uint16) if count < 1 << 16 else partitions
            order = pa.array(numpy.argsort(narrow, kind="stable"))
            names = [name for name in rows.schema.names if name in _APPENDED]
            rows = rows.select(names)
            if keys is not None:
                rows = rows.set_column(names.index("key"), "key", keys)
            rows = rows.take(order)
            keys = None if keys is None else rows.column("key")
        first = 0
        for partition in numpy.flatnonzero(counts).tolist():
            size = int(counts[partition])
            own = rows.slice(first, size)
            tp = TopicPartition(topic, partition)
            self._append(pa, tp, own, None if keys is None else keys.slice(first, size))
            first += size

    def _route(self, topic: str, rows: Any, keys: Any, count: int) -> NDArray[numpy.int32]:
        partitions = numpy.full(rows.num_rows, -1, numpy.int32)
        if keys is not None and count > 1:
            keyed = numpy.flatnonzero(numpy.asarray(keys.is_valid()))
            if len(keyed):
                hashed = _hashed(keys, count)
                partitions[keyed] = hashed[keyed]
        if "partition" in rows.schema.names:
            named = rows.column("partition")
            given = numpy.asarray(named.is_valid())
            wanted = numpy.asarray(named.fill_null(0))
            for partition in numpy.unique(wanted[given]).tolist():
                if 0 <= partition < count:
                    continue
                if partition < 0:
                    has = "partitions are numbered from 0, and null leaves the choice to the key"
                else:
                    has = f"the topic has {count}"
                    if topic not in self.counts:
                        has += f"; numPartitions={partition + 1} makes a new topic with enough of them"
                    has += "; without the column partition keys decide"
                raise failure(
                    "KSTORE_INVALID_RECORD",
                    f"a row names partition {partition}: {has}",
                    TopicPartition(topic, partition),
                )
            partitions[given] = wanted[given]
        others = numpy.flatnonzero(partitions < 0)
        partitions[others] = (self._turn + numpy.arange(len(others))) % count
        self._turn += len(others)
        return partitions

    def _append(self, pa: Any, tp: TopicPartition, rows: Any, keys: Any) -> None:
        names = rows.schema.names
        times = headers = None
        try:
            log = self._log(tp)
            if "timestamp" in names:
                column = rows.column("timestamp")
                now = log.clock_ms()
                micros = numpy.asarray(
                    column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).fill_null(0)
                )
                times = numpy.where(numpy.asarray(column.is_valid()), micros // 1000, now)
            if "headers" in names and rows.column("headers").null_count < rows.num_rows:
                headers = [
                    [(h["key"], h["value"]) for h in own or ()] for own in rows.column("headers").to_pylist()
                ]
            values = rows.column("value").cast(pa.binary())
            log.extend(values, keys, times, headers, batch_bytes=BATCH_BYTES)
        except (KstoreError, OSError) as e:
            raise translated(e, tp) from e
        except (TypeError, ValueError, OverflowError) as e:
            raise failure("KSTORE_INVALID_RECORD", str(e), tp) from e

    def _log(self, tp: TopicPartition) -> LogWriter:
        log = self._logs.get(tp)
        if log is None:
            # append time is given when records are published; whatever else the topic refuses is refused here
            config = self.configs[tp].replace(
                message_timestamp_type="CreateTime", preallocate=False, flush_messages=FLUSH_RECORDS
            )
            if not self._made:
                _make_new(mapped_root(self.directory))
                self._made = True
            log = self._logs[tp] = LogWriter(Path(mapped_root(self.directory), str(tp)), config)
        return log

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abandon()

    def close(self) -> tuple[Staged, ...]:
        """Brings everything to the disk, and tells what there is."""
        found = []
        for tp, log in sorted(self._logs.items()):
            with coded(tp):
                count = log.log_end_offset
                log.flush()  # its records alone are needed
                log.abandon()
                path = f"{self.directory}/{tp}"
                files = _files(path, count)
            if sum(file.record_count for file in files) != count:
                reason = "files of this task are gone: another program removed them"
                raise failure("KSTORE_STAGING_LOST", reason, tp, file=path)
            found.append(Staged(*tp, path, count, files))
        return tuple(found)

    def abandon(self) -> None:
        """Removes what was written: the task has failed."""
        for log in self._logs.values():
            log.abandon()
        if self._made:
            shutil.rmtree(mapped_root(self.directory), ignore_errors=True)


def _make_new(path: str) -> None:
    """Makes a directory that is not there yet: what is in one that is, another attempt may have written."""
    for last in (False, False, True):
        parent = os.path.dirname(path)
        try:
            make_directory(parent)
            os.mkdir(path)
            sync_directory(parent)
            return
        except FileNotFoundError:  # a job that ended has removed the empty directory above
            if last:
                raise


def _files(path: str, record_count: int) -> tuple[StagedFile, ...]:
    """The files with the batches of a staged log, in order."""
    files = sorted(Path(mapped_root(path)).glob("*.log"))
    firsts = [*(int(file.stem) for file in files), record_count]
    return tuple(
        StagedFile(file.name, file.stat().st_size, after - first)
        for file, (first, after) in zip(files, pairwise(firsts), strict=True)
    )


def _hashed(keys: Any, count: int) -> NDArray[numpy.int32]:
    """The partitions of an Arrow binary array's cells; of those that are null, any."""
    _, offsets, data = keys.buffers()
    first = keys.offset
    bounds = numpy.frombuffer(offsets, numpy.int32)[first : first + len(keys) + 1]
    raw = numpy.frombuffer(data, numpy.uint8) if data is not None else numpy.zeros(0, numpy.uint8)
    return partitions_of_keys(bounds, raw, count)


def partition_counts(partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """How many partitions the topics of a directory have, of all their partitions."""
    counts: dict[str, int] = {}
    for tp in partitions:
        counts[tp.topic] = max(counts.get(tp.topic, 0), tp.partition + 1)
    return counts
