"""The records of a split as columns. `read_columns` is the one place that makes them: everything else takes them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy
from numpy.typing import NDArray

from kstore.engine.batch import CREATE_TIME, LOG_APPEND_TIME, Record
from kstore.engine.reader import RecordReader
from kstore.engine.segment import Segment
from kstore.errors import CorruptFileError, KstoreError
from kstore.log.partition import PartitionLog
from kstore.spark.errors import failure, translated
from kstore.spark.plan import Piece, Split

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""The columns there are, in the order of Spark's Kafka source; headers come when they are asked for."""

MAX_RECORDS = 65_536  # of a batch of columns; Spark's hand-over is fastest so (spec spark 2)
MAX_BYTES = 8 << 20
FIRST_RECORDS = 1_000  # of the first one: a LIMIT stops a task only between batches
_LOOK = 1_024  # records between two looks at the size
_TYPES = {CREATE_TIME: 0, LOG_APPEND_TIME: 1}
ROOT_MAP = "KSTORE_ROOT_MAP"


@dataclass(frozen=True, slots=True)
class Cells:
    """Keys or values: cell i is data[offsets[i]:offsets[i + 1]], or none at all where `nulls` is true."""

    offsets: NDArray[numpy.int32]
    data: bytes
    nulls: NDArray[numpy.bool_] | None

    @classmethod
    def of(cls, cells: Sequence[bytes | None]) -> "Cells":
        """From Python objects."""
        offsets = numpy.zeros(len(cells) + 1, numpy.int32)
        lengths = numpy.fromiter((0 if c is None else len(c) for c in cells), numpy.int32, len(cells))
        numpy.cumsum(lengths, out=offsets[1:])
        if None in cells:
            nulls = numpy.fromiter((c is None for c in cells), numpy.bool_, len(cells))
            return cls(offsets, b"".join(c for c in cells if c is not None), nulls)
        return cls(offsets, b"".join(cells), None)  # type: ignore[arg-type]

    @property
    def lengths(self) -> NDArray[numpy.int32]:
        """The bytes of every cell; 0 where there is none."""
        return numpy.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> bytes | None:
        if self.nulls is not None and self.nulls[i]:
            return None
        return self.data[self.offsets[i] : self.offsets[i + 1]]


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Records of one partition as numpy columns, in the order of their offsets; None for a column not asked for.

    timestamps are milliseconds, -1 for none; timestamp_types 0 for create time, 1 for log append time, -1 for none.
    It owns its bytes, so it can be kept and pickled.
    """

    topic: str
    partition: int
    offsets: NDArray[numpy.int64]
    timestamps: NDArray[numpy.int64] | None
    timestamp_types: NDArray[numpy.int32] | None
    keys: Cells | None
    values: Cells | None
    headers: list[tuple[tuple[str, bytes | None], ...]] | None

    def __len__(self) -> int:
        return len(self.offsets)


def read_columns(split: Split, columns: Sequence[str]) -> Iterator[ColumnBatch]:
    """The records of a split in batches of columns. (To be made of log.scan, which makes no object a record.)"""
    records = iterate(split)
    wanted = frozenset(columns)
    limit = FIRST_RECORDS
    while chunk := _take(records, limit):
        yield ColumnBatch(
            split.topic,
            split.partition,
            numpy.fromiter((r.offset for r in chunk), numpy.int64, len(chunk)),
            numpy.fromiter((r.timestamp for r in chunk), numpy.int64, len(chunk))
            if "timestamp" in wanted
            else None,
            numpy.fromiter((timestamp_type(r) for r in chunk), numpy.int32, len(chunk))
            if "timestampType" in wanted
            else None,
            Cells.of([r.key for r in chunk]) if "key" in wanted else None,
            Cells.of([r.value for r in chunk]) if "value" in wanted else None,
            [r.headers for r in chunk] if "headers" in wanted else None,
        )
        limit = MAX_RECORDS


def timestamp_type(record: Record) -> int:
    """0 for create time, 1 for log append time, -1 for none."""
    return _TYPES.get(record.timestamp_type, -1)


def _take(records: Iterator[Record], limit: int) -> list[Record]:
    """Up to `limit` records, fewer where they are large."""
    taken: list[Record] = []
    size = 0
    step = 1 if limit == FIRST_RECORDS else _LOOK
    while len(taken) < limit and size < MAX_BYTES:
        step = min(step, limit - len(taken))
        some = list(islice(records, step))
        if not some:
            break
        taken += some
        grown = sum(len(r.key or b"") + len(r.value or b"") for r in some)
        size += grown
        step = _LOOK if grown < step * 1024 else max(1, min(_LOOK, (MAX_BYTES - size) * step // (2 * grown)))
    return taken


def iterate(split: Split) -> Iterator[Record]:
    """The records of a split. SparkSourceError, with the offset up to which it came."""
    at = split.start
    directory = f"{mapped_root(split.root)}/{split.topic}-{split.partition}"
    for number, piece in enumerate(split.pieces):
        following = split.pieces[number + 1 :]
        stop = min(split.stop, following[0].base_offset) if following else split.stop
        try:
            for record in _records_of(split, piece, directory, max(at, piece.base_offset), stop):
                at = record.offset + 1
                yield record
        except (KstoreError, OSError) as e:
            file = f"{directory}/{piece.stem}.log"
            raise translated(e, topic=split.topic, partition=split.partition, offset=at, file=file) from e


def _records_of(split: Split, piece: Piece, directory: str, start: int, stop: int) -> Iterator[Record]:
    segment = Segment(
        directory,
        piece.stem,
        piece.segment_offset,
        piece.segment_end,
        dict(piece.suffixes) or None,
        piece.origin,
    )
    try:
        as_planned = segment.batch_at(piece.position).base_offset == piece.base_offset
    except (CorruptFileError, FileNotFoundError):
        as_planned = False
    if as_planned:
        aborted = _aborted(split, piece.base_offset)
        yield from RecordReader(
            (segment,), start, stop, first_position=piece.position, byte_limit=piece.size, aborted=aborted
        )
        return
    yield from _look_again(split, directory, start, stop)


def _aborted(split: Split, start: int) -> list[tuple[int, int]] | None:
    if split.aborted is None:
        return None
    # one whose marker lies before is over; the reader would wait for that marker
    return [(producer, first) for producer, first, marker in split.aborted if marker >= start]


def _look_again(split: Split, directory: str, start: int, stop: int) -> Iterator[Record]:
    """After retention, truncation or compaction changed the files since the splits were planned."""
    try:
        log = PartitionLog(directory)
        first, end = log.log_start_offset, log.log_end_offset
    except FileNotFoundError:
        if not os.path.isdir(mapped_root(split.root)):  # noqa: PTH112
            raise failure(
                "KSTORE_PATH_NOT_FOUND",
                f"this executor sees no log directory there; {ROOT_MAP}=FROM=TO in its environment maps the path",
                topic=split.topic,
                partition=split.partition,
                file=directory,
            ) from None
        first = end = start
        log = None
    missing = log is None or first > start or end < stop
    if missing and split.fail_on_data_loss:
        found = "nothing" if log is None else f"offsets {first} to {end} (exclusive)"
        raise failure(
            "KSTORE_DATA_LOST",
            f"offsets {start} to {stop} (exclusive) were there when the job was planned, now there is {found}; "
            "failOnDataLoss=false goes on without them",
            topic=split.topic,
            partition=split.partition,
            offset=start,
            file=directory,
        )
    if log is not None:
        isolation = "read_uncommitted" if split.aborted is None else "read_committed"
        yield from log.records(start, stop, isolation=isolation)


def mapped_root(root: str) -> str:
    """The root as this machine sees it: the environment variable KSTORE_ROOT_MAP is FROM=TO, several with : between."""
    for pair in os.environ.get(ROOT_MAP, "").split(os.pathsep):
        source, equals, target = pair.partition("=")
        source = source.rstrip("/")
        if equals and source and (root == source or root.startswith(source + "/")):
            return target.rstrip("/") + root[len(source) :]
    return root


# ---- Arrow --------------------------------------------------------------------------------------------------------


def require_pyarrow() -> Any:
    """The module pyarrow; KSTORE_NO_PYARROW."""
    try:
        import pyarrow
    except ImportError as e:
        raise failure("KSTORE_NO_PYARROW", f"{e}: pip install kstore[spark], on every machine") from e
    return pyarrow


def arrow_schema(columns: Sequence[str]) -> Any:
    """The Arrow schema of these columns: what Spark takes for the types of its Kafka source, nullable throughout."""
    pa = require_pyarrow()
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])


def to_arrow(batch: ColumnBatch, schema: Any) -> Any:
    """A RecordBatch with the columns of a schema that arrow_schema made."""
    pa = require_pyarrow()
    return pa.RecordBatch.from_arrays([_array(pa, batch, field) for field in schema], schema=schema)


def _array(pa: Any, batch: ColumnBatch, field: Any) -> Any:
    count = len(batch)
    match field.name:
        case "key" | "value":
            cells = batch.keys if field.name == "key" else batch.values
            assert cells is not None
            bits = None
            if cells.nulls is not None:
                bits = pa.py_buffer(numpy.packbits(~cells.nulls, bitorder="little"))
            return pa.Array.from_buffers(
                pa.binary(), count, [bits, pa.py_buffer(cells.offsets), pa.py_buffer(cells.data)]
            )
        case "topic":
            return pa.repeat(batch.topic, count)
        case "partition":
            return pa.repeat(pa.scalar(batch.partition, pa.int32()), count)
        case "offset":
            return pa.array(batch.offsets)
        case "timestamp":
            assert batch.timestamps is not None
            most = (2**63 - 1) // 1000  # ms beyond that have no us
            micros = numpy.clip(batch.timestamps, -most, most) * 1000
            return pa.array(micros).cast(field.type)
        case "timestampType":
            return pa.array(batch.timestamp_types)
        case _:
            assert batch.headers is not None
            lists = [[{"key": k, "value": v} for k, v in own] if own else None for own in batch.headers]
            return pa.array(lists, type=field.type)
