"""How far streaming queries are behind. Imports pyspark.

Spark lets a source in Python say where its logs end, and no more: offsets stand in a query's progress, times
cannot. So the times come from here: a listener that looks into the logs after every trigger.
"""

import ast
import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.sql.streaming import StreamingQueryListener

from kstore.engine.record.batch import Record
from kstore.errors import KstoreError
from kstore.log.files.layout import TopicPartition
from kstore.log.partition import PartitionLog
from kstore.spark.paths import Paths, roots_of
from kstore.spark.reading.logs import Isolation, Logs
from kstore.spark.reading.offsets import offsets_in
from kstore.store.metrics import head_of, labels_of

try:
    from pyspark.sql.streaming.datasource import ReadMaxRows  # noqa: F401

    _ENDS_REPORTED = True
# before Spark 4.2, the latest offset is the end of the micro-batch, whatever a limit left
except ImportError:
    _ENDS_REPORTED = False

LOGGER = logging.getLogger("kstore.spark.lag")
_ENDED_KEPT = 100


class Lag(NamedTuple):
    """How far a query is behind in one partition.

    `offset` is the next that it reads, `end_offset` where the log ends (None if that is unknown). `ms` is how
    old the first record is that it has not read yet, by its timestamp: 0 if it has read all, None if that is
    unknown.
    """

    offset: int
    end_offset: int | None
    ms: int | None

    @property
    def offsets(self) -> int | None:
        """How many offsets are not read yet."""
        return None if self.end_offset is None else max(0, self.end_offset - self.offset)


class QueryLag(NamedTuple):
    """How far a query was behind after its last trigger.

    `batch` is the last micro-batch, `timestamp` when it was triggered, as Spark writes it. `partitions` has
    Lag by topic and partition. `is_active` is False once the query has ended.
    """

    id: str
    name: str | None
    batch: int
    timestamp: str
    partitions: Mapping[TopicPartition, Lag]
    is_active: bool = True

    @property
    def offsets(self) -> int | None:
        """How many offsets are not read yet, in all partitions; None if it is unknown of one."""
        counts = [lag.offsets for lag in self.partitions.values()]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def ms(self) -> int | None:
        """How old the oldest record is that is not read yet; 0 if there is none, None if it is unknown of one
        partition."""
        times = [lag.ms for lag in self.partitions.values()]
        return None if None in times else max((ms or 0 for ms in times), default=0)

    def as_dict(self) -> dict[str, Any]:
        """As dicts and plain values, for JSON."""
        topics: dict[str, dict[str, Any]] = {}
        for tp, lag in sorted(self.partitions.items()):
            own = lag._asdict() | {"offsets": lag.offsets}
            topics.setdefault(tp.topic, {})[str(tp.partition)] = own
        return self._asdict() | {"partitions": topics, "offsets": self.offsets, "ms": self.ms}


