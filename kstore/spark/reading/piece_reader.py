"""The records of one piece of a split: as it was planned while its file is still the planned one, else as the
log is now."""

import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, cast

from kstore.engine.columns.array import ColumnBatch
from kstore.engine.record.batch import Record
from kstore.engine.scan.batch_reader import RecordReader
from kstore.engine.scan.column_builder import ColumnBuilder, Predicate
from kstore.engine.scan.column_scanner import ColumnScanner
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, KstoreError
from kstore.log.files.truncations import read_truncations
from kstore.log.partition import PartitionLog
from kstore.log.recovery.segment_factory import SegmentFactory
from kstore.spark.errors import SparkSourceError, failure, translated
from kstore.spark.paths import ROOT_MAP, mapped_root
from kstore.spark.reading.plan import Piece, Split
from kstore.typed import Column

_T = TypeVar("_T")


@dataclass(slots=True)
class PieceReader:
    """Reads the offsets from `start` to `stop` of a piece; `reached` is the next one."""

    split: Split
    piece: Piece
    directory: str
    start: int
    stop: int
    reached: int

    def records(self) -> Iterator[Record]:
        """The records. SparkSourceError."""

        def planned(segment: Segment) -> Iterator[Record]:
            return RecordReader(
                (segment,),
                self.start,
                self.stop,
                first_position=self.piece.position,
                byte_limit=self.piece.size,
                aborted=self._aborted(),
            )

        def now(log: PartitionLog) -> Iterator[Record]:
            return log.records(self.reached, self.stop, isolation=self._isolation)

        for record in self._read(planned, now):
            self.reached = record.offset + 1
            yield record

    def batches(self, names: tuple[str, ...], rows: int, size: int, first_rows: int) -> Iterator[ColumnBatch]:
        """The records in batches of these columns, of so many rows and bytes at most. SparkSourceError.

        `first_rows`: the most rows of the first batch, 0 if they are as many as of the others.
        """

        def planned(segment: Segment) -> Iterator[ColumnBatch]:
            return self._scan(segment, names, rows, size, first_rows)

        def now(log: PartitionLog) -> Iterator[ColumnBatch]:
            return iter(
                log.scan(
                    cast(tuple[Column, ...], names),
                    start=self.reached,
                    stop=self.stop,
                    isolation=self._isolation,
                    batch_rows=rows,
                    batch_bytes=size,
                )
            )

        for batch in self._read(planned, now):
            self.reached = int(batch.column("offset").values[-1]) + 1
            yield batch

    def _scan(
        self, segment: Segment, names: tuple[str, ...], rows: int, size: int, first_rows: int
    ) -> Iterator[ColumnBatch]:
        def scanner(start: int, rows: int) -> ColumnScanner:
            return ColumnScanner(
                (segment,), start, self.stop, first_position=self.piece.position, aborted=self._aborted()
            ).configure(
                ColumnBuilder(names, rows, size, False),
                Predicate(start, self.stop, None, None, None, None, None),
                split_end=self.piece.position + self.piece.size,
            )

        start = self.start
        if first_rows:
            first = next(scanner(start, first_rows), None)
            if first is None:
                return
            start = int(first.column("offset").values[-1]) + 1
            yield first
        yield from scanner(start, rows)

    def _read(
        self,
        planned: Callable[[Segment], Iterator[_T]],
        now: Callable[[PartitionLog], Iterator[_T]],
    ) -> Iterator[_T]:
        """What `planned` yields of the planned segment; if the file changes before the end, then what `now`
        yields."""
        try:
            segment = self._segment()
            if segment is None or not (yield from self._as_planned(segment, planned)):
                log = self._log_now()
                if log is not None:
                    yield from now(log)
            self._check_uncut()
        except (KstoreError, OSError) as e:
            raise translated(
                e,
                topic=self.split.topic,
                partition=self.split.partition,
                offset=self.reached,
                file=f"{self.directory}/{self.piece.stem}.log",
            ) from e

    def _as_planned(
        self, segment: Segment, planned: Callable[[Segment], Iterator[_T]]
    ) -> Generator[_T, None, bool]:
        """Returns whether the piece came to its end. The file stays open, and is what was planned."""
        try:
            yield from planned(segment)
        except (CorruptFileError, FileNotFoundError):
            if self._cut() < 0:
                raise
            return False
        if self.split.fail_on_data_loss and not self._has_its_size(segment):  # a broker notes no truncation
            raise self._lost(self.reached, _cut_off(self.reached))
        return True

    def _segment(self) -> Segment | None:
        """The planned segment; None if its file is another one now."""
        piece = self.piece
        make = SegmentFactory(self.directory)
        suffixes = dict(piece.suffixes) or None
        segment = make(piece.stem, piece.segment_offset, suffixes, piece.segment_end, piece.origin)
        try:
            segment.keep_open()
            is_same = segment.batch_at(piece.position).base_offset == piece.base_offset
        except (CorruptFileError, FileNotFoundError):
            return None
        # once it is open: a truncation puts another file in its place
        return segment if is_same and self._has_its_size(segment) and self._cut() < 0 else None

    def _has_its_size(self, segment: Segment) -> bool:
        piece = self.piece
        return bool(segment.file().size() >= piece.origin + piece.position + piece.size)

    def _log_now(self) -> PartitionLog | None:
        """The log after its files were changed; None if it is gone and failOnDataLoss is false."""
        split, start, stop = self.split, self.start, self.stop
        try:
            log = PartitionLog(self.directory)
            first, end = log.log_start_offset, log.log_end_offset
        except FileNotFoundError:
            if not os.path.isdir(mapped_root(split.root)):  # noqa: PTH112
                raise failure(
                    "KSTORE_PATH_NOT_FOUND",
                    f"this executor sees no log directory there; {ROOT_MAP}=FROM=TO in its environment maps "
                    "the path",
                    topic=split.topic,
                    partition=split.partition,
                    file=self.directory,
                ) from None
            first = end = start
            log = None
        self._check_uncut()
        if (log is None or first > start or end < stop) and split.fail_on_data_loss:
            found = "nothing" if log is None else f"offsets {first} to {end} (exclusive)"
            reason = (
                f"offsets {start} to {stop} (exclusive) were there when the job was planned, now there is "
                f"{found}; failOnDataLoss=false goes on without them"
            )
            raise self._lost(start, reason)
        return log

    @property
    def _isolation(self) -> Literal["read_uncommitted", "read_committed"]:
        return "read_uncommitted" if self.split.aborted is None else "read_committed"

    def _aborted(self) -> list[tuple[int, int, int]] | None:
        """The aborted transactions whose markers are not before the piece: the reader would wait for those
        markers."""
        if self.split.aborted is None:
            return None
        return [txn for txn in self.split.aborted if txn[2] >= self.piece.base_offset]

    def _cut(self) -> int:
        """The offset from which on records of the piece were truncated after the plan; -1 if none were."""
        if self.split.truncation < 0:
            return -1
        truncations = read_truncations(Path(self.directory))
        cut = truncations.since(self.split.truncation, self._isolation)
        return cut if cut < self.stop else -1

    def _check_uncut(self) -> None:
        """KSTORE_DATA_LOST if records of the piece were truncated after the plan."""
        cut = self._cut() if self.split.fail_on_data_loss else -1
        if cut >= 0:
            raise self._lost(self.reached, _cut_off(cut))

    def _lost(self, offset: int, reason: str) -> SparkSourceError:
        return failure(
            "KSTORE_DATA_LOST",
            reason,
            topic=self.split.topic,
            partition=self.split.partition,
            offset=offset,
            file=self.directory,
        )


def pieces_of(split: Split) -> Iterator[PieceReader]:
    """A reader for each piece of a split."""
    directory = f"{mapped_root(split.root)}/{split.topic}-{split.partition}"
    for number, piece in enumerate(split.pieces):
        following = split.pieces[number + 1 :]
        start = max(split.start, piece.base_offset)
        stop = min(split.stop, following[0].base_offset) if following else split.stop
        yield PieceReader(split, piece, directory, start, stop, start)


def _cut_off(offset: int) -> str:
    return (
        f"the log was truncated at offset {offset} after the job had been planned; "
        "failOnDataLoss=false goes on with what is there"
    )
