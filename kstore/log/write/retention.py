"""Which segments a log lets go, and why (spec 9.1, 9.2). Pure: facts in, decisions out."""

from __future__ import annotations

from itertools import accumulate, pairwise
from types import MappingProxyType

from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.follow.position import diverged_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal

    from kstore.config import LogConfig
    from kstore.engine.segment.segment import Segment
    from kstore.log.follow.position import Position
    from kstore.log.recovery.loader import Loaded


class SegmentFacts(NamedTuple):
    """What retention asks of a segment: offsets, bytes, milliseconds since 1970.

    `next_offset` is where the next segment begins; for the last one, the log end offset. `largest_timestamp`
    is that of its records, or the time its .log file was modified where they have none, and then
    `timestamp_is_mtime`.
    """

    base_offset: int
    next_offset: int
    size: int
    largest_timestamp: int
    timestamp_is_mtime: bool = False


_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class Decision(NamedTuple):
    """The decision of retention about a segment, the one at `base_offset`: `delete` is True if it is deleted.

    `rule` is why: "start_offset" (it is below the log start offset), "size" or "time"; None if the segment is
    kept. `reason` is a sentence.
    """

    base_offset: int
    delete: bool
    rule: Literal["start_offset", "size", "time"] | None
    reason: str


class Need(NamedTuple):
    """What a group needs of a log: the records from `offset` on, and what it has to read again after a
    truncation behind `position`."""

    offset: int
    position: Position


class Deletable(NamedTuple):
    """The first time, in ms since 1970, at which retention deletes a segment, and the rule by which it
    does."""

    time_ms: int
    rule: Literal["start_offset", "size", "time"]


class _FactsOf:
    """The facts of one segment. Of most segments only the offsets are asked for, and no file is looked at.
    OSError."""

    __slots__ = ("_segment", "next_offset")

    def __init__(self, segment: Segment, next_offset: int) -> None:
        self._segment = segment
        self.next_offset = next_offset

    @property
    def base_offset(self) -> int:
        return self._segment.base_offset

    @property
    def size(self) -> int:
        return self._segment.size

    @property
    def largest_timestamp(self) -> int:
        return self._segment.largest_timestamp

    @property
    def timestamp_is_mtime(self) -> bool:
        return self._segment.max_timestamp_so_far.timestamp < 0


Facts = SegmentFacts | _FactsOf


def facts_of(segments: Sequence[Segment], log_end_offset: int) -> Sequence[Facts]:
    """What retention asks of the segments of a log."""
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
    # of none: one end too many
    return [_FactsOf(segment, end) for segment, end in zip(segments, ends, strict=False)]