class LagListener(StreamingQueryListener):  # type: ignore[misc]
    """Says after every trigger how far the streaming queries of a session are behind, by topic and partition.

        lag = kstore.spark.LagListener("/data/kafka")
        spark.streams.addListener(lag)
        ...
        lag.queries["orders"].offsets, lag.queries["orders"].ms

    `path` is the log directory that the queries read, or several, as the driver sees them. Without it,
    offsets come from the query's progress (Spark 4.2 and later tell where the logs end), and times are
    unknown. `isolation` as the queries have it: with "read_committed" a log ends where the first open
    transaction begins. SparkSourceError if there is no log directory.

    Each trigger is also logged, by logging.getLogger("kstore.spark.lag") at level INFO. Spark tells listeners
    a moment after the trigger, in a thread of its own. When a query has nothing to read, it tells them every
    10 seconds. With Spark Connect, remove the listener after `is_active` of its queries has become False:
    Spark's removeListener waits for ever if an event is on its way.
    """

    def __init__(self, path: Paths | None = None, *, isolation: Isolation = "read_uncommitted") -> None:
        logs = Logs(() if path is None else roots_of(path), isolation)
        logs.names()  # they are there
        self._logs = None if path is None else logs
        self._lock = threading.Lock()
        self._measuring = threading.Lock()  # several sessions may have this listener
        self._queries: dict[str, QueryLag] = {}

    @property
    def queries(self) -> dict[str, QueryLag]:
        """The queries by name, those without by id: the active ones, and the last hundred that have ended."""
        with self._lock:
            return {query.name or query.id: query for query in self._queries.values()}

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """All queries as dicts and plain values, for JSON."""
        return {name: query.as_dict() for name, query in self.queries.items()}

    def prometheus(self) -> str:
        """The active queries as Prometheus reads metrics (text format 0.0.4), for a server of yours to answer
        with."""
        active = {name: query for name, query in self.queries.items() if query.is_active}
        return "".join(f"{line}\n" for line in _metrics(active))

    # ---- called by Spark -----------------------------------------------------------------------------------

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        """Measures the query that had a trigger."""
        progress = event.progress
        offsets: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for source in progress.sources:
            if source.description.startswith("Kafka"):
                continue  # a broker's source, whose offsets look alike
            offsets |= _offsets(source.endOffset)
            if _ENDS_REPORTED:
                ends |= _offsets(source.latestOffset)
        query = QueryLag(
            str(progress.id),
            progress.name or None,
            progress.batchId,
            progress.timestamp,
            self._measured(offsets, ends),
        )
        self._note(query)
        LOGGER.info("%s", _line(query))

    def onQueryIdle(self, event: Any) -> None:
        """Measures it again: it may wait for more offsets, which grow old."""
        with self._lock:
            last = self._queries.get(str(event.id))
        if last is not None:
            ends = {tp: lag.end_offset for tp, lag in last.partitions.items() if lag.end_offset is not None}
            offsets = {tp: lag.offset for tp, lag in last.partitions.items()}
            self._note(last._replace(partitions=self._measured(offsets, ends)))

    def onQueryTerminated(self, event: Any) -> None:
        """Keeps what was measured last."""
        with self._lock:
            last = self._queries.pop(str(event.id), None)
            if last is not None:
                self._queries[last.id] = last._replace(is_active=False)
                ended = [id for id, query in self._queries.items() if not query.is_active]
                for id in ended[:-_ENDED_KEPT]:
                    del self._queries[id]

    def _note(self, query: QueryLag) -> None:
        with self._lock:
            self._queries[query.id] = query

    def _measured(
        self, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Lag]:
        with self._measuring:
            now_ms = time.time_ns() // 1_000_000
            logs = self._logs
            if logs is not None:
                try:
                    logs.refresh()
                except (KstoreError, OSError) as e:
                    LOGGER.warning("lag is not known: %s", e)
                    logs = None
            found = {}
            for tp, offset in sorted(offsets.items()):
                end, ms = ends.get(tp), None
                if logs is not None:
                    try:
                        end = logs.end(tp)
                        ms = 0 if offset >= end else _age(logs, tp, offset, now_ms)
                    except (KstoreError, OSError) as e:
                        LOGGER.warning("lag in %s is not known: %s", tp, e)
                elif end is not None and offset >= end:
                    ms = 0
                found[tp] = Lag(offset, end, ms)
            return found


def _age(logs: Logs, tp: TopicPartition, offset: int, now_ms: int) -> int | None:
    """How old the first record from an offset on is; None if it has no time."""

    def first_record(log: PartitionLog) -> Record | None:
        start = max(offset, log.log_start_offset)  # retention was faster
        return next(iter(log.records(start, isolation=logs.isolation)), None)

    first = logs.read(tp, first_record)
    if first is None:
        return 0  # what is left is markers of transactions, or was compacted away
    return None if first.timestamp < 0 else max(0, now_ms - first.timestamp)


def _offsets(text: str | None) -> dict[TopicPartition, int]:
    """The offsets of a source in a query's progress; none if they are those of another kind of source."""
    if text is None:  # there is nothing yet
        return {}
    try:
        try:
            raw = json.loads(text)
        except ValueError:
            raw = ast.literal_eval(text)  # Spark 4.0 writes Python's dict, not JSON
        return offsets_in(raw)
    except (ValueError, TypeError, AttributeError, SyntaxError, RecursionError, MemoryError):
        return {}


def _line(query: QueryLag) -> str:
    offsets = "unknown" if query.offsets is None else query.offsets
    ms = "unknown" if query.ms is None else f"{query.ms / 1000:.3f} s"
    behind = {tp: lag.offsets or 0 for tp, lag in query.partitions.items()}
    most = max(behind, key=behind.__getitem__, default=None)
    text = f"query {query.name or query.id}, micro-batch {query.batch}"
    text += f": offsets behind {offsets}, time behind {ms}"
    return f"{text}, most in {most}: {behind[most]}" if most is not None and behind[most] else text


def _metrics(queries: Mapping[str, QueryLag]) -> Iterator[str]:
    for name, text, unit in (
        ("kstore_spark_lag_offsets", "Offsets that a streaming query has not read yet", "offsets"),
        ("kstore_spark_lag_seconds", "Age of the first record that a streaming query has not read yet", "ms"),
    ):
        yield from head_of(name, "gauge", text)
        for query in queries.values():
            for tp, lag in query.partitions.items():
                value = getattr(lag, unit)
                if value is not None:
                    labels = {
                        "query": query.name or query.id,
                        "topic": tp.topic,
                        "partition": str(tp.partition),
                    }
                    yield f"{name}{labels_of(labels)} {value / 1000 if unit == 'ms' else value}"
