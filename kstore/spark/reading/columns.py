"""The records of a split as columns. `read_columns` is the one place that makes them: everything else takes them."""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import numpy
from numpy.typing import NDArray

from kstore.engine.columns import array as engine
from kstore.engine.record.batch import CREATE_TIME, LOG_APPEND_TIME, Record
from kstore.engine.scan.batch_reader import RecordReader
from kstore.engine.scan.column_builder import ColumnBuilder
from kstore.engine.scan.column_scanner import ColumnScanner
from kstore.engine.scan.predicate import Predicate
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, KstoreError
from kstore.log.files.truncations import read_truncations
from kstore.log.partition import PartitionLog
from kstore.log.recovery.segment_factory import SegmentFactory
from kstore.spark.errors import SparkSourceError, failure, translated
from kstore.spark.paths import ROOT_MAP, mapped_root
from kstore.spark.reading.plan import Piece, Split
from kstore.typed import Column

MAX_RECORDS = 65_536  # of a batch of columns; Spark's hand-over is fastest so (spec spark 2)
MAX_BYTES = 8 << 20
FIRST_RECORDS = 1_000  # of the first one: a LIMIT stops a task only between batches
_T = TypeVar("_T")
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
    """Records of one partition as numpy columns, in the order of their offsets; None for a column not asked for.

    timestamps are milliseconds, -1 for none; timestamp_types 0 for create time, 1 for log append time, -1 for none.
    It owns its bytes, so it can be kept and pickled.
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


def timestamp_type(record: Record) -> int:
    """0 for create time, 1 for log append time, -1 for none."""
    return _TYPES.get(record.timestamp_type, -1)


_CUT_OFF = "the log was truncated at offset {} after the job had been planned; failOnDataLoss=false goes on with what is there"


def read_columns(split: Split, columns: Sequence[str], *, small_first: bool = True) -> Iterator[ColumnBatch]:
    """The records of a split in batches of columns; no object is made a record. SparkSourceError."""
    wanted = ("offset", *(_SCANNED[name] for name in columns if name in _SCANNED))
    first = small_first and split.stop - split.start > FIRST_RECORDS
    for place in _places(split):
        try:
            for scanned in _scan(split, place, wanted, first):
                batch = _batch_of(split, scanned)
                place.reached = int(batch.offsets[-1]) + 1
                first = False
                yield batch
            _check_uncut(split, place)
        except (KstoreError, OSError) as e:
            raise place.error(split, e) from e


def iterate(split: Split) -> Iterator[Record]:
    """The records of a split, one by one. SparkSourceError."""
    for place in _places(split):
        try:
            for record in _records_of(split, place):
                place.reached = record.offset + 1
                yield record
            _check_uncut(split, place)
        except (KstoreError, OSError) as e:
            raise place.error(split, e) from e


@dataclass(slots=True)
class _Place:
    """A piece, where its directory is, what of it is to be read, and how far that has come."""

    piece: Piece
    directory: str
    start: int
    stop: int
    reached: int

    def error(self, split: Split, error: BaseException) -> SparkSourceError:
        file = f"{self.directory}/{self.piece.stem}.log"
        return translated(error, topic=split.topic, partition=split.partition, offset=self.reached, file=file)


def _places(split: Split) -> Iterator[_Place]:
    directory = f"{mapped_root(split.root)}/{split.topic}-{split.partition}"
    for number, piece in enumerate(split.pieces):
        following = split.pieces[number + 1 :]
        start = max(split.start, piece.base_offset)
        stop = min(split.stop, following[0].base_offset) if following else split.stop
        yield _Place(piece, directory, start, stop, start)


def _read(
    split: Split,
    place: _Place,
    planned: Callable[[Segment], Generator[_T, None, bool]],
    now: Callable[[PartitionLog], Iterator[_T]],
) -> Iterator[_T]:
    """A piece as it was planned, as far as it is there still: `planned` says whether it has come to the end. Then as it is `now`."""
    segment = _segment(split, place)
    if segment is not None:
        try:
            if (yield from planned(segment)):
                _check_size(split, place, segment)
                return
        except (CorruptFileError, FileNotFoundError):
            if _cut_of(split, place) < 0:
                raise
    log = _look_again(split, place)
    if log is not None:
        yield from now(log)


def _records_of(split: Split, place: _Place) -> Iterator[Record]:
    def planned(segment: Segment) -> Generator[Record, None, bool]:
        reader = RecordReader(
            (segment,),
            place.start,
            place.stop,
            first_position=place.piece.position,
            byte_limit=place.piece.size,
            aborted=_aborted(split, place),
        )
        reader._is_cut = lambda: _cut_of(split, place) >= 0
        yield from reader
        return reader._change is None

    def now(log: PartitionLog) -> Iterator[Record]:
        return log.records(place.reached, place.stop, isolation=_isolation(split))

    return _read(split, place, planned, now)


def _scan(
    split: Split, place: _Place, wanted: tuple[str, ...], small_first: bool
) -> Iterator[engine.ColumnBatch]:
    def planned(segment: Segment) -> Generator[engine.ColumnBatch, None, bool]:
        for batch in _scan_as_planned(split, place, segment, wanted, small_first):
            if _cut_of(split, place) >= 0:  # behind it: else it may be what came instead
                return False
            yield batch
        return True

    def now(log: PartitionLog) -> Iterator[engine.ColumnBatch]:
        scan = log.scan(
            cast(tuple[Column, ...], wanted),
            start=place.reached,
            stop=place.stop,
            isolation=_isolation(split),
            batch_rows=MAX_RECORDS,
            batch_bytes=MAX_BYTES,
        )
        return iter(scan)

    return _read(split, place, planned, now)


def _scan_as_planned(
    split: Split, place: _Place, segment: Segment, wanted: tuple[str, ...], small_first: bool
) -> Iterator[engine.ColumnBatch]:
    def scanner(start: int, rows: int) -> ColumnScanner:
        return ColumnScanner(
            (segment,), start, place.stop, first_position=place.piece.position, aborted=_aborted(split, place)
        ).configure(
            ColumnBuilder(wanted, rows, MAX_BYTES, False),
            Predicate(start, place.stop, None, None, None, None, None),
            split_end=place.piece.position + place.piece.size,
        )

    start = place.start
    if small_first:
        small = next(scanner(start, FIRST_RECORDS), None)
        if small is None:
            return
        start = int(small.column("offset").values[-1]) + 1
        yield small
    yield from scanner(start, MAX_RECORDS)


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


def _segment(split: Split, place: _Place) -> Segment | None:
    """The segment of a piece; None if it is not what it was when the splits were planned."""
    if _cut_of(split, place) >= 0:
        return None
    piece = place.piece
    make = SegmentFactory(place.directory)
    suffixes = dict(piece.suffixes) or None
    segment = make(piece.stem, piece.segment_offset, suffixes, piece.segment_end, piece.origin)
    try:
        as_planned = (
            segment.batch_at(piece.position).base_offset == piece.base_offset
            and segment.file().size() >= piece.origin + piece.position + piece.size
        )
    except (CorruptFileError, FileNotFoundError):
        return None
    return segment if as_planned else None


def _isolation(split: Split) -> Literal["read_uncommitted", "read_committed"]:
    return "read_uncommitted" if split.aborted is None else "read_committed"


def _aborted(split: Split, place: _Place) -> list[tuple[int, int, int]] | None:
    if split.aborted is None:
        return None
    # one whose marker lies before is over; the reader would wait for that marker
    return [txn for txn in split.aborted if txn[2] >= place.piece.base_offset]


def _cut_of(split: Split, place: _Place) -> int:
    """From which offset on records of a piece were cut off after it was planned; -1 if none were."""
    if split.truncation < 0:
        return -1
    cut = read_truncations(Path(place.directory)).since(split.truncation, _isolation(split))
    return cut if cut < place.stop else -1


def _check_uncut(split: Split, place: _Place) -> None:
    """KSTORE_DATA_LOST if records of a piece were cut off after it was planned."""
    cut = _cut_of(split, place) if split.fail_on_data_loss else -1
    if cut >= 0:
        raise _lost(split, place, place.reached, _CUT_OFF.format(cut))


def _check_size(split: Split, place: _Place, segment: Segment) -> None:
    """The same, of a log whose truncations nobody notes: by the size of the file that was read."""
    piece = place.piece
    if split.fail_on_data_loss and segment.file().size() < piece.origin + piece.position + piece.size:
        raise _lost(split, place, place.reached, _CUT_OFF.format(place.reached))


def _lost(split: Split, place: _Place, offset: int, reason: str) -> SparkSourceError:
    return failure(
        "KSTORE_DATA_LOST",
        reason,
        topic=split.topic,
        partition=split.partition,
        offset=offset,
        file=place.directory,
    )


def _look_again(split: Split, place: _Place) -> PartitionLog | None:
    """The log, after retention, truncation or compaction changed the files since the splits were planned."""
    start, stop = place.start, place.stop
    try:
        log = PartitionLog(place.directory)
        first, end = log.log_start_offset, log.log_end_offset
    except FileNotFoundError:
        if not os.path.isdir(mapped_root(split.root)):  # noqa: PTH112
            raise failure(
                "KSTORE_PATH_NOT_FOUND",
                f"this executor sees no log directory there; {ROOT_MAP}=FROM=TO in its environment maps the path",
                topic=split.topic,
                partition=split.partition,
                file=place.directory,
            ) from None
        first = end = start
        log = None
    _check_uncut(split, place)
    missing = log is None or first > start or end < stop
    if missing and split.fail_on_data_loss:
        found = "nothing" if log is None else f"offsets {first} to {end} (exclusive)"
        reason = (
            f"offsets {start} to {stop} (exclusive) were there when the job was planned, now there is {found}; "
            "failOnDataLoss=false goes on without them"
        )
        raise _lost(split, place, start, reason)
    return log
