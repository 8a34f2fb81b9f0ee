"""A view: what a partition holds at one moment, for all that read it."""

from __future__ import annotations

import os
from os import fspath

from kstore.arguments import MAX64, any_integer, instance, integer, warn
from kstore.engine.segment.segment import start_of
from kstore.errors import CorruptFileError, LogClosedError, OffsetOutOfRangeError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import directory_of
from kstore.log.later import later
from kstore.log.options import checked
from kstore.log.read.max_timestamp_index import MaxTimestampIndex
from kstore.log.read.offset_lookup import (
    SPECIAL,
    check_complete,
    check_inside,
    find_special,
    find_time,
    raise_told,
)
from kstore.log.recovery.loader import Loaded
from kstore.log.recovery.presence import require_partition
from kstore.log.recovery.refresh import LoadOptions, look, refreshed
from kstore.log.recovery.report import DataLossWarning, in_short

if TYPE_CHECKING:
    from os import PathLike
    from typing import Unpack

    from kstore.engine.io.traffic import Traffic
    from kstore.engine.record.batch import Record
    from kstore.engine.segment.segment import OffsetAndTimestamp, Segment
    from kstore.log.producers.transactions import Transactions
    from kstore.log.recovery.report import Recovery
    from kstore.typed import ReaderOptions
else:
    later(globals(), {"kstore.log.producers.transactions": "Transactions"})


def count_record(traffic: Traffic | None, record: Record) -> None:
    """Counts a record that was read."""
    if traffic is not None:
        traffic.add(2, 1)
        traffic.add(3, len(record.key or b"") + len(record.value or b""))


