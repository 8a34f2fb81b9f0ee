"""What is copied of each partition, and what a copy of it has."""

from __future__ import annotations

import contextlib
import os

from kstore.arguments import MAX64
from kstore.copying.losses import Expected, Loss, expected_of, losses_of
from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.log_dir_state import (
    Checkpoint,
    locate,
    read_checkpoint,
    read_cleaner_offset,
    read_state,
)
from kstore.log.files.manifest import Manifest, read_manifest
from kstore.log.partition import PartitionLog
from kstore.remote.tiered_log import TieredLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, TypeVar

    from kstore.remote.tiered_log import RemotePart
    from kstore.typed import ReaderOptions

    _T = TypeVar("_T")


class Wanted(NamedTuple):
    """What of each partition is copied, and how."""

    start: int | None = None
    stop: int | None = None
    since: int | None = None
    until: int | None = None
    on_error: Literal["raise", "skip"] = "raise"
    codec: str = ""  # "" keeps that of each batch
    renumber: bool = False
    saves_options: bool = False  # whether the options of the topic are saved in the partition
    leader_epoch: int | None = None  # for all batches, instead of their own
    remote: Callable[[str], RemotePart] | None = None  # what was shipped of the partition at a path
    unread: frozenset[str] = frozenset()  # checkpoint files whose sound lines count only, if there are any

    @property
    def is_for_broker(self) -> bool:
        """Whether kstore's own files are left out, because a broker is to have the copy."""
        return self.leader_epoch is not None

    @property
    def is_rewritten(self) -> bool:
        """Whether the batches are encoded again."""
        return bool(self.codec) or self.renumber

    @property
    def is_bounded(self) -> bool:
        """Whether only a range is wanted."""
        return any(bound is not None for bound in self[:4])

    def opened(self, path: str, *, recover: bool) -> PartitionLog:
        """The partition at a path. LogNotFoundError, CorruptFileError, OSError."""
        options: ReaderOptions = {"recover": recover}
        if self.unread:
            state = read_state(path, self.read_checkpoint)
            options["clean"], options["recovery_point"] = state.clean, state.recovery_point
            options["log_start_offset"] = state.log_start_offset
        if self.remote is None:
            return PartitionLog(path, **options)
        return TieredLog(path, self.remote(path), **options)

    def cleaner_offset(self, path: str) -> int | None:
        """The end of the compacted part of the partition at a path, or None. OSError."""
        with contextlib.suppress(*self._tolerated(layout.CLEANER_OFFSETS)):
            return read_cleaner_offset(path)
        return None

    def read_checkpoint(self, path: str) -> Checkpoint:
        """A checkpoint file of the source. OSError."""
        with contextlib.suppress(*self._tolerated(os.path.basename(path))):
            return read_checkpoint(path)
        return Checkpoint({})

    def losses_of(self, log: PartitionLog, start: int, stop: int) -> list[Loss]:
        """What a view of a partition has lost of a range of offsets. CorruptFileError, OSError."""
        manifest = self.or_default(read_manifest, log.path, Manifest())
        gaps = log.remote_gaps() if isinstance(log, TieredLog) else []
        if self.start is None and self.since is None:
            start = 0  # losses may be why the log starts later
        gaps += log.recovery.gaps.between
        losses = losses_of(log, start, stop, gaps, self._high_watermark(log), manifest)
        if damage := log.snapshot.truncations.damage:
            text = f"{damage}. The copy is without what only this file says: options, truncations, the id"
            losses.append(Loss(text, MAX64))
        return losses

    def expected_of(self, log: PartitionLog, start: int, stop: int) -> Expected | None:
        """What a view of a partition should have of a range of offsets; None if an earlier copy need not be
        asked. OSError."""
        if self.renumber or self.is_for_broker:
            return None
        end = MAX64 if self.stop is None and self.until is None else stop
        expected = expected_of(log, start, end, self.cleaner_offset(log.path))
        least = start if self.remote is not None else self.start or 0
        return expected._replace(start=max(expected.start, least))

    def _high_watermark(self, log: PartitionLog) -> int:
        """The high watermark in the checkpoint, or where the log was truncated since. OSError."""
        place = locate(log.path)
        path = f"{place.directory}/{layout.HIGH_WATERMARKS}"
        offset = self.read_checkpoint(path).offsets.get(place.name, 0)
        written = os.stat(path).st_mtime_ns if offset else 0
        return min([offset, *(at for number, at, _ in log.snapshot.truncations.entries if number > written)])

    def or_default(self, read: Callable[[str], _T], path: str, default: _T) -> _T:
        """What `read` finds at a path; the default if it is damaged and damage is skipped. CorruptFileError,
        OSError."""
        try:
            return read(path)
        except (CorruptFileError, OSError):
            if self.on_error != "skip":
                raise
            return default

    def _tolerated(self, checkpoint: str) -> tuple[type[OSError], ...]:
        return (OSError,) if checkpoint in self.unread else ()

    def range_of(self, log: PartitionLog) -> tuple[int, int]:
        """The range of offsets in a view. CorruptFileError, OSError."""
        start, stop = log.log_start_offset, log.log_end_offset
        if self.start is not None:
            start = max(start, self.start)
        if self.since is not None:
            start = max(start, _offset_at(log, self.since, self.on_error))
        if self.stop is not None:
            stop = min(stop, self.stop)
        if self.until is not None:
            stop = min(stop, _offset_at(log, self.until, self.on_error))
        start = min(start, log.log_end_offset)
        return start, max(start, stop)


class PartitionCopy(NamedTuple):
    """The copy of a partition. It has the offsets `start` to `end` (exclusive). `copied_bytes` were copied by
    this run, `reused_bytes` by earlier ones. `gaps` describes what is missing in the copy, as sentences."""

    start: int
    end: int
    copied_bytes: int
    reused_bytes: int
    gaps: tuple[str, ...] = ()


class Checkpoints(NamedTuple):
    """What the checkpoints of a log directory say of a partition; None if they have no line for it."""

    recovery_point: int
    log_start: int | None
    cleaner: int | None


def _offset_at(log: PartitionLog, timestamp: int, on_error: Literal["raise", "skip"]) -> int:
    """The offset of the first record with this timestamp or a later one. Transaction markers, and batches
    whose records were compacted away, do not count, as they do for `find`."""
    for batch in log.scan(["offset"], since=timestamp, batch_rows=1, on_error=on_error):
        for (offset,) in batch.rows():
            return int(offset)
    return log.log_end_offset
