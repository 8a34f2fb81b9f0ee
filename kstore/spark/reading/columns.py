"""The records of a split, as columns and as tuples."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy
from numpy.typing import NDArray

from kstore.engine.columns import array as engine
from kstore.engine.record.batch import CREATE_TIME, LOG_APPEND_TIME
from kstore.spark.reading.piece_reader import pieces_of
from kstore.spark.reading.plan import Split

MAX_RECORDS = 65_536  # of a batch of columns; Spark's hand-over is fastest so (spec spark 2)
MAX_BYTES = 8 << 20
FIRST_RECORDS = 1_000  # of the first one: a LIMIT stops a task only between batches
_TYPES = {CREATE_TIME: 0, LOG_APPEND_TIME: 1}
_SCANNED = {
    "key": "key",
    "value": "value",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}


@dataclass(frozen=True, slots=True)
class BinaryInput:
    """Keys or values: cell i is data[offsets[i]:offsets[i + 1]], or none at all where `nulls` is true."""

    offsets: NDArray[numpy.int32]
    data: NDArray[numpy.uint8]
    nulls: NDArray[numpy.bool_] | None

    @property
    def lengths(self) -> NDArray[numpy.int32]:
        """The bytes of every cell; 0 where there is none."""
        return numpy.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> bytes | None:
        if self.nulls is not None and self.nulls[i]:
            return None
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()


@dataclass(frozen=True, slots=True)
class HeaderCells:
    """Headers: those of record i are cells bounds[i] to bounds[i + 1] of `names` and `values`."""

    bounds: NDArray[numpy.int32]
    names: BinaryInput
    values: BinaryInput

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, i: int) -> tuple[tuple[str, bytes | None], ...]:
        own = range(self.bounds[i], self.bounds[i + 1])
        return tuple(((self.names[at] or b"").decode(), self.values[at]) for at in own)


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Records of one partition as numpy columns, in the order of their offsets; None for a column not asked
    for.

    timestamps are milliseconds, -1 for none; timestamp_types 0 for create time, 1 for log append time, -1 for
    none. It owns its bytes, so it can be kept and pickled.
    """

    topic: str
    partition: int
    offsets: NDArray[numpy.int64]
    timestamps: NDArray[numpy.int64] | None
    timestamp_types: NDArray[numpy.int32] | None
    keys: BinaryInput | None
    values: BinaryInput | None
    headers: HeaderCells | None

    def __len__(self) -> int:
        return len(self.offsets)


def read_columns(split: Split, columns: Sequence[str], *, small_first: bool = True) -> Iterator[ColumnBatch]:
    """The records of a split in batches of columns; no object is made a record. SparkSourceError."""
    for scanned in _scanned(split, columns, small_first=small_first):
        yield _batch_of(split, scanned)


def read_tuples(split: Split, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The records of a split as tuples of these columns. SparkSourceError."""
    for scanned in _scanned(split, columns, small_first=True):
        yield from zip(*(_list(split, scanned, name) for name in columns), strict=True)


def _scanned(split: Split, columns: Sequence[str], *, small_first: bool) -> Iterator[engine.ColumnBatch]:
    wanted = ("offset", *(_SCANNED[name] for name in columns if name in _SCANNED))
    first_rows = FIRST_RECORDS if small_first and split.stop - split.start > FIRST_RECORDS else 0
    for piece in pieces_of(split):
        for scanned in piece.batches(wanted, MAX_RECORDS, MAX_BYTES, first_rows):
            first_rows = 0
            yield scanned


def _list(split: Split, scanned: engine.ColumnBatch, name: str) -> Iterable[Any]:
    match name:
        case "topic":
            return repeat(split.topic, len(scanned))
        case "partition":
            return repeat(split.partition, len(scanned))
        case "timestampType":
            return (_TYPES.get(word, -1) for word in scanned.column("timestamp_type").to_list())
        case _:
            return scanned.column(name).to_list()


def _cells(values: engine.ArrayData) -> BinaryInput:
    valid = values.validity
    return BinaryInput(values.offsets, values.data, None if valid is None else ~valid)


def _batch_of(split: Split, scanned: engine.ColumnBatch) -> ColumnBatch:
    names = scanned.names
    types = headers = None
    if "timestamp_type" in names:
        column = scanned.column("timestamp_type")
        assert column.field.dictionary is not None
        numbers = [_TYPES.get(word, -1) for word in column.field.dictionary.to_list()]
        types = numpy.array(numbers, numpy.int32)[column.values]
    if "headers" in names:
        lists = scanned.column("headers")
        pairs = lists.children[0]
        headers = HeaderCells(lists.offsets, _cells(pairs.children[0]), _cells(pairs.children[1]))
    return ColumnBatch(
        split.topic,
        split.partition,
        scanned.column("offset").values,
        scanned.column("timestamp").values if "timestamp" in names else None,
        types,
        _cells(scanned.column("key")) if "key" in names else None,
        _cells(scanned.column("value")) if "value" in names else None,
        headers,
    )
