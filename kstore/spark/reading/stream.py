"""The stream reader. Imports pyspark."""

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader

from kstore.log.files.layout import TopicPartition
from kstore.log.follow.position import Position, are_of_one_topic
from kstore.spark.errors import RECREATED, failure
from kstore.spark.reading.batch_query import KStorePartition, read_partition
from kstore.spark.reading.limits import limited_by_bytes, limited_by_offsets
from kstore.spark.reading.logs import Logs
from kstore.spark.reading.offsets import Json, Positions, decoded, encoded, encoded_ends
from kstore.spark.reading.packing import tasks
from kstore.spark.reading.plan import Range, checked, chosen, resolve
from kstore.spark.reading.source_options import SourceOptions

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2 there are no read limits

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in."""

    ReadAllAvailable = ReadMaxBytes = ReadMaxRows = ReadMinRows = None


class KStoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A streaming query: the logs stay open in Spark's planning process, and are refreshed at every
    trigger."""

    def __init__(
        self, options: SourceOptions, columns: tuple[str, ...], parallelism: int | None = None
    ) -> None:
        if options.min_offsets_per_trigger is not None and ReadMinRows is None:
            raise failure(
                "KSTORE_UNSUPPORTED",
                "minOffsetsPerTrigger needs Spark 4.2: before, Spark does not tell a source which trigger "
                "must read all there is",
            )
        self.options = options
        self.columns = columns
        self.parallelism = parallelism
        self._logs: Logs | None = None
        self._frozen: Positions | None = None
        self._seen: Positions | None = None  # where the logs ended when latestOffset looked
        self._triggered: float | None = None
        self._last: Positions = {}  # where the last micro-batch ended: Spark 4.0 and 4.1 do not say

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "columns": self.columns, "parallelism": self.parallelism}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    # ---- on the driver -------------------------------------------------------------------------------------

    def _open(self) -> Logs:
        if self._logs is None:
            self._logs = Logs(self.options.roots, self.options.isolation)
        return self._logs

    def initialOffset(self) -> Json:
        """Where a new query starts."""
        logs = self._open()
        partitions = chosen(logs, self.options.topics)
        starts = resolve(
            logs,
            partitions,
            self.options.starting,
            start=True,
            fail_on_data_loss=self.options.fail_on_data_loss,
        )
        self._last = {tp: logs.position(tp, start) for tp, start in starts.items()}
        return encoded(self._last)

    def getDefaultReadLimit(self) -> Any:
        """One of the options that limit a trigger: Spark has no limit for all of them, but it hands back
        this one where they are meant, and ReadAllAvailable where they are not."""
        options = self.options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        least = options.min_offsets_per_trigger
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def latestOffset(self, start: Json | None = None, limit: Any = None) -> Json:
        """Where the next micro-batch ends: at the ends of the logs, or before them as far as the limit
        says."""
        if self._frozen is None:
            ends = self._seen = self._ends()
        else:
            ends, self._seen = self._frozen, None
        begin = self._begins(self._last if start is None else decoded(start), ends)
        if limit is not None and isinstance(limit, ReadAllAvailable):
            return encoded(ends)
        new = sum(end.offset - begin[tp] for tp, end in ends.items())
        may_wait = limit is not None and self._frozen is None  # before Spark 4.2 there is no limit
        if may_wait and start is not None and self._waits(new):
            return start
        most, most_bytes = self.options.max_offsets_per_trigger, self.options.max_bytes_per_trigger
        if most is not None:
            ends = limited_by_offsets(begin, ends, most)
        if most_bytes is not None:
            ends = limited_by_bytes(self._open(), begin, ends, most_bytes)
        return encoded(ends)

    def _begins(self, known: Positions, ends: Positions) -> dict[TopicPartition, int]:
        """Where the next micro-batch begins; partitions that came since, at their beginning."""
        for tp in known.keys() - ends.keys():
            self._not_read(tp, known[tp].offset)
        return {tp: self._resumed(tp, known.get(tp)) for tp in ends}

    def _waits(self, new: int) -> bool:
        """Whether to leave so many offsets to a later trigger. The first one never waits, as with Spark's
        Kafka source."""
        least, now = self.options.min_offsets_per_trigger, time.monotonic()
        if least is None:
            return False
        delay_s = self.options.max_trigger_delay_ms / 1000
        if self._triggered is not None and new < least and now - self._triggered < delay_s:
            return True
        self._triggered = now
        return False

    def reportLatestOffset(self) -> Json:
        """Where the logs are, and where they end, for the query's progress. Spark asks right after
        latestOffset."""
        ends = self._ends() if self._seen is None else self._seen
        return encoded_ends({tp: end.offset for tp, end in ends.items()}, self._open().place)

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all that is read."""
        self._frozen = self._ends()

    def _ends(self) -> Positions:
        logs = self._open()
        logs.refresh()
        return {tp: logs.position(tp, logs.end(tp)) for tp in chosen(logs, self.options.topics)}

    def _resumed(self, tp: TopicPartition, position: Position | None) -> int:
        """The offset at which reading continues from a position; None: the beginning of the log. If the log
        diverged from the position, KSTORE_DATA_LOST, or with failOnDataLoss=false the offset at which it
        did."""
        logs = self._open()
        first = logs.open(tp).log_start_offset
        if position is None:
            return first
        cut = logs.diverged_at(tp, position)
        why = f"the log was truncated at offset {cut}"
        if not are_of_one_topic(position.topic_id, logs.topic_id(tp)):
            cut, why = first, RECREATED
        if cut < 0:
            return checked(logs, tp, position.offset, fail_on_data_loss=self.options.fail_on_data_loss)
        cut = max(cut, first)
        reason = f"{why} after the query had read up to this offset"
        self._lost(tp, position.offset, f"{reason}; failOnDataLoss=false goes on at offset {cut}")
        return cut

    def _not_read(self, tp: TopicPartition, offset: int) -> None:
        """KSTORE_DATA_LOST for a partition that the query has read, and does not find any more."""
        why = "the partition is gone"
        if tp in self._open().names():
            why = (
                "the query has read this partition, and subscribe, subscribePattern or assign does not "
                "name it any more: name it, or give the query a new checkpoint"
            )
        self._lost(tp, offset, f"{why}; failOnDataLoss=false goes on without")

    def _lost(self, tp: TopicPartition, offset: int, why: str) -> None:
        if self.options.fail_on_data_loss:
            raise failure("KSTORE_DATA_LOST", why, tp, offset=offset, file=self._open().place)

    def partitions(self, start: Json, end: Json) -> list[KStorePartition]:
        """The splits of a micro-batch; none where it has no records."""
        begin, ends = decoded(start), decoded(end)
        self._last = ends
        if start == end:
            return []
        logs = self._open()
        logs.refresh()
        there = set(logs.names())
        ranges = {}
        for tp, to in ends.items():
            if tp not in there:
                self._not_read(tp, to.offset)
                continue
            ranges[tp] = Range(self._resumed(tp, begin.get(tp)), logs.position(tp, self._resumed(tp, to)))
        return [KStorePartition(task) for task in tasks(logs, ranges, self.options, self.parallelism)]

    # ---- in tasks ------------------------------------------------------------------------------------------

    def read(self, partition: Any) -> Iterator[Any]:
        """Arrow batches."""
        return read_partition(partition, self.columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: Spark's checkpoint keeps the offsets."""

    def stop(self) -> None:
        """Never called by Spark 4.0 to 4.3."""