class LogView:
    """A partition as it was when it was opened, or refreshed last. It reads files; it writes none."""

    _options = LoadOptions()
    traffic: Traffic | None = None  # counts what is read, for a store
    _told_of: Recovery | None = None  # what is missing there has been told
    # an earlier moment of the log, and the transactions that are known of it
    _earlier: tuple[Loaded, Transactions] | None = None

    def __init__(self, path: str | PathLike[str], **options: Unpack[ReaderOptions]) -> None:
        self._options = LoadOptions(**checked("read", options))
        if self._options.trusts_files:
            require_partition(path)
        self.path = os.path.abspath(fspath(path))
        self._loaded = look(self.path, self._options)
        self._closed = False
        self._transactions: Transactions | None = None
        self._max_timestamps = MaxTimestampIndex(())

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in order of their base offsets."""
        return self._now().segments

    @property
    def snapshot(self) -> Loaded:
        """The log at this moment, as a value. LogClosedError."""
        return self._now()

    def view(self, snapshot: Loaded | None = None) -> LogView:
        """A view of the log as it is now, or in a snapshot of it. It changes only by its own `refresh()`."""
        now, known = self._now(), self._transactions
        if snapshot is None or snapshot is now:
            return self._view(now, known, self._earlier)
        instance("snapshot", snapshot, Loaded)
        return self._view(snapshot, None, self._earlier if known is None else (now, known))

    def _view(
        self,
        snapshot: Loaded,
        transactions: Transactions | None,
        earlier: tuple[Loaded, Transactions] | None = None,
    ) -> LogView:
        view = self._blank()
        view.__dict__ |= {
            "path": self.path,
            "_told_of": self._told_of,
            "traffic": self.traffic,
            "_options": self._options,
            "_loaded": snapshot,
            "_closed": False,
            "_max_timestamps": MaxTimestampIndex(()),
            "_transactions": transactions,
            "_earlier": earlier,
        }
        return view

    def _blank(self) -> LogView:
        """A view of which nothing is set."""
        return object.__new__(LogView)

    def _now(self) -> Loaded:
        """The log at this moment: nothing in it changes, so who takes it once sees all of one moment."""
        if self._closed:
            raise LogClosedError(f"{self.path} is closed")
        return self._loaded

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read. It may be inside a segment, or inside a batch."""
        return self._now().log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get: one more than the last."""
        return self._now().log_end_offset

    @property
    def recovery(self) -> Recovery:
        """The report of the opening, as a Recovery: what differed from a log that was closed cleanly."""
        return self._loaded.recovery

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """All known leader epochs, as (epoch, first offset), oldest first."""
        return self._now().leader_epochs.entries

    def transactions(self) -> Transactions:
        """Return the producers and the transactions of the log. CorruptFileError."""
        if self._transactions is None:
            loaded = self._loaded
            try:
                found = None if self._earlier is None else self._earlier[1].advanced(self._earlier[0], loaded)
                self._transactions = found or Transactions(self.path, loaded)
            except CorruptFileError as e:
                raise_told(loaded.segments, e)
            self._earlier = None
        return self._transactions

    def last_stable_offset(self) -> int:
        """Return the offset at which readers of committed records stop: the first offset of the oldest open
        transaction, or the end.

        The first call reads batch headers, from the newest producer snapshot on.
        """
        return self.transactions().last_stable_offset

    def losses_between(self, start: int, stop: int) -> list[str]:
        """Return the known losses in these offsets, as sentences. What recovery removes is after the end of
        the log."""
        start, stop, now = integer("start", start), integer("stop", stop), self._now()
        losses = [*now.recovery.losses] if stop >= now.log_end_offset else []
        if losses and is_locked(directory_of(self.path)):
            losses = []  # what a writer is at work on is no loss yet
        return losses + now.recovery.missing_between(start, stop)

    def for_reading(self) -> Loaded:
        """Return the snapshot of the log, and warn once of lost records. Internal."""
        now = self._now()
        recovery = now.recovery
        if recovery is not self._told_of:
            losses = self.losses_between(0, MAX64)
            self._told_of = recovery
            if losses and self._options.recover:
                warn(f"{self.path}: {in_short(losses)}", DataLossWarning)
        return now

    def refresh(self) -> bool:
        """Add what other processes have changed since the log was opened or refreshed. Return True if
        anything changed.

        Records, slices and iterators of this log do not change. Only the new part is read, but a log that was
        truncated is loaded again. LogNotFoundError if the directory does not exist any more.
        """
        if self._closed:
            raise LogClosedError(f"{self.path} is closed")
        if os.path.isfile(self.path):
            return False
        before = self._loaded
        loaded = self._refreshed()
        if loaded is before:
            return False
        if self._transactions is not None:
            self._earlier = before, self._transactions
        self._loaded, self._transactions = loaded, None
        return True

    def _refreshed(self) -> Loaded:
        """The log as it is now; the snapshot that there is, if nothing has changed."""
        return refreshed(self.path, self._loaded, self._options)

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed."""
        return self._closed

    def get(self, offset: int) -> Record:
        """Return the record at `offset`, or the first one after it if compaction has removed it or a
        transaction marker has the offset.

        OffsetOutOfRangeError if there is none, and for an offset below log_start_offset; CorruptRecordError
        if it is damaged.
        """
        if type(offset) is not int:
            offset = any_integer("offset", offset)
        now = self.for_reading()
        if now.log_start_offset <= offset < now.log_end_offset:
            segments = now.segments
            try:
                at = start_of(segments, offset)
                while at < len(segments):
                    record = segments[at].get(offset)
                    if record is not None:
                        check_inside(now, segments[at], record.offset)
                        if self.traffic is not None:
                            count_record(self.traffic, record)
                        return record
                    at += 1
                check_complete(now)
            except CorruptFileError as e:
                raise_told(now.segments, e, offset)
        raise OffsetOutOfRangeError(offset, now.log_start_offset, now.log_end_offset)

    def find_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record with this timestamp or a later one; negative numbers have the same meaning
        as in Kafka. CorruptFileError."""
        timestamp = any_integer("timestamp", timestamp)
        now = self.for_reading()
        try:
            if timestamp < 0 and timestamp in SPECIAL:
                return find_special(now, timestamp)
            reached = self._max_timestamps  # of these segments, as far as they were asked before
            if reached.segments is not now.segments:
                reached = self._max_timestamps = reached.moved_to(now.segments)
            return find_time(now, reached, timestamp)
        except CorruptFileError as e:
            raise_told(now.segments, e)
