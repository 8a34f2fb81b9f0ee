"""The records of splits as Arrow batches, in the types of Spark's Kafka source."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from kstore.log.files.layout import TopicPartition
from kstore.spark.arrow import arrow_schema, require_pyarrow
from kstore.spark.errors import failure
from kstore.spark.reading.columns import (
    FIRST_RECORDS,
    MAX_BYTES,
    MAX_RECORDS,
    BinaryInput,
    ColumnBatch,
    read_columns,
)
from kstore.spark.reading.plan import Split

_MAX_MS = (2**63 - 1) // 1000  # of a time that 64 bits of microseconds can hold


def to_arrow(batch: ColumnBatch, schema: Any) -> Any:
    """A RecordBatch with the columns of a schema that arrow_schema made."""
    pa = require_pyarrow()
    return pa.RecordBatch.from_arrays([_array(pa, batch, field) for field in schema], schema=schema)


def read_arrow(splits: Iterable[Split], columns: Sequence[str]) -> Iterator[Any]:
    """The records of splits as RecordBatches with these columns. What small splits give is joined: each batch
    has its cost on the way to the JVM."""
    pa = require_pyarrow()
    schema = arrow_schema(columns)
    waiting: list[Any] = []
    rows = size = 0
    most = FIRST_RECORDS
    for split in splits:
        for batch in read_columns(split, columns, small_first=most == FIRST_RECORDS):
            made = to_arrow(batch, schema)
            waiting.append(made)
            rows += made.num_rows
            size += made.nbytes
            if rows >= most or size >= MAX_BYTES // 2:
                yield from _joined(pa, waiting)
                waiting, rows, size, most = [], 0, 0, MAX_RECORDS // 2
    yield from _joined(pa, waiting)


def _joined(pa: Any, batches: list[Any]) -> list[Any]:
    if len(batches) < 2:
        return batches
    return list(pa.Table.from_batches(batches).combine_chunks().to_batches())


def _bytes_array(pa: Any, kind: Any, cells: BinaryInput) -> Any:
    bits = None if cells.nulls is None else pa.py_buffer(numpy.packbits(~cells.nulls, bitorder="little"))
    return pa.Array.from_buffers(
        kind, len(cells), [bits, pa.py_buffer(cells.offsets), pa.py_buffer(cells.data)]
    )


def _microseconds(batch: ColumnBatch) -> NDArray[numpy.int64]:
    """The timestamps as Spark has them. KSTORE_TIMESTAMP_OUT_OF_RANGE: Spark's Kafka source raises an error,
    too."""
    assert batch.timestamps is not None
    wrong = numpy.flatnonzero((batch.timestamps > _MAX_MS) | (batch.timestamps < -_MAX_MS))
    if len(wrong):
        raise failure(
            "KSTORE_TIMESTAMP_OUT_OF_RANGE",
            f"the record's timestamp, {batch.timestamps[wrong[0]]} ms, exceeds Spark's type TIMESTAMP, which "
            "ends in the "
            "year 294247. Read without the column timestamp, by .schema(…) or columns=…, or read "
            "milliseconds by "
            'partition_reader("batches") or ("records")',
            TopicPartition(batch.topic, batch.partition),
            offset=int(batch.offsets[wrong[0]]),
        )
    return batch.timestamps * 1000


def _array(pa: Any, batch: ColumnBatch, field: Any) -> Any:
    count = len(batch)
    match field.name:
        case "key" | "value":
            cells = batch.keys if field.name == "key" else batch.values
            assert cells is not None
            return _bytes_array(pa, field.type, cells)
        case "topic":
            return pa.repeat(batch.topic, count)
        case "partition":
            return pa.repeat(pa.scalar(batch.partition, pa.int32()), count)
        case "offset":
            return pa.array(batch.offsets)
        case "timestamp":
            return pa.array(_microseconds(batch)).cast(field.type)
        case "timestampType":
            return pa.array(batch.timestamp_types)
        case _:
            assert batch.headers is not None
            bounds = batch.headers.bounds
            pairs = pa.StructArray.from_arrays(
                [
                    _bytes_array(pa, pa.string(), batch.headers.names),
                    _bytes_array(pa, pa.binary(), batch.headers.values),
                ],
                fields=list(field.type.value_type),
            )
            # none at all: null, as in Kafka's source
            some = numpy.packbits(numpy.diff(bounds) > 0, bitorder="little")
            return pa.Array.from_buffers(
                field.type, count, [pa.py_buffer(some), pa.py_buffer(bounds)], children=[pairs]
            )
