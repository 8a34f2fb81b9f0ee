"""The stream reader. Imports pyspark.

Offsets are {"topic": {"0": next offset to read}}, as Spark's Kafka source writes them.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader

from kstore.log.files.layout import TopicPartition
from kstore.spark.errors import failure
from kstore.spark.reading.batch_query import KStorePartition, read_partition
from kstore.spark.reading.logs import Logs
from kstore.spark.reading.packing import tasks
from kstore.spark.reading.plan import checked, chosen, resolve
from kstore.spark.reading.source_options import SourceOptions

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2 there are no read limits

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in."""

    ReadAllAvailable = ReadMaxRows = ReadMinRows = None

_Offsets = dict[str, dict[str, int]]
_Ends = dict[TopicPartition, int]


def _flat(offsets: Mapping[str, Mapping[str, int]]) -> _Ends:
    return {TopicPartition(t, int(p)): int(o) for t, own in offsets.items() for p, o in own.items()}


def _nested(ends: Mapping[TopicPartition, int]) -> _Offsets:
    nested: _Offsets = {}
    for tp in sorted(ends):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = ends[tp]
    return nested


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
        self._frozen: _Ends | None = None
        self._seen: _Ends | None = None  # where the logs ended when latestOffset looked
        self._triggered: float | None = None
        self._last: _Ends = {}  # where the last micro-batch ended: Spark 4.0 and 4.1 do not say

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "columns": self.columns, "parallelism": self.parallelism}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    # ---- on the driver -------------------------------------------------------------------------------------

    def _open(self) -> Logs:
        if self._logs is None:
            self._logs = Logs(self.options.roots, self.options.isolation)
        return self._logs

    def initialOffset(self) -> _Offsets:
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
        self._last = starts
        return _nested(starts)

    def getDefaultReadLimit(self) -> Any:
        """maxOffsetsPerTrigger, and minOffsetsPerTrigger: Spark has no limit that says both, but it hands
        back this one where they are meant, and ReadAllAvailable where they are not."""
        most, least = self.options.max_offsets_per_trigger, self.options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> _Offsets:
        """Where the next micro-batch ends: at the ends of the logs, or before them as far as the limit
        says."""
        begin = dict(self._last) if start is None else _flat(start)
        if self._frozen is None:
            ends = self._seen = self._ends()
        else:
            ends, self._seen = self._frozen, None
        if limit is None:
            most = self.options.max_offsets_per_trigger
        else:
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        # before Spark 4.2 there is no limit
        waits = limit is not None and not isinstance(limit, ReadAllAvailable)
        if waits and start is not None and self._frozen is None:
            new = sum(end - begin.get(tp, 0) for tp, end in ends.items())
            if self._waits(new):
                return start
        self._add_new(begin, ends)
        for tp in begin.keys() - ends.keys():
            if tp in self._open().names():
                why = (
                    "the query has read this partition, and subscribe, subscribePattern or assign does not "
                    "name it any more: name it, or give the query a new checkpoint"
                )
            else:
                why = "the partition is gone"
            self._lost(tp, begin[tp], why)
        return _nested(_limited(begin, ends, most))

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

    def reportLatestOffset(self) -> _Offsets:
        """Where the logs end, for the query's progress. Spark asks right after latestOffset."""
        return _nested(self._ends() if self._seen is None else self._seen)

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all that is read."""
        self._frozen = self._ends()

    def _ends(self) -> _Ends:
        logs = self._open()
        logs.refresh()
        return {tp: logs.end(tp) for tp in chosen(logs, self.options.topics)}

    def _add_new(self, begin: _Ends, ends: _Ends) -> None:
        """Partitions that came since start at their beginning."""
        for tp in ends.keys() - begin.keys():
            begin[tp] = self._open().open(tp).log_start_offset

    def _lost(self, tp: TopicPartition, offset: int, why: str) -> None:
        if self.options.fail_on_data_loss:
            raise failure(
                "KSTORE_DATA_LOST",
                f"{why}; failOnDataLoss=false goes on without",
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
                file=self._open().place,
            )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[KStorePartition]:
        """The splits of a micro-batch; none where it has no records."""
        begin, ends = _flat(start), _flat(end)
        self._last = ends
        if begin == ends:
            return []
        logs = self._open()
        logs.refresh()
        there = set(logs.names())
        ranges = {}
        for tp, to in ends.items():
            if tp not in there:
                self._lost(tp, begin.get(tp, 0), "the partition is gone")
                continue
            since = begin.get(tp)
            if since is None:
                since = logs.open(tp).log_start_offset
            if since > to:
                self._lost(tp, since, f"the log ended at {since}, now it ends at {to}")
                continue
            if since < to:
                lossy = {"fail_on_data_loss": self.options.fail_on_data_loss}
                ranges[tp] = (checked(logs, tp, since, **lossy), checked(logs, tp, to, **lossy))
        return [KStorePartition(task) for task in tasks(logs, ranges, self.options, self.parallelism)]

    # ---- in tasks ------------------------------------------------------------------------------------------

    def read(self, partition: Any) -> Iterator[Any]:
        """Arrow batches."""
        return read_partition(partition, self.columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: Spark's checkpoint keeps the offsets."""

    def stop(self) -> None:
        """Never called by Spark 4.0 to 4.3."""


def _limited(begin: Mapping[TopicPartition, int], ends: _Ends, most: int | None) -> _Ends:
    """Ends so that about `most` offsets lie between, shared in proportion to what each partition has to
    read."""
    backlog = {tp: end - begin[tp] for tp, end in ends.items() if end > begin[tp]}
    total = sum(backlog.values())
    if most is None or total <= most:
        return ends
    limited = dict(ends)
    left, waiting = most, total
    for tp in sorted(backlog):
        share = round(left * backlog[tp] / waiting)  # exact in sum: what one rounds up the next get less
        limited[tp] = begin[tp] + share
        left -= share
        waiting -= backlog[tp]
    return limited
