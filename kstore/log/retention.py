"""Which segments a log lets go, and why (spec 9.1, 9.2). Pure: facts in, decisions out."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kstore.config import LogConfig
from kstore.engine.segment import Segment


class SegmentFacts(NamedTuple):
    """What retention asks of a segment; `next_offset` is the base offset of the one after it, or the log's end."""

    base_offset: int
    next_offset: int
    size: int
    largest_timestamp: int
    is_active: bool = False
    by_file_time: bool = False


class Decision(NamedTuple):
    """What becomes of a segment. `rule` is "start_offset", "size" or "time"; "" for one that stays."""

    base_offset: int
    delete: bool
    rule: str
    reason: str


def facts_of(segments: Sequence[Segment], log_end_offset: int) -> list[SegmentFacts]:
    """What retention asks of the segments of a log; timestamps of segments without any are those of the files."""
    facts = []
    for at, segment in enumerate(segments):
        last = at + 1 == len(segments)
        newest = segment.max_timestamp_so_far.timestamp
        facts.append(
            SegmentFacts(
                segment.base_offset,
                log_end_offset if last else segments[at + 1].base_offset,
                segment.size,
                newest if newest >= 0 else segment.mtime_ms(),
                last,
                newest < 0,
            )
        )
    return facts


def decide(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[Decision]:
    """One decision a segment, oldest first.

    The rules run in Kafka's order, each over what the one before left, each from the oldest segment on until one must
    stay: by log start offset, then, if cleanup.policy has delete, by size and by time. What is not below the high
    watermark stays, and so does an empty last segment.
    """
    decisions: list[Decision] = []
    left = list(segments)
    kept_because: dict[int, str] = {}

    def apply(rule: str, judge: Callable[[SegmentFacts], tuple[bool, str]]) -> None:
        while left:
            segment = left[0]
            if segment.next_offset > high_watermark:
                kept_because[segment.base_offset] = f"it holds offsets from the high watermark {high_watermark} on"
                return
            if len(left) == 1 and segment.size == 0:
                kept_because[segment.base_offset] = "it is the last one, and empty"
                return
            delete, reason = judge(segment)
            if not delete:
                kept_because[segment.base_offset] = "; ".join(
                    filter(None, (kept_because.get(segment.base_offset), reason))
                )
                return
            decisions.append(Decision(segment.base_offset, True, rule, reason))
            left.pop(0)

    def by_start(segment: SegmentFacts) -> tuple[bool, str]:
        below = len(left) > 1 and segment.next_offset <= log_start_offset
        return below, f"the next segment begins at {segment.next_offset}, " + (
            f"at or below the log start offset {log_start_offset}" if below
            else f"above the log start offset {log_start_offset}"
        ) if len(left) > 1 else "it is the last segment"

    apply("start_offset", by_start)
    if "delete" in config.cleanup_policy:
        excess = sum(segment.size for segment in left) - config.retention_bytes

        def by_size(segment: SegmentFacts) -> tuple[bool, str]:
            nonlocal excess
            if config.retention_bytes < 0:
                return False, ""
            if excess - segment.size < 0:
                return False, (
                    f"without its {segment.size} bytes the log would be {segment.size - excess} bytes "
                    f"below retention.bytes {config.retention_bytes}"
                )
            excess -= segment.size
            return True, (
                f"without its {segment.size} bytes the log still has {excess} above "
                f"retention.bytes {config.retention_bytes}"
            )

        def by_time(segment: SegmentFacts) -> tuple[bool, str]:
            if config.retention_ms < 0:
                return False, ""
            age = now_ms - segment.largest_timestamp
            whose = "file" if segment.by_file_time else "newest record"
            if age > config.retention_ms:
                return True, f"its {whose} is {age} ms old, more than retention.ms {config.retention_ms}"
            return False, f"its {whose} is {age} ms old, not more than retention.ms {config.retention_ms}"

        apply("size", by_size)
        apply("time", by_time)
    for at, segment in enumerate(left):
        reason = kept_because.get(segment.base_offset) or (
            "no limit is set" if at == 0 else "an older segment stays"
        )
        decisions.append(Decision(segment.base_offset, False, "", reason))
    return decisions
