"""What a compaction would do to a log that is open for reading."""

from __future__ import annotations

from pathlib import Path
from time import time_ns

from kstore.config import LogConfig
from kstore.errors import LogClosedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.compact.compactor import compact
from kstore.log.compact.erasure import erase, matching
from kstore.log.compact.segment_rewriter import LogState, last_offsets
from kstore.log.files.log_dir_state import read_cleaner_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kstore.log.compact.report import Compaction, Erasure
    from kstore.log.partition import PartitionLog
    from kstore.log.read.progress import ProgressCallback


def preview(
    log: PartitionLog, config: LogConfig, now_ms: int, progress: ProgressCallback | None = None
) -> Compaction:
    """What log.compact(dry_run=True) would say if the log were open for writing with this configuration.

    PolicyViolationError, CorruptFileError, OSError."""
    return compact(_state_of(log, config, now_ms), _check_of(log), None, progress)


def preview_erasure(
    log: PartitionLog,
    keys: Iterable[bytes],
    what: str,
    reason: str,
    *,
    cut_files: bool,
    progress: ProgressCallback | None = None,
) -> Erasure:
    """What log.erase(dry_run=True) would say. CorruptFileError, OSError."""
    match = matching(keys, None, what, reason)
    return erase(
        log.path,
        _state_of(log, LogConfig(), time_ns() // 1_000_000),
        _check_of(log),
        None,
        match,
        reason,
        blanks=what == "values",
        cut_files=cut_files,
        progress=progress,
    )


def _state_of(log: PartitionLog, config: LogConfig, now_ms: int) -> Callable[[], LogState]:
    def state() -> LogState:
        now = log.snapshot
        return LogState(
            now.segments,
            now.log_start_offset,
            now.log_end_offset,
            log.last_stable_offset(),
            log.transactions(),
            last_offsets(log.producers()),
            read_cleaner_offset(Path(log.path)),
            config,
            now_ms,
        )

    return state


def _check_of(log: PartitionLog) -> Callable[[], None]:
    def check() -> None:
        if log.is_closed:
            raise LogClosedError(f"{log.path} is closed")

    return check