def decide(
    segments: Sequence[Facts],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[Decision]:
    """One decision for each segment, oldest first; those to delete come first (spec 9.1, 9.2).

    Three rules follow one another, each over what the one before left, from the oldest segment on until one
    must stay: by log start offset, and with a cleanup_policy that has delete, by size and by time. A segment
    that is not wholly below the high watermark stays, and so does a last segment that is empty; a last one
    that is not may go. Rules for tiered storage are left out. ValueError for facts that contradict each
    other.
    """
    _check(segments, log_end_offset)
    rules = _Rules(config, log_start_offset, high_watermark)
    left = rules.sizes_behind(segments)
    decisions: list[Decision] = []
    for at, segment in enumerate(segments):
        verdict = rules.verdict(segment, at == len(segments) - 1, left[at], now_ms)
        decisions.append(
            Decision(segment.base_offset, verdict.rule is not None, verdict.rule, verdict.reason)
        )
        if verdict.rule is None:
            break
    behind = f"the older segment {decisions[-1].base_offset} stays" if decisions else ""
    return decisions + [Decision(s.base_offset, False, None, behind) for s in segments[len(decisions) :]]


def earliest(
    segments: Sequence[Facts],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[Deletable | None]:
    """When `decide` deletes each segment at the earliest, if only time passes; None for never. ValueError for
    facts that contradict each other."""
    _check(segments, log_end_offset)
    rules = _Rules(config, log_start_offset, high_watermark)
    left = rules.sizes_behind(segments)
    found: list[Deletable | None] = []
    time_ms = now_ms
    for at, segment in enumerate(segments):
        expired = segment.largest_timestamp + config.retention_ms + 1
        for moment in (time_ms, max(time_ms, expired)):
            rule = rules.verdict(segment, at == len(segments) - 1, left[at], moment).rule
            if rule is not None:
                found.append(Deletable(moment, rule))
                time_ms = moment
                break
        else:
            break
    return found + [None] * (len(segments) - len(found))


class _Rules(NamedTuple):
    """The rules of retention for one log. They follow one another, each over what the one before left, from
    the oldest segment on. One walk does for three: where a rule by offset or by size has stopped, it would
    not go on later."""

    config: LogConfig
    log_start_offset: int
    high_watermark: int

    def sizes_behind(self, segments: Sequence[Facts]) -> Sequence[int]:
        """The bytes in the segments after each, if the rule by size needs them; else zeros."""
        if not (self.config.deletes and self.config.retention_bytes >= 0):
            return [0] * len(segments)
        sizes = [segment.size for segment in segments]
        return [*accumulate(reversed(sizes[1:]), initial=0)][::-1] if sizes else []

    def verdict(self, segment: Facts, is_last: bool, left: int, now_ms: int) -> _Verdict:
        """What the rules say of a segment if all older ones go. left: bytes in the segments after it."""
        if segment.next_offset > self.high_watermark:
            return _kept(
                f"it reaches to offset {segment.next_offset}, the high watermark is {self.high_watermark}"
            )
        if is_last and segment.size == 0:
            return _kept("it is the last one, and empty")
        verdicts = [_by_start_offset(segment, is_last, self.log_start_offset)]
        if self.config.deletes:
            verdicts += [_by_size(segment, left, self.config), _by_time(segment, now_ms, self.config)]
        else:
            verdicts.append(_kept(f"cleanup.policy is {','.join(self.config.cleanup_policy) or 'empty'}"))
        return next((v for v in verdicts if v.rule), _kept("; ".join(v.reason for v in verdicts)))


def decide_for(
    log: Loaded,
    config: LogConfig,
    now_ms: int,
    needs: Mapping[str, Sequence[Need]] = MappingProxyType({}),
) -> list[Decision]:
    """The decisions for all segments of a log. It has no replicas, so the high watermark is its end. OSError.

    `needs` are those of groups. One of which nothing is known needs all records.
    """
    facts = facts_of(log.segments, log.log_end_offset)
    decisions = decide(
        facts,
        config,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.log_end_offset,
        now_ms=now_ms,
    )
    if not needs:
        return decisions
    kept_for = kept_from(log, needs)
    group = min(kept_for, key=lambda name: kept_for[name])
    reason = f"group {group!r} is at offset {kept_for[group]}"
    return [
        Decision(d.base_offset, False, None, reason) if d.delete and f.next_offset > kept_for[group] else d
        for d, f in zip(decisions, facts, strict=True)
    ]


def kept_from(log: Loaded, needs: Mapping[str, Sequence[Need]]) -> dict[str, int]:
    """The first offset that each group may still read."""
    return {
        group: min((_needed_from(log, need) for need in found), default=0) for group, found in needs.items()
    }


def _needed_from(log: Loaded, need: Need) -> int:
    """The first offset that a group may still read."""
    diverged = diverged_at(log, need.position, "read_committed")
    return need.offset if diverged < 0 else min(need.offset, diverged)


class _Verdict(NamedTuple):
    """What one rule says of a segment."""

    rule: Literal["start_offset", "size", "time"] | None
    reason: str


def _kept(reason: str) -> _Verdict:
    return _Verdict(None, reason)


def _by_start_offset(segment: Facts, is_last: bool, log_start_offset: int) -> _Verdict:
    """Spec 9.2: the next segment begins at or below the log start offset."""
    start = f"the log start offset is {log_start_offset}"
    if is_last:
        return _kept(f"it is the last one, and {start}")
    reason = f"the next segment begins at offset {segment.next_offset}, {start}"
    return _Verdict("start_offset" if segment.next_offset <= log_start_offset else None, reason)


def _by_size(segment: Facts, left: int, config: LogConfig) -> _Verdict:
    """Spec 9.2: without it the log would not be below retention.bytes."""
    limit = config.retention_bytes
    if limit < 0:
        return _kept(f"retention.bytes is {limit}, no limit")
    reason = f"without its {segment.size} bytes the log would have {left}, retention.bytes is {limit}"
    return _Verdict("size" if left >= limit else None, reason)


def _by_time(segment: Facts, now_ms: int, config: LogConfig) -> _Verdict:
    """Spec 9.2: its largest timestamp is more than retention.ms ago."""
    limit, age = config.retention_ms, now_ms - segment.largest_timestamp
    if limit < 0:
        return _kept(f"retention.ms is {limit}, no limit")
    what = "file was modified" if segment.timestamp_is_mtime else "newest record is stamped"
    when = f"{age} ms ago" if age >= 0 else f"{-age} ms in the future"
    reason = f"its {what} {when}{_in_words(abs(age))}, retention.ms is {limit}{_in_words(limit)}"
    return _Verdict("time" if age > limit else None, reason)


def _in_words(ms: int) -> str:
    """A long time in days or hours, which are easier to read than so many milliseconds."""
    if ms < _HOUR_MS:
        return ""
    return f" ({ms / _DAY_MS:.1f} days)" if ms >= _DAY_MS else f" ({ms / _HOUR_MS:.1f} hours)"


def _check(segments: Sequence[Facts], log_end_offset: int) -> None:
    """ValueError unless each segment begins where the one before says, and the last ends with the log."""
    for one, following in pairwise(segments):
        if one.next_offset != following.base_offset:
            raise ValueError(
                f"segment {one.base_offset} says the next begins at {one.next_offset}, "
                f"but it begins at {following.base_offset}"
            )
    if segments and segments[-1].next_offset != log_end_offset:
        raise ValueError(
            f"the last segment says the log ends at {segments[-1].next_offset}, not at {log_end_offset}"
        )
