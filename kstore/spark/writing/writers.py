"""The writers: tasks stage, the driver publishes under a transaction id. Imports pyspark.

Spark tells a failed attempt nothing, and calls abort even after a commit that had published (spec spark 3.5).
So an attempt writes where no other does, and whether something is published is the journal's to say, not
Spark's.
"""

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import islice
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from kstore.spark.arrow import arrow_schema, require_pyarrow
from kstore.spark.errors import SparkSourceError, failure
from kstore.spark.schema import TYPES
from kstore.spark.writing.checkpoint import source_of
from kstore.spark.writing.heartbeat import Heartbeat
from kstore.spark.writing.sink import Sink, Source, Transaction
from kstore.spark.writing.sink_options import SinkOptions
from kstore.spark.writing.staging import Staged

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0: rows
    DataSourceStreamArrowWriter = None

_TAKEN: dict[str, tuple[DataType, ...]] = {
    "value": (BinaryType(), StringType()),
    "key": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
    "headers": (TYPES["headers"],),
}
_PASSED_OVER = ("offset", "timestampType")  # the log gives them anew
_ROWS = 10_000


def check_schema(schema: StructType, topic: str | None) -> None:
    """KSTORE_INVALID_SCHEMA for columns that a record does not have."""
    for column in schema.fields:
        kinds = _TAKEN.get(column.name)
        if kinds is None and column.name not in _PASSED_OVER:
            raise failure(
                "KSTORE_INVALID_SCHEMA",
                f"no column {column.name}; a record has {', '.join(_TAKEN)}",
            )
        if kinds is not None and not any(_same(column.dataType, kind) for kind in kinds):
            allowed = " or ".join(kind.simpleString() for kind in kinds)
            raise failure(
                "KSTORE_INVALID_SCHEMA",
                f"column {column.name} is {column.dataType.simpleString()}, allowed is {allowed}",
            )
    if "value" not in schema.names:
        raise failure("KSTORE_INVALID_SCHEMA", "there is no column value")
    if topic is None and "topic" not in schema.names:
        raise failure("KSTORE_INVALID_OPTION", "there is neither an option topic nor a column topic")


def _same(one: DataType, other: DataType) -> bool:
    return bool(one.simpleString() == other.simpleString())  # whatever may be null


@dataclass
class KStoreCommitMessage(WriterCommitMessage):  # type: ignore[misc]
    """What a task staged, and of what job."""

    job: str
    query: str
    staged: tuple[Staged, ...]


@dataclass(frozen=True)
class _Target:
    """What a task needs to know: plain values, made on the driver, so that all tasks route alike."""

    root: str
    options: SinkOptions
    counts: Mapping[str, int]

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, *, stream: bool = False) -> "_Target":
        require_pyarrow()
        options = SinkOptions.of(given, stream=stream)
        check_schema(schema, options.topic)
        return cls(options.root, options, Sink(options.root).counts())

    def sink(self) -> Sink:
        return Sink(
            self.root, self.options.config, staging=self.options.staging, lock_wait=self.options.lock_wait_s
        )

    def write(self, batches: Iterator[Any], job: str, query: str) -> KStoreCommitMessage:
        context = TaskContext.get()
        task, attempt = context.partitionId(), context.taskAttemptId()
        sink = self.sink()
        stage = sink.stage(
            job,
            f"p{task:05d}-t{attempt}",
            topic=self.options.topic,
            counts=self.counts,
            default_count=self.options.partition_count,
            task=task,
        )
        with Heartbeat([sink.job_directory(job)]), stage:
            for batch in batches:
                stage.add(batch)
            return KStoreCommitMessage(job, query, stage.close())

    def publish(
        self, messages: Sequence[Any], transaction: Transaction, source: Source | None = None
    ) -> None:
        staged = [one for message in messages if message is not None for one in message.staged]
        counts = {one.topic: self.counts.get(one.topic, self.options.partition_count) for one in staged}
        sink = self.sink()
        jobs = {message.job for message in messages if message is not None}
        with Heartbeat(sink.job_directory(job) for job in jobs):
            sink.publish(transaction, staged, counts=counts, source=source)
        # it is published: what stays in staging is swept another time
        with contextlib.suppress(SparkSourceError):
            for job in jobs:
                sink.discard(transaction, job)
            sink.sweep()


class KStoreWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """One job. It is made once and pickled to tasks and to the commit, so its id is the job's."""

    def __init__(self, target: _Target) -> None:
        self.target = target
        self.job = str(uuid.uuid4())
        self.transaction = Transaction(target.options.transaction or self.job)
        given = target.options.transaction
        if given is not None and target.options.refuses_published and target.sink().published(given):
            raise failure("KSTORE_PUBLISHED", f"txnId {given} was published before", file=target.root)

    def write(self, iterator: Iterator[Any]) -> KStoreCommitMessage:
        """In a task: stages its rows."""
        return self.target.write(iterator, self.job, "")

    def commit(self, messages: Sequence[Any]) -> None:
        """On the driver: publishes them, unless this transaction was."""
        self.target.publish(messages, self.transaction)

    def abort(self, messages: Sequence[Any]) -> None:
        """Removes what is not needed any more; what was published stays."""
        self.target.sink().discard(self.transaction, self.job)


class _Streaming:
    """A micro-batch. The object is made anew for tasks and for commit, so query and batch identify it."""

    def __init__(self, target: _Target) -> None:
        self.target = target

    def _write(self, batches: Iterator[Any]) -> KStoreCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId")
        number = context.getLocalProperty("streaming.sql.batchId")
        if query is None or number is None:
            raise failure("KSTORE_UNSUPPORTED", "Spark does not tell the task its query and micro-batch")
        return self.target.write(batches, f"{query}-{number}", query)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """On the driver: publishes the micro-batch, unless it was."""
        queries = {message.query for message in messages if message is not None}
        source = source_of(self.target.options.checkpoint, batchId)
        for query in queries:
            self.target.publish(messages, Transaction(query, batchId), source)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Removes what is not needed any more; what was published stays."""
        for message in messages:
            if message is not None:
                self.target.sink().discard(Transaction(message.query, batchId), message.job, message.staged)


class KStoreStreamRowWriter(_Streaming, DataSourceStreamWriter):  # type: ignore[misc]
    """For Spark 4.0, which gives a stream's writer rows."""

    def __init__(self, target: _Target, schema: StructType) -> None:
        super().__init__(target)
        pa = require_pyarrow()
        own = {
            column.name: pa.string()
            for column in schema.fields
            if column.name in ("key", "value") and isinstance(column.dataType, StringType)
        }
        fields = [
            pa.field(field.name, own.get(field.name, field.type)) for field in arrow_schema(schema.names)
        ]
        self.schema = pa.schema(fields)

    def write(self, iterator: Iterator[Any]) -> KStoreCommitMessage:
        """In a task: stages its rows."""
        return self._write(self._batches(iterator))

    def _batches(self, rows: Iterator[Any]) -> Iterator[Any]:
        pa = require_pyarrow()
        while some := list(islice(rows, _ROWS)):
            cells = [row.asDict(recursive=True) for row in some]
            for row in cells:
                if row.get("timestamp") is not None:  # Spark makes it local, and does not say so
                    row["timestamp"] = row["timestamp"].astimezone(UTC)
            yield pa.RecordBatch.from_pylist(cells, schema=self.schema)


if DataSourceStreamArrowWriter is not None:

    class KStoreStreamWriter(_Streaming, DataSourceStreamArrowWriter):  # type: ignore[misc]
        """For Spark 4.1 and later."""

        def write(self, iterator: Iterator[Any]) -> KStoreCommitMessage:
            """In a task: stages its rows."""
            return self._write(iterator)


def batch_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> KStoreWriter:
    """The writer of a job; KSTORE_UNSUPPORTED for mode overwrite."""
    if overwrite:
        raise failure("KSTORE_UNSUPPORTED", 'a log is appended to: mode("append")')
    return KStoreWriter(_Target.of(given, schema))


def stream_writer(given: Mapping[str, str], schema: StructType) -> Any:
    """The writer of a query."""
    target = _Target.of(given, schema, stream=True)
    if DataSourceStreamArrowWriter is not None:
        return KStoreStreamWriter(target)
    return KStoreStreamRowWriter(target, schema)
