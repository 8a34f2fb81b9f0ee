"""A follower of many partitions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from kstore.arguments import integer
from kstore.engine.io.sources import refuse_waiting
from kstore.errors import LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.cursors.arguments import checked_partition, checked_place, offset_of
from kstore.log.files.layout import TopicPartition
from kstore.log.follow.feed import Feed
from kstore.log.follow.position import Position, are_of_one_topic, checked_position, position_in
from kstore.store.read.topic_reader import PartitionReader, TopicReader

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NoReturn

    from kstore.store.open_partitions import OpenPartitions


class StoreFollower(TopicReader):
    """An iterator of the records of many partitions as they are appended, as TopicRecord objects.
    store.follow() creates one.

    `for` and `async for` both work. One thread or task at a time may iterate; any may call `close`. The
    iteration ends after `timeout` seconds without a record, if the follower is closed, and if its store is
    closed and all records were read. Partitions that are created later are read from their beginning; deleted
    ones are left out. OffsetOutOfRangeError, with the partition in a note, if the record at a position is
    deleted before it is read, or records before the position are truncated. Another follower continues with
    start=follower.positions().
    """

    def __init__(
        self,
        logs: OpenPartitions,
        topics: Iterable[str] | None,
        start: str | datetime | Mapping[TopicPartition, Position | int],
        *,
        timeout: float | None,
        isolation: str,
        on_error: str,
    ) -> None:
        if isinstance(start, Mapping):
            self._start: Any = {checked_partition("start", tp): _checked(at) for tp, at in start.items()}
        elif isinstance(start, str | datetime):
            self._start = checked_place("start", start)
        else:
            raise TypeError(
                "start must be earliest, latest, a datetime, or positions or offsets by partition, not "
                f"{start!r:.80}"
            )
        for path in logs.catalog.paths():
            refuse_waiting(str(path))
        super().__init__(logs, topics, follow=True, timeout=timeout, isolation=isolation, on_error=on_error)
        self._closed = False
        self._update()

    def _has_ended(self) -> bool:
        return self._logs.is_closed

    def _choose(self) -> None:
        self._leave_deleted()
        for tp, path in self._wanted.paths.items():
            if tp not in self._readers:
                try:
                    self._readers[tp] = self._reader_of(tp, path)
                except LogNotFoundError:  # it is being deleted
                    continue
                self._queue.ask(tp)
        self._watch_all()
        self._queue.sweep(self._readers)

    def _reader_of(self, tp: TopicPartition, path: str) -> PartitionReader:
        topic_id = self._wanted.topic_id(tp) or ""
        log = self._wanted.opened(tp)
        log.traffic = self._logs.traffic_of(tp.topic)
        start = self._start_of(tp, topic_id)
        if not isinstance(start, Position | int):
            start = offset_of(log, start, self._isolation)
        position = start if isinstance(start, Position) else position_in(log.snapshot, start)
        return PartitionReader(Feed(log.source(), position, self._isolation, self._left_out), topic_id)

    def positions(self) -> dict[TopicPartition, Position]:
        """Return the position of the next record, for each partition that is read now. Another follower that
        starts there detects a truncation below it. It also detects that a topic was deleted and created
        again, and then reads all of the new topic."""
        self._check_open()
        readers = self._readers
        return {
            tp: readers[tp].feed.position._replace(topic_id=readers[tp].topic_id) for tp in self.partitions
        }

    def _start_of(self, tp: TopicPartition, topic_id: str) -> Any:
        if not self._wanted.was_there(tp):
            return "earliest"
        start = self._start.get(tp, "earliest") if isinstance(self._start, dict) else self._start
        if isinstance(start, Position) and not are_of_one_topic(start.topic_id, topic_id):
            return "earliest"
        return start

    def __reduce__(self) -> NoReturn:
        raise TypeError("a follower cannot be pickled: make one in the other process")


def _checked(start: Position | int) -> Position | int:
    if isinstance(start, Position):
        return checked_position("start", start)
    return integer("start", start, kind="an offset or a Position")
