"""The records of one piece of a split, as columns: as it was planned while its file is still the planned one,
else as the log is now."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal, TypeVar, cast

from kstore.engine.columns.array import ColumnBatch
from kstore.engine.scan.column_builder import ColumnBuilder, Predicate
from kstore.engine.scan.column_scanner import ColumnScanner
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, KstoreError, LogChangedError, LogNotFoundError
from kstore.log.follow.position import are_of_one_topic, diverged_at, history_of, topic_id_of
from kstore.log.partition import PartitionLog
from kstore.log.read.left_out import LeftOut
from kstore.log.read.scan import Scan
from kstore.log.recovery.segment_factory import SegmentFactory
from kstore.spark.errors import RECREATED, SparkSourceError, coded, failure, translated
from kstore.spark.logs import reported_to
from kstore.spark.paths import ROOT_MAP, mapped_root
from kstore.spark.reading.places import partition_directory
from kstore.spark.reading.plan import Piece, Split
from kstore.typed import Column

_T = TypeVar("_T")
_R = TypeVar("_R", ColumnScanner, Scan)
_SINCE = "after the job had been planned; failOnDataLoss=false goes on with what is there"


@dataclass(slots=True)
class PieceReader:
    """Reads the offsets from `start` to `stop` of a piece; `reached` is the next one."""

    split: Split
    piece: Piece
    directory: str
    start: int
    stop: int
    reached: int
    _readers: list[ColumnScanner | Scan] = field(
        default_factory=list
    )  # whose `skipped` lists damaged batches

    def batches(self, names: tuple[str, ...], rows: int, size: int, first_rows: int) -> Iterator[ColumnBatch]:
        """The records in batches of these columns, of so many rows and bytes at most. SparkSourceError.

        `first_rows`: the most rows of the first batch, 0 if they are as many as of the others.
        """

        def planned(segment: Segment) -> Iterator[ColumnBatch]:
            return self._scan(segment, names, rows, size, first_rows)

        def now(log: PartitionLog) -> Iterator[ColumnBatch]:
            scan = log.scan(
                cast(tuple[Column, ...], names),
                start=self.reached,
                stop=self.stop,
                isolation=self._isolation,
                batch_rows=rows,
                batch_bytes=size,
                on_error=self._on_error,
            )
            return iter(self._noted(scan))

        for batch in self._read(planned, now):
            self.reached = int(batch.column("offset").values[-1]) + 1
            yield batch

    def _scan(
        self, segment: Segment, names: tuple[str, ...], rows: int, size: int, first_rows: int
    ) -> Iterator[ColumnBatch]:
        def scanner(start: int, rows: int) -> ColumnScanner:
            scanner = ColumnScanner(
                (segment,),
                start,
                self.stop,
                first_position=self.piece.position,
                aborted=self._aborted(),
                on_error=self._on_error,
            )
            return self._noted(scanner).configure(
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
        """What `planned` yields of the planned segment; from where that ends, or if it is gone, what `now`
        yields of the log."""
        try:
            segment = self._segment()
            if segment is None:
                yield from self._as_now(now)
            else:
                yield from self._as_planned(segment, planned, now)
            self._check_diverged()
        except (KstoreError, OSError) as e:
            file = f"{self.directory}/{self.piece.stem}.log"
            raise translated(e, self.split.tp, offset=self.reached, file=file) from e
        finally:
            self._log_skipped()

    # ---- as planned ----------------------------------------------------------------------------------------

    def _as_planned(
        self,
        segment: Segment,
        planned: Callable[[Segment], Iterator[_T]],
        now: Callable[[PartitionLog], Iterator[_T]],
    ) -> Iterator[_T]:
        """What `planned` yields, and what `now` yields if a broker truncates the file meanwhile."""
        try:
            yield from planned(segment)
            is_changed = not self._is_whole(segment)
        except (CorruptFileError, FileNotFoundError):
            is_changed = not self._is_whole(segment) or bool(self._divergence())
            if not is_changed:
                raise
        if is_changed:
            if self.split.fail_on_data_loss:
                why = self._divergence() or f"the log was truncated at offset {self.reached}"
                raise self._lost(self.reached, f"{why} {_SINCE}")
            yield from self._as_now(now)

    def _segment(self) -> Segment | None:
        """The planned segment, whose file stays open; None if its file is another one now."""
        piece = self.piece
        make = SegmentFactory(self.directory)
        suffixes = dict(piece.suffixes) or None
        segment = make(piece.stem, piece.segment_offset, suffixes, piece.segment_end, piece.origin)
        try:
            segment.files.keep_open()
            if self._is_whole(segment) and self._has_its_batches(segment) and not self._divergence():
                return segment
        except (CorruptFileError, FileNotFoundError):
            pass
        return None

    def _is_whole(self, segment: Segment) -> bool:
        piece = self.piece
        return bool(segment.file().size() >= piece.origin + piece.position + piece.size)

    def _has_its_batches(self, segment: Segment) -> bool:
        """Whether batches begin where the piece begins and ends. A compaction moves those behind what it
        removes."""
        piece, end = self.piece, self.piece.position + self.piece.size
        if segment.batch_at(piece.position).base_offset != piece.base_offset:
            return False
        if segment.size <= end:
            return True
        after = segment.batch_at(end).base_offset
        return after >= self.stop if piece.next_offset < 0 else after == piece.next_offset

    # ---- as the log is now ---------------------------------------------------------------------------------

    def _as_now(self, now: Callable[[PartitionLog], Iterator[_T]]) -> Iterator[_T]:
        """What `now` yields of the log, view after view. Nothing if it is gone and failOnDataLoss is
        false."""
        log = self._log()
        while log is not None:
            self._check_there(log)
            try:
                yield from now(log)
                return
            except LogChangedError:
                if not log.refresh():
                    raise

    def _log(self) -> PartitionLog | None:
        split = self.split
        try:
            return PartitionLog(self.directory)
        except LogNotFoundError:
            if not os.path.isdir(mapped_root(split.root)):
                reason = (
                    f"this executor sees no log directory there; {ROOT_MAP}=FROM=TO in its environment maps "
                    "the path"
                )
                raise failure("KSTORE_PATH_NOT_FOUND", reason, split.tp, file=self.directory) from None
        if split.fail_on_data_loss:
            raise self._lost(self.start, self._not_there("nothing"))
        return None

    def _check_there(self, log: PartitionLog) -> None:
        """KSTORE_DATA_LOST unless the log holds the offsets that are left to read."""
        self._check_diverged()
        first, end = log.log_start_offset, log.log_end_offset
        if self.split.fail_on_data_loss and not first <= self.reached <= self.stop <= end:
            raise self._lost(self.reached, self._not_there(f"offsets {first} to {end} (exclusive)"))

    # ---- what holds for both -------------------------------------------------------------------------------

    @property
    def _on_error(self) -> Literal["raise", "skip"]:
        return "raise" if self.split.fail_on_corrupt_batch else "skip"

    def _noted(self, reader: _R) -> _R:
        self._readers.append(reader)
        return reader

    def _log_skipped(self) -> None:
        """A warning with the count, if damaged batches were skipped."""
        left_out = LeftOut()
        for reader in self._readers:
            left_out.note(reader.skipped)
        if skipped := left_out.listed():
            topic, partition = self.split.tp
            reported_to("kstore.spark.source").warning(
                "KSTORE_CORRUPT_BATCH: topic %s, partition %d, file %s: %d corrupt batches were skipped, %d "
                "bytes; the first at byte %d: %s",
                topic,
                partition,
                skipped[0].file,
                len(skipped),
                sum(each.size for each in skipped),
                skipped[0].position,
                skipped[0].error,
            )

    @property
    def _isolation(self) -> Literal["read_uncommitted", "read_committed"]:
        return "read_uncommitted" if self.split.aborted is None else "read_committed"

    def _aborted(self) -> list[tuple[int, int, int]] | None:
        """The aborted transactions whose markers are not before the piece: the reader would wait for those
        markers."""
        if self.split.aborted is None:
            return None
        return [txn for txn in self.split.aborted if txn[2] >= self.piece.first_offset]

    def _divergence(self) -> str:
        """What removed records of the piece after the plan; "" if nothing did."""
        planned = self.split.planned
        if planned is None:
            return ""
        if planned.topic_id and not are_of_one_topic(planned.topic_id, topic_id_of(self.directory)):
            return RECREATED
        cut = diverged_at(history_of(self.directory), planned.at(self.stop), self._isolation)
        return "" if cut < 0 else f"the log was truncated at offset {cut}"

    def _check_diverged(self) -> None:
        """KSTORE_DATA_LOST if records of the piece were removed after the plan by a truncation, or with their
        topic."""
        why = self._divergence() if self.split.fail_on_data_loss else ""
        if why:
            raise self._lost(self.reached, f"{why} {_SINCE}")

    def _not_there(self, found: str) -> str:
        return (
            f"offsets {self.start} to {self.stop} (exclusive) were there when the job was planned, now there "
            f"is {found}; failOnDataLoss=false goes on without them"
        )

    def _lost(self, offset: int, reason: str) -> SparkSourceError:
        return failure("KSTORE_DATA_LOST", reason, self.split.tp, offset=offset, file=self.directory)


def pieces_of(split: Split) -> Iterator[PieceReader]:
    """A reader for each piece of a split, to be used before the next. SparkSourceError."""
    with ExitStack() as stack:
        with coded(split.tp, offset=split.start, file=split.root):
            try:
                directory = stack.enter_context(partition_directory(split.root, split.tp))
            except LogNotFoundError as e:
                if not split.fail_on_data_loss:
                    return
                raise failure("KSTORE_DATA_LOST", f"{e}, {_SINCE}", split.tp, file=split.root) from None
        for number, piece in enumerate(split.pieces):
            following = split.pieces[number + 1 :]
            start = max(split.start, piece.first_offset)
            stop = min(split.stop, following[0].first_offset) if following else split.stop
            yield PieceReader(split, piece, directory, start, stop, start)
