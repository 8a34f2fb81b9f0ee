"""The records of a log, of topics or of a store, in batches of columns that a condition bounds."""

from __future__ import annotations

import os

from kstore.arguments import elements, instances
from kstore.errors import LogNotFoundError, visible
from kstore.frames.conditions import ANYTHING, bounds_of
from kstore.light_typing import TYPE_CHECKING, NamedTuple, cast
from kstore.log.files.layout import TopicPartition, partition_named
from kstore.log.partition import PartitionLog
from kstore.log.read.scan import COLUMNS
from kstore.remote.urls import readable
from kstore.store.log_store import LogStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, TypeVar

    from kstore.engine.columns.array import ColumnBatch
    from kstore.frames.conditions import Condition
    from kstore.log.read.scan import Scan
    from kstore.typed import Column, StrPath

    _T = TypeVar("_T")

_BATCH_ROWS, _BATCH_BYTES = 1 << 16, 8 << 20
NAMES = ("topic", "partition")


class Found(NamedTuple):
    """Records of a partition, which is None for a log whose directory has another name."""

    partition: TopicPartition | None
    batch: ColumnBatch


def _named_topics(topic: str | Iterable[str]) -> tuple[str, ...]:
    """The names, each once. TypeError, ValueError."""
    names = (topic,) if isinstance(topic, str) else _once(instances("topic", topic, str))
    if not names:
        raise ValueError("topic names no topic: leave it out for all topics")
    return names


def _once(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))


class TableSource:
    """What a table of another library reads. Each reading opens the logs again and shows each as it is then;
    an open log or store is read as it is."""

    def __init__(
        self,
        source: StrPath | PartitionLog | LogStore,
        topic: str | Iterable[str] | None,
        partitions: Iterable[int] | None,
        threads: int | None,
        storage_options: Mapping[str, Any] | None,
        **options: Any,
    ) -> None:
        """`options` are those of PartitionLog.scan, without columns and conditions. threads: None for half of
        the processors, because the library that reads the table uses the others."""
        options["threads"] = min(4, max(1, (os.cpu_count() or 1) // 2)) if threads is None else threads
        self._source: PartitionLog | LogStore | str = (
            source
            if isinstance(source, PartitionLog | LogStore)
            else os.path.abspath(readable(source, storage_options, name="source"))
        )
        self._topics = None if topic is None else _named_topics(topic)
        self._numbers = (
            None if partitions is None else _once(elements("partitions must be numbers", partitions))
        )
        self._options = options
        self._is_log = self._finds_log()
        if self._is_log and (topic is not None or partitions is not None):
            raise TypeError(f"{self} is one partition: topic and partitions are for a store")
        tp, log = next(self._logs(), (None, None))
        if log is None:
            raise LogNotFoundError(f"no partition of {self} is to be read")
        self._scan(log, COLUMNS)  # checks the options
        self.columns = COLUMNS if tp is None else (*NAMES, *COLUMNS)

    def _finds_log(self) -> bool:
        if isinstance(self._source, PartitionLog):
            return True
        if self._topics is not None or isinstance(self._source, LogStore):
            return False
        try:
            PartitionLog(self._source).close()
        except LogNotFoundError as e:
            if not e.is_log_directory:
                raise
            return False
        return True

    def _logs(self) -> Iterator[tuple[TopicPartition | None, PartitionLog]]:
        source = self._source
        if isinstance(source, str):
            source = PartitionLog(source) if self._is_log else LogStore(source)
        if isinstance(source, PartitionLog):
            yield partition_named(os.path.basename(source.path)), source
            return
        there = source.topics
        for topic in self._topics or there:
            if topic not in there:
                named = ", ".join(there) or "none"
                raise LogNotFoundError(f"no topic {topic} in {source.path}: the topics are {named}")
            for number in there[topic] if self._numbers is None else self._numbers:
                yield TopicPartition(topic, number), source.log(topic, number)

    def _scan(self, log: PartitionLog, names: Iterable[str], **more: Any) -> Scan:
        columns = cast("tuple[Column, ...]", tuple(name for name in names if name not in NAMES))
        sizes = {"batch_rows": _BATCH_ROWS, "batch_bytes": _BATCH_BYTES}
        return log.scan(columns, **(sizes | self._options | more))

    def empty(self) -> Scan:
        """A scan of no record, with the types of all columns but topic and partition."""
        _, log = next(self._logs())
        return self._scan(log, self.columns, start=0, stop=0)

    def read(
        self, columns: Iterable[str], condition: Condition = ANYTHING, most: int | None = None
    ) -> Iterator[Found]:
        """Batches of columns with all records, `most` of them at most, for which the condition can be
        true."""
        names = [name for name in columns if name not in NAMES] or ["offset"]  # which counts the rows
        for tp, log in self._logs():
            known = {} if tp is None else {"topic": tp.topic.encode(), "partition": tp.partition}
            bounds = bounds_of(condition, known)
            if bounds is None:
                continue
            more = bounds.options()
            if "until" in more and self._options.get("in_order"):
                more["threads"] = 1  # others would read ahead, behind the end of the range
            if most is not None:
                more |= {"batch_rows": max(1, min(most, _BATCH_ROWS)), "threads": 1}
            for batch in self._scan(log, names, **more):
                yield Found(tp, batch)
                if most is not None:
                    most -= len(batch)
                    if most <= 0:
                        return

    def __str__(self) -> str:
        source = self._source
        where = source.path if isinstance(source, PartitionLog | LogStore) else source
        return visible(f"{', '.join(self._topics)} in {where}" if self._topics else where)
