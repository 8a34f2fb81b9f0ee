"""Appending to the topics of a store: whole columns, and from asyncio."""

from __future__ import annotations

from kstore.engine.record.partitions import split_by_partition
from kstore.light_typing import TYPE_CHECKING, cast
from kstore.log.files.topic_table import MOST_PARTITIONS

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

    from kstore.log.files.layout import TopicPartition
    from kstore.log.write.async_appender import AsyncAppender, Touch, Work
    from kstore.log.writer import LogWriter
    from kstore.store.open_partitions import OpenPartitions
    from kstore.typed import BytesLike, Cells, HeaderLists, Headers, Times


class TopicAppender:
    """Appends to the topics of one store; a thread for each topic appends for asyncio. See the methods of
    LogStore."""

    def __init__(self, logs: OpenPartitions) -> None:
        self._logs = logs
        self._catalog = logs.catalog
        self._async: dict[str, AsyncAppender] = {}  # by topic

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

        def to(number: int) -> LogWriter:
            return self._touched(found.partition(number), touch)

        self._logs.check_open()
        found = self._catalog.topic(topic)
        sticky = found.sticky()
        logs = self._logs
        if keys is None:
            if logs.peek(found.partition(sticky)) is None:
                # checks them before a log is opened
                split_by_partition(values, None, timestamps, headers, 1, 0)
            return {sticky: to(sticky).extend(values, None, timestamps, headers)}
        if found.count > MOST_PARTITIONS:
            raise ValueError(f"topic {topic} has {found.count} partitions, more than columns can be split by")
        whole, parts = split_by_partition(values, keys, timestamps, headers, found.count, sticky)
        if len(parts) > 1:
            try:
                for number, *columns in parts:
                    logs.get(found.partition(number))._check_extend(*columns)
            except (TypeError, ValueError):  # it counts the records of one partition, and the caller all
                logs.get(found.partition(parts[0][0]))._check_extend(*whole)
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
        tp = self._catalog.topic(topic).partition_for(key, value)
        if (log := self._logs.peek(tp)) is not None:
            log.maintenance.log_end.refuse_reentrance()  # the other thread would wait for this one

        def append(touch: Touch) -> tuple[int, int]:
            return tp.partition, self._touched(tp, touch).append(value, key, timestamp, headers)

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
