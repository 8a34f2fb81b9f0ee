"""What compaction of a log waits for."""

from __future__ import annotations

from bisect import bisect_left
from time import time_ns

from kstore.arguments import MAX64, any_integer
from kstore.explain.kept_segments import config_of, options_of
from kstore.kinds import as_text
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.compact.cleanable import between, cleanable, oldest_of
from kstore.log.files.log_dir_state import read_cleaner_offset

if TYPE_CHECKING:
    from typing import Literal

    from kstore.config import LogConfig
    from kstore.log.compact.cleanable import Cleanable
    from kstore.log.partition import PartitionLog

    _Kind = Literal[
        "cleanup_policy", "dirty_ratio", "active_segment", "open_transaction", "min_compaction_lag"
    ]
_OPTIONS = (
    "cleanup.policy",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
)


class CompactionWait(NamedTuple):
    """Something that compaction waits for: records from `offset` on, -1 for all. `until_ms`: when it ends, in
    ms since 1970; None if that does not depend on time alone."""

    kind: _Kind
    offset: int
    until_ms: int | None
    text: str


class CompactionState(NamedTuple):
    """How far a log is compacted, and what the next compaction waits for, at the time `now_ms`.

    Records below `first_dirty_offset` were compacted; those from there to `first_uncleanable_offset` may be
    now. `dirty_ratio` is cleanable_bytes / (clean_bytes + cleanable_bytes). `is_due` and `reason`: whether
    `log.compact()`, and a store in the background, would begin now, and why or why not. `due_at_ms`: when it
    begins at the earliest if only time passes; None for never. `options` and `source` as in Retention.
    """

    path: str
    now_ms: int
    options: dict[str, str]
    source: str
    cleaner_offset: int | None
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    active_base_offset: int
    clean_bytes: int
    cleanable_bytes: int
    uncleanable_bytes: int
    dirty_ratio: float
    is_due: bool
    reason: str
    due_at_ms: int | None
    waits: tuple[CompactionWait, ...]


def compaction(
    log: PartitionLog, *, config: LogConfig | None = None, now_ms: int | None = None
) -> CompactionState:
    """Explain how far a log is compacted, and what the next compaction waits for.

    config, now_ms: as for retention(). CorruptFileError, OSError.
    """
    config, source = config_of(log, config)
    now_ms = time_ns() // 1_000_000 if now_ms is None else any_integer("now_ms", now_ms)
    now, stable = log.snapshot, log.last_stable_offset()
    checkpoint = read_cleaner_offset(log.path)

    def at(moment_ms: int) -> Cleanable:
        return cleanable(
            now.segments,
            checkpoint=checkpoint,
            log_start_offset=now.log_start_offset,
            log_end_offset=now.log_end_offset,
            last_stable_offset=stable,
            config=config,
            now_ms=moment_ms,
        )

    found = at(now_ms)
    active = now.segments[-1].base_offset if now.segments else now.log_end_offset
    dirty = between(now.segments, found.first_dirty, active)
    if config.compacts:
        due, reason = found.reason(config)
        waits = _waits(log, config, found, now_ms)
    else:
        policy = f"cleanup.policy is {as_text(config.cleanup_policy) or 'empty'}"
        due, reason = False, policy
        waits = [CompactionWait("cleanup_policy", -1, None, f"{policy}, without compact")]
    lag = config.min_compaction_lag_ms
    moments = {now_ms, *(segment.largest_timestamp + lag for segment in dirty)}
    oldest = oldest_of(dirty)
    if oldest is not None:
        moments.add(oldest + config.max_compaction_lag_ms + 1)
    later = sorted(moment for moment in moments if now_ms <= moment <= MAX64)
    # more is cleanable, and the ratio is larger, the later it is
    first = bisect_left(later, True, key=lambda moment: config.compacts and at(moment).reason(config)[0])
    return CompactionState(
        log.path,
        now_ms,
        options_of(config, _OPTIONS),
        source,
        checkpoint,
        now.log_start_offset,
        now.log_end_offset,
        stable,
        found.first_dirty,
        found.first_uncleanable,
        active,
        found.clean_bytes,
        found.cleanable_bytes,
        sum(s.size for s in now.segments if s.base_offset >= max(found.first_uncleanable, found.first_dirty)),
        found.ratio,
        due,
        reason,
        later[first] if first < len(later) else None,
        tuple(waits),
    )


def _waits(log: PartitionLog, config: LogConfig, found: Cleanable, now_ms: int) -> list[CompactionWait]:
    """What a log whose cleanup.policy has compact waits for."""
    now = log.snapshot
    waits: list[CompactionWait] = []
    due, reason = found.reason(config)
    if found.cleanable_bytes and not due:
        waits.append(CompactionWait("dirty_ratio", found.first_dirty, None, reason))
    for pid, state in log.producers().items():
        first = state.current_txn_first_offset
        if first is not None and first == log.last_stable_offset():
            text = f"the transaction of producer {pid} is open since offset {first}"
            waits.append(CompactionWait("open_transaction", first, None, text))
    active = now.segments[-1] if now.segments else None
    if active is None:
        return waits
    lag = config.min_compaction_lag_ms
    for segment in between(now.segments, found.first_dirty, active.base_offset) if lag > 0 else ():
        until = segment.largest_timestamp + lag
        if until > now_ms:
            text = (
                f"the newest record of the segment at offset {segment.base_offset} is younger than "
                f"min.compaction.lag.ms, {lag}"
            )
            waits.append(CompactionWait("min_compaction_lag", segment.base_offset, until, text))
            break
    if active.size:
        text = (
            f"the active segment, {active.size} bytes, is compacted after it was rolled: at segment.bytes "
            f"({config.effective_segment_bytes}), or by an append after segment.ms "
            f"({config.effective_segment_ms})"
        )
        waits.append(CompactionWait("active_segment", active.base_offset, None, text))
    return waits
