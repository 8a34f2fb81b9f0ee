"""What compaction, erasure and the making of key files do with the segments of a log."""

from __future__ import annotations

import contextlib
import time

from kstore.arguments import MAX64
from kstore.engine.io.directory import sync_directory
from kstore.engine.io.synchronization import Mutex
from kstore.errors import LogClosedError, LogFailedError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files.lock import pauses
from kstore.log.later import later

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kstore.config import LogConfig
    from kstore.engine.segment.segment import Segment
    from kstore.log.producers.states import ProducerState
    from kstore.log.producers.transactions import Transactions
    from kstore.log.segments.cleaned import Cleaned
    from kstore.log.segments.replacement import replace_segments
    from kstore.log.segments.segment_set import SegmentSet
else:
    later(globals(), {"kstore.log.segments.replacement": "replace_segments"})


class LogState(NamedTuple):
    """A log at one moment: its segments, the active one last, and what is known of its offsets and producers.

    `producers`: producer id -> offset of its last record, or -2 - its epoch if it has none.
    """

    segments: tuple[Segment, ...]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    transactions: Transactions
    producers: dict[int, int]
    checkpoint: int | None
    config: LogConfig
    now_ms: int


def last_offsets(states: Mapping[int, ProducerState]) -> dict[int, int]:
    """What LogState has of producers."""
    return {
        pid: state.batches[-1].last_offset if state.batches else -2 - state.producer_epoch
        for pid, state in states.items()
    }


class SegmentRewriter:
    """Rewrites segments of a log that is open for writing. `running` is held by the one call at a time that
    does so: closing the log waits for it, after it has set `is_stopped`."""

    def __init__(self, segments: SegmentSet) -> None:
        self.segments = segments
        self.directory = segments.directory
        self.running = Mutex()
        self.is_stopped = False

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Holds `running`; no other process rewrites segments of the log meanwhile."""
        with self.running:
            session = self.segments.lease.session
            if session is None:
                yield
                return
            for pause in pauses():
                self.check()
                if session.begin_rewriting():
                    break
                time.sleep(pause)
            try:
                yield
            finally:
                session.end_rewriting()

    def state(self, *, forgets: bool = True) -> LogState:
        """The log now. forgets: producers that have expired are removed before. LogClosedError,
        LogFailedError."""
        log = self.segments
        with log.log_end.held():
            log.check_place()
            now_ms = log.clock_ms()
            if forgets:
                log.producers.forget(now_ms)
            now, transactions = log.snapshot(), log.transactions()
            return LogState(
                now.segments,
                now.log_start_offset,
                now.log_end_offset,
                transactions.last_stable_offset,
                transactions,
                last_offsets(log.producers.producers.states),
                log.lease.cleaner_offset(),
                log.config,
                now_ms,
            )

    def check(self) -> None:
        """LogClosedError or LogFailedError if the log was closed, or can no longer be written."""
        end = self.segments.log_end
        if end.is_closed or self.is_stopped:
            raise LogClosedError(f"{self.directory} is closed")
        if end.settled_refusal is not None:
            raise LogFailedError(f"nothing is written until the log is opened again: {end.refusal}")

    def roll(self) -> None:
        """Begins a new segment."""
        with self.segments.log_end.held():
            self.segments.log_end.check_usable()
            self.segments.roll("asked", self.segments.log_end.offset)

    def replace(self, old: Sequence[Segment], new: Sequence[Cleaned]) -> None:
        """Puts segments whose files are complete and on the disk in the place of others. LogChangedError if
        these are not in the log any more."""
        with self.segments.log_end.held():
            replace_segments(self.segments, old, new)

    def store_cleaner_offset(self, offset: int) -> None:
        """Stores where the compacted part ends."""
        with self.segments.log_end.held():
            self.segments.check_place()
            self.segments.lease.store_cleaner_offset(offset)

    def remove_old_files(self) -> None:
        """Removes the files of segments that were replaced or deleted, durably, without waiting for
        file_delete_delay_ms."""
        with self.segments.log_end.held():
            self.segments.check_place()
            self.segments.deleted.unlink(MAX64)
            sync_directory(self.directory)
