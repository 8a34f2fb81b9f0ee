"""What a compaction would do to a log that is open for reading."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from time import time_ns

from kstore.config import LogConfig
from kstore.engine.segment.segment import Segment
from kstore.errors import LogClosedError
from kstore.log.compact.cleaned import Cleaned
from kstore.log.compact.compactor import LogState, compact, last_offsets
from kstore.log.compact.erasure import erase, matching
from kstore.log.compact.report import Compaction, Erasure
from kstore.log.files.log_dir_state import read_cleaner_offset
from kstore.log.partition import PartitionLog
from kstore.log.read.progress import ProgressCallback


def preview(
    log: PartitionLog, config: LogConfig, now_ms: int, progress: ProgressCallback | None = None
) -> Compaction:
    """What log.compact(dry_run=True) would say if the log were open for writing with this configuration.

    PolicyViolationError, CorruptFileError, OSError."""
    return compact(_Preview(log, config, now_ms), dry_run=True, progress=progress)


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
    view = _Preview(log, LogConfig(), time_ns() // 1_000_000)
    return erase(
        view,
        match,
        reason,
        blanks=what == "values",
        cut_files=cut_files,
        dry_run=True,
        progress=progress,
    )


class _Preview:
    """A log of which nothing is changed."""

    def __init__(self, log: PartitionLog, config: LogConfig, now_ms: int) -> None:
        self._directory = log.path
        self._log = log
        self._config = config
        self._now_ms = now_ms

    def _compaction_state(self, *, forgets: bool = True) -> LogState:
        now = self._log.snapshot
        return LogState(
            now.segments,
            now.log_start_offset,
            now.log_end_offset,
            self._log.last_stable_offset(),
            self._log.transactions(),
            last_offsets(self._log.producers()),
            read_cleaner_offset(Path(self._log.path)),
            self._config,
            self._now_ms,
        )

    def _check_compacting(self) -> None:
        if self._log.is_closed:
            raise LogClosedError(f"{self._log.path} is closed")

    def _replace_segments(self, old: Sequence[Segment], new: Sequence[Cleaned]) -> None:
        raise AssertionError("a dry run changes nothing")

    def _compacted_to(self, offset: int) -> None:
        raise AssertionError("a dry run changes nothing")

    def roll(self) -> int:
        raise AssertionError("a dry run changes nothing")

    def _remove_old_files(self) -> None:
        raise AssertionError("a dry run changes nothing")
