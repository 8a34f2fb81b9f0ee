"""One partition: a directory of segments, read as Kafka would read it."""

import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from kstore.engine.batch import Record
from kstore.engine.index import AbortedTxn
from kstore.engine.reader import BatchReader, RecordReader
from kstore.engine.segment import Located, OffsetAndTimestamp, Segment
from kstore.errors import LogClosedError, OffsetOutOfRangeError
from kstore.log import checkpoints, layout
from kstore.log.layout import TopicPartition
from kstore.log.loader import Recovery, load
from kstore.log.producers import ProducerState
from kstore.log.slice import Slice
from kstore.log.transactions import Transactions

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_NAMED = {
    "earliest": EARLIEST,
    "latest": LATEST,
    "max": MAX_TIMESTAMP,
    "max_timestamp": MAX_TIMESTAMP,
    "earliest_local": EARLIEST_LOCAL,
}
_ISOLATION = ("read_uncommitted", "read_committed")
_NOT_NAMED = OffsetAndTimestamp(-1, -1, None)
_base_offset = attrgetter("base_offset")


class PartitionLog:
    """A partition directory opened for reading: a view of what it held when it was opened. Writes nothing, locks nothing.

    After an unclean stop the view is what Kafka would have after its recovery; `recovery` says what lies beyond.
    Thread-safe: nothing in it changes.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        clean: bool | None = None,
        recovery_point: int | None = None,
        log_start_offset: int | None = None,
        index_interval_bytes: int = 4096,
        max_decompressed_bytes: int = 256 << 20,
        recover: bool = True,
    ) -> None:
        self.path = fspath(path)
        self._loaded = load(
            Path(path),
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            index_interval_bytes=index_interval_bytes,
            max_decompressed_bytes=max_decompressed_bytes,
            recover=recover,
        )
        self._segments: tuple[Segment, ...] | None = self._loaded.segments
        self._transactions: Transactions | None = None
        self._reached: list[int] = []  # the largest timestamp of the segments up to each, as far as asked
        self._reaching = Lock()

    # ---- what there is --------------------------------------------------------------------------------------------

    @property
    def topic_partition(self) -> TopicPartition | None:
        """Topic and partition by the directory's name; None for a directory that is not named so."""
        return layout.parse_directory(Path(self.path).resolve().name)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in order of their base offsets."""
        if self._segments is None:
            raise LogClosedError(f"{self.path} is closed")
        return self._segments

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers may ask for; it may lie inside a segment, or inside a batch."""
        return self._loaded.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record would get."""
        return self._loaded.log_end_offset

    @property
    def recovery(self) -> Recovery:
        """What loading found that is not as a clean shutdown leaves it."""
        return self._loaded.recovery

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """(epoch, start offset) of every leader epoch known."""
        return self._loaded.leader_epochs.entries

    def _read_transactions(self) -> Transactions:
        if self._transactions is None:
            self._transactions = Transactions(self.path, self._loaded)
        return self._transactions

    def last_stable_offset(self) -> int:
        """Where readers of committed data must stop: the beginning of the oldest open transaction, or the end.

        The first call reads the headers from the newest producer snapshot on.
        """
        return self._read_transactions().last_stable_offset

    def producers(self) -> dict[int, ProducerState]:
        """The state of every producer id that the log remembers."""
        return self._read_transactions().producers.states

    def topic_id(self) -> uuid.UUID | None:
        """The topic id in partition.metadata, None where there is no such file. CorruptCheckpointError."""
        try:
            return checkpoints.read_topic_id(Path(self.path, layout.METADATA))
        except FileNotFoundError:
            return None

    # ---- reading --------------------------------------------------------------------------------------------------

    def floor_segment(self, offset: int) -> int:
        """The index in `segments` of the one with the largest base offset <= `offset`; -1 if all lie above."""
        return bisect_right(self.segments, offset, key=_base_offset) - 1

    def translate(self, offset: int) -> Located | None:
        """The batch in the floor segment of `offset` with the first last offset >= it, None past its end."""
        at = self.floor_segment(offset)
        return self.segments[at].translate(offset) if at >= 0 else None

    def read(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        isolation: str = "read_uncommitted",
        *,
        min_one_message: bool = True,
        on_error: str = "raise",
    ) -> Slice:
        """The bytes from the batch that holds `offset` on, at most `max_bytes` of one segment (spec 7.1).

        A batch larger than max_bytes comes whole when it is the first, unless min_one_message is false. Reading at the
        log end offset gives an empty slice; OffsetOutOfRangeError below the start or above the end.
        """
        if max_bytes < 0:
            raise ValueError(f"max_bytes {max_bytes} must not be negative")
        committed = self._is_committed(isolation)
        segments = self.segments
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, end)
        bound = self.last_stable_offset() if committed else end
        bound_at, bound_position = len(segments), 0
        if bound < end:  # the bound becomes the beginning of the batch that holds it (spec 7.3)
            bound, bound_at, bound_position = self._position_of(bound)
        if offset < bound:
            at = max(self.floor_segment(offset), 0)
            while at < min(bound_at + 1, len(segments)):
                segment = segments[at]
                located = segment.translate(offset)
                if located is not None:
                    size = max(max_bytes, located.size) if min_one_message else max_bytes
                    end_position = bound_position if at == bound_at else segment.size
                    size = max(0, min(size, end_position - located.position))
                    aborted = self._aborted_in(at, offset, located.position, size) if committed else None
                    return Slice(
                        segment,
                        offset,
                        located.position,
                        size,
                        first_batch_size=located.size,
                        aborted=aborted,
                        stop_offset=bound,
                        on_error=on_error,
                    )
                at += 1
        return self._empty(offset, committed)

    def from_file_start(self) -> "PartitionLog":
        """The same log with everything readable that its files still hold, below the log start offset too."""
        twin = object.__new__(PartitionLog)
        twin.__dict__.update(self.__dict__)
        first = self.segments[0].base_offset if self.segments else self.log_start_offset
        twin._loaded = replace(self._loaded, log_start_offset=min(first, self.log_start_offset))
        return twin

    def _is_committed(self, isolation: str) -> bool:
        if isolation not in _ISOLATION:
            raise ValueError(f"isolation is one of {', '.join(_ISOLATION)}, not {isolation!r}")
        return isolation == "read_committed"

    def _empty(self, offset: int, committed: bool) -> Slice:
        if not self.segments:
            return Slice(None, offset, 0, 0)
        _, at, position = self._position_of(offset)
        aborted: list[tuple[int, int]] | None = [] if committed else None
        return Slice(self.segments[at], offset, position, 0, aborted=aborted)

    def _position_of(self, offset: int) -> tuple[int, int, int]:
        """(base offset, index of the segment, position) of the batch that holds `offset`, or of the next, or the end."""
        for at in range(max(self.floor_segment(offset), 0), len(self.segments)):
            located = self.segments[at].translate(offset)
            if located is not None:
                return located.base_offset, at, located.position
        return self.log_end_offset, len(self.segments) - 1, self.segments[-1].size

    def _aborted_in(self, at: int, offset: int, position: int, size: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that these bytes may hold (spec 7.2)."""
        segment = self.segments[at]
        bound = segment.offset_index.fetch_upper_bound(position, size)
        if bound is not None:
            upper = bound.offset
        else:
            upper = self.segments[at + 1].base_offset if at + 1 < len(self.segments) else self.log_end_offset
        found = self._read_transactions().aborted(self.segments[at:], offset, upper)
        return [(txn.producer_id, txn.first_offset) for txn in found]

    def aborted_transactions(self, start: int, stop: int) -> list[AbortedTxn]:
        """The aborted transactions that may concern the offsets start .. stop, in the order of their markers.

        As Kafka's: from the segment that holds `start` on, so some may end before it (spec 10.4).
        """
        at = max(self.floor_segment(start), 0)
        return self._read_transactions().aborted(self.segments[at:], self.log_start_offset, stop)

    def get(self, offset: int) -> Record:
        """The first record of data at or after `offset`. OffsetOutOfRangeError where there is none."""
        if self.log_start_offset <= offset < self.log_end_offset:
            segments = self.segments
            for at in range(max(self.floor_segment(offset), 0), len(segments)):
                record = segments[at].get(offset)
                if record is not None:
                    return record
        raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)

    def records(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        isolation: str = "read_uncommitted",
        on_error: str = "raise",
        control: bool = False,
    ) -> RecordReader:
        """An iterator of the records with start <= offset < stop; both default to the ends of the log.

        Transaction markers are left out unless `control` is true. on_error="skip" goes on at the next good batch and
        lists what it left out in `.skipped` of the iterator; "raise" raises CorruptRecordError.
        """
        segments, start, stop, aborted = self._range(start, stop, isolation)
        return RecordReader(segments, start, stop, on_error=on_error, control=control, aborted=aborted)

    def batches(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        isolation: str = "read_uncommitted",
        on_error: str = "raise",
    ) -> BatchReader:
        """The same for whole batches, control batches included: those that hold an offset of the range."""
        segments, start, stop, aborted = self._range(start, stop, isolation)
        return BatchReader(segments, start, stop, on_error=on_error, aborted=aborted)

    def _range(
        self, start: int | None, stop: int | None, isolation: str
    ) -> tuple[tuple[Segment, ...], int, int, list[tuple[int, int]] | None]:
        committed = self._is_committed(isolation)
        start = self.log_start_offset if start is None else max(start, self.log_start_offset)
        stop = self.log_end_offset if stop is None else min(stop, self.log_end_offset)
        at = max(self.floor_segment(start), 0)
        aborted = None
        if committed:
            stop = min(stop, self.last_stable_offset())
            # only those that end at `start` or later: readers forget a producer at its marker, and see no earlier one
            found = self._read_transactions().aborted(self.segments[at:], start, stop)
            aborted = [(txn.producer_id, txn.first_offset) for txn in found]
        return self.segments[at:], start, stop, aborted

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    # ---- finding --------------------------------------------------------------------------------------------------

    def find(
        self, *, offset: int | None = None, timestamp: int | str | None = None
    ) -> OffsetAndTimestamp | None:
        """Where a record lies, by offset or by time, with Kafka's answers (spec 7.4 to 7.6).

        `offset`: the first record at or after it; None at the log end offset, OffsetOutOfRangeError outside the log.
        `timestamp` (ms): the first record with at least that timestamp; "earliest", "latest" or "max" (also kstore's
        EARLIEST, LATEST, MAX_TIMESTAMP and so on) for the ends of the log and for its largest timestamp. None if
        there is no such record.
        """
        if (offset is None) == (timestamp is None):
            raise TypeError("find() takes either offset or timestamp")
        if offset is not None:
            return self._find_offset(offset)
        assert timestamp is not None
        if isinstance(timestamp, str):
            if timestamp not in _NAMED:
                raise ValueError(
                    f"timestamp is milliseconds or one of {', '.join(_NAMED)}, not {timestamp!r}"
                )
            timestamp = _NAMED[timestamp]
        if timestamp < 0:
            named = self._find_named(timestamp)
            if named is not _NOT_NAMED:
                return named
        at = self._first_reaching(timestamp)
        while at < len(self.segments):
            segment = self.segments[at]
            found = segment.find_timestamp(timestamp, self.log_start_offset)
            # Kafka asks no further segment. Where the time index is lost and the file's time stood in for it, that
            # would make a guess into an answer, so there we do.
            if found is not None or segment.base_offset not in self._loaded.lost_time_indexes:
                return found
            at += 1
            while at < len(self.segments) and self.segments[at].largest_timestamp < timestamp:
                at += 1
        return None

    def _find_named(self, timestamp: int) -> OffsetAndTimestamp | None:
        """The answer to one of the negative values that stand for something (spec 7.4)."""
        epochs = self._loaded.leader_epochs
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            known = epochs.entries[:1]
            epoch = known[0][0] if known and known[0][1] <= self.log_start_offset else None
            return OffsetAndTimestamp(self.log_start_offset, -1, epoch)
        if timestamp == LATEST:
            return OffsetAndTimestamp(self.log_end_offset, -1, epochs.latest)
        if timestamp == MAX_TIMESTAMP:
            return self._find_max_timestamp()
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):  # there is no tier
            return OffsetAndTimestamp(-1, -1, -1)
        return _NOT_NAMED

    def _first_reaching(self, timestamp: int) -> int:
        """The index of the first segment whose largest timestamp is at least this; segments are asked once each."""
        reached = self._reached
        at = bisect_left(reached, timestamp)
        if at == len(reached):
            with self._reaching:
                for segment in self.segments[len(reached) :]:
                    largest = segment.largest_timestamp
                    reached.append(max(largest, reached[-1]) if reached else largest)
                    if reached[-1] >= timestamp:
                        break
            at = bisect_left(reached, timestamp)
        return at

    def _find_offset(self, offset: int) -> OffsetAndTimestamp | None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)
        for batch in self.batches(offset):
            for record in batch.records(verify=False):
                if record.offset >= offset:
                    epoch = batch.leader_epoch if batch.leader_epoch >= 0 else None
                    return OffsetAndTimestamp(record.offset, record.timestamp, epoch)
        return None

    def _find_max_timestamp(self) -> OffsetAndTimestamp | None:
        if not self.segments:
            return None
        best = max(self.segments, key=lambda segment: segment.max_timestamp_so_far.timestamp)
        return best.find_max_timestamp()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch not above the one asked, where it ends); (-1, -1) if that cannot be told (spec 7.8)."""
        return self._loaded.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # ---- closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Lets go of the files. What was read stays; slices and iterators go on."""
        self._segments = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.path!r}, log_start_offset={self.log_start_offset}, "
            f"log_end_offset={self.log_end_offset})"
        )
