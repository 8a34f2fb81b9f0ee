"""The state of each segment: active, sealed, past retention, dirty or damaged. Facts in, states out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.log.write.retention import SegmentFacts as RetentionFacts
from kstore.log.write.retention import decide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kstore.config import LogConfig
    from kstore.reporting.facts import SegmentFacts

_DAY_MS = 86_400_000


def effective(config: LogConfig, *, is_cleaned: bool) -> LogConfig:
    """The configuration to judge segments by: Kafka's defaults count only where they can do no harm. Without
    retention_ms no age counts; without cleanup_policy, a partition that was compacted is a compacted one."""
    given = config.given_options()
    if "retention_ms" not in given:
        config = config.replace(retention_ms=-1)
    if "cleanup_policy" not in given and is_cleaned:
        config = config.replace(cleanup_policy="compact")
    return config


def policy_text(config: LogConfig, *, is_brokers: bool = False) -> str:
    """The cleanup policy of an effective configuration in words. is_brokers: what is not set for the topic is
    that of the broker, which is not known."""
    limits = []
    if config.deletes and config.retention_ms >= 0:
        limits.append(f"older than {config.retention_ms / _DAY_MS:g} days")
    if config.deletes and config.retention_bytes >= 0:
        limits.append(f"above {config.retention_bytes} bytes")
    words = ["compact"] if config.compacts else []
    words += [f"delete what is {' or '.join(limits)}"] if limits else []
    if is_brokers and config.deletes:
        words.append("retention of the broker's server.properties")
    return "; ".join(words) or "keep all"


def with_states(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    cleaned: int | None,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
) -> tuple[SegmentFacts, ...]:
    """The segments with state and reason, as if none was damaged. `config` is an effective one,
    `cleaned` the offset up to which the partition was compacted, if it was."""
    decisions = decide(
        [
            RetentionFacts(s.base_offset, s.next_offset, s.size, s.max_timestamp, s.max_timestamp < 0)
            for s in segments
        ],
        config,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        high_watermark=log_end_offset,
        now_ms=now_ms,
    )
    dirty = log_end_offset
    if config.compacts:
        dirty = cleaned if cleaned is not None and cleaned >= log_start_offset else log_start_offset
    found = []
    for at, (segment, decision) in enumerate(zip(segments, decisions, strict=True)):
        is_dated = segment.max_timestamp >= 0 or decision.rule != "time"
        if decision.delete and is_dated:
            state, reason = "past retention", decision.reason
        elif at == len(segments) - 1:
            state, reason = "active", "new records are appended to it"
        elif segment.next_offset > dirty:
            state, reason = (
                "dirty",
                f"from offset {max(dirty, segment.base_offset)} on it is not compacted yet",
            )
        else:
            state, reason = "sealed", decision.reason
        found.append(segment._replace(state=state, reason=reason))
    return tuple(found)


def with_damage(segments: Sequence[SegmentFacts], damage: Mapping[str, str]) -> tuple[SegmentFacts, ...]:
    """The segments; those whose file is in `damage` are damaged, with the text there as the reason."""
    return tuple(
        segment._replace(state="damaged", reason=damage[segment.file]) if segment.file in damage else segment
        for segment in segments
    )
