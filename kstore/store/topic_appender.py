"""Appending to the topics of a store: whole columns, and from asyncio."""

from __future__ import annotations

from weakref import ref

from kstore.engine.record.partitions import split_by_partition
from kstore.errors import KstoreError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING, cast
from kstore.log.files.topic_table import MOST_PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Any

    from kstore.log.files.layout import TopicPartition
    from kstore.log.write.async_appender import AsyncAppender, Touch, Work
    from kstore.log.writer import LogWriter
    from kstore.store.open_partitions import OpenPartitions
    from kstore.store.topic import Topic
    from kstore.typed import BytesLike, Cells, HeaderLists, Headers, Times


class TopicAppender:
    """Appends to the topics of one store; a thread for each topic appends for asyncio. See the methods of
    LogStore."""

    def __init__(self, logs: OpenPartitions) -> None:
        self._logs = logs
        self._catalog = logs.catalog
        self._async: dict[str, AsyncAppender] = {}  # by topic

    def append(
        self,
        topic: str,
        value: BytesLike | None,
        key: BytesLike | None,
        timestamp: int | datetime | None,
        headers: Headers | None,
        chosen: tuple[Topic, TopicPartition] | None = None,
        touch: Touch | None = None,
    ) -> tuple[int, int]:
        """Appends one record, to the partition that was chosen, if one was."""
        while True:
            if chosen is None:
                found = self._catalog.topic(topic)
                tp = found.partition_for(key, value)
            else:
                (found, tp), chosen = chosen, None
            log = None
            try:
                log = self._logs.get(tp) if touch is None else self._touched(tp, touch)
                return tp.partition, log.append(value, key, timestamp, headers)
            except (OSError, KstoreError) as e:
                if not self._may_repeat(found, e, () if log is None else (log,)):
                    raise

    def extend(
        self,
        topic: str,
        values: Cells,
        keys: Cells | None,
        timestamps: Times | None,
        headers: HeaderLists | None,
        touch: Touch | None = None,
    ) -> dict[int, range]:
        """Appends many records; `touch` gets the end of each log before it is appended to."""
        while True:
            self._logs.check_open()
            found = self._catalog.topic(topic)
            used: list[ref[LogWriter]] = []  # appended to; they may be closed to open others
            try:
                return self._extend(found, values, keys, timestamps, headers, touch, used)
            except (OSError, KstoreError) as e:
                if not self._may_repeat(found, e, [log() for log in used]):
                    raise

    def _may_repeat(self, topic: Topic, error: Exception, used: Sequence[LogWriter | None]) -> bool:
        """Whether a call failed because another process has deleted the topic, with all that was appended to
        the logs in use: then it is made again, with what the topic is now."""
        is_gone = [log is not None and log.maintenance.log_end.is_deleted for log in used]
        if not (all(is_gone) if used else isinstance(error, LogNotFoundError)):
            return False
        return self._catalog.was_deleted(topic)

    def _extend(
        self,
        found: Topic,
        values: Cells,
        keys: Cells | None,
        timestamps: Times | None,
        headers: HeaderLists | None,
        touch: Touch | None,
        used: list[ref[LogWriter]],
    ) -> dict[int, range]:
        def to(number: int) -> LogWriter:
            log = self._touched(found.partition(number), touch)
            used.append(ref(log))
            return log

        sticky = found.sticky()
        logs = self._logs
        if keys is None:
            if logs.peek(found.partition(sticky)) is None:
                # checks them before a log is opened
                split_by_partition(values, None, timestamps, headers, 1, 0)
            return {sticky: to(sticky).extend(values, None, timestamps, headers)}
        if found.count > MOST_PARTITIONS:
            raise ValueError(
                f"topic {found.name} has {found.count} partitions, more than columns can be split by"
            )
        whole, parts = split_by_partition(values, keys, timestamps, headers, found.count, sticky)
        if len(parts) > 1:
            try:
                for number, *columns in parts:
                    logs.get(found.partition(number)).check_extend(*columns)
            except (TypeError, ValueError):  # it counts the records of one partition, and the caller all
                logs.get(found.partition(parts[0][0])).check_extend(*whole)
                raise
        return {number: to(number).extend(*columns) for number, *columns in parts}

    def _touched(self, tp: TopicPartition, touch: Touch | None) -> LogWriter:
        """The log of a partition, after `touch` got its end."""
        log = self._logs.get(tp)
        if touch is not None:
            touch(log.maintenance.log_end, log)
        return log

    async def append_async(
        self,
        topic: str,
        value: BytesLike | None,
        key: BytesLike | None,
        timestamp: int | datetime | None,
        headers: Headers | None,
    ) -> tuple[int, int]:
        """Appends one record while the event loop goes on."""
        found = self._catalog.topic(topic)
        tp = found.partition_for(key, value)
        if (log := self._logs.peek(tp)) is not None:
            log.maintenance.log_end.refuse_reentrance()  # the other thread would wait for this one

        def append(touch: Touch) -> tuple[int, int]:
            return self.append(topic, value, key, timestamp, headers, (found, tp), touch)

        return cast(tuple[int, int], await self._later(topic, append))

    async def extend_async(
        self,
        topic: str,
        values: Cells,
        keys: Cells | None,
        timestamps: Times | None,
        headers: HeaderLists | None,
    ) -> dict[int, range]:
        """Appends many records while the event loop goes on."""
        self._catalog.topic(topic)
        self._logs.of_topic(topic)  # the other thread would wait for this one, if it is inside one of them
        return cast(
            dict[int, range],
            await self._later(
                topic, lambda touch: self.extend(topic, values, keys, timestamps, headers, touch)
            ),
        )

    async def _later(self, topic: str, work: Work) -> Any:
        from kstore.log.write.async_appender import AsyncAppender

        appender = self._async.get(topic) or self._async.setdefault(topic, AsyncAppender())
        return await appender.append(f"the store of {self._catalog.named()}", work)

    def close(self) -> None:
        """Takes no more calls, and waits until all are made."""
        for appender in list(self._async.values()):
            appender.close()
