"""Which part of a log may be compacted, and whether it is time to (spec 10.2)."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstore.config import LogConfig
    from kstore.engine.segment.segment import Segment

_base_offset = attrgetter("base_offset")


class Cleanable(NamedTuple):
    """The part that is not compacted yet and may be, from `first_dirty` up to `first_uncleanable`; bytes
    before and in it.

    `delay_ms`: since when a record of it has been due by max.compaction.lag.ms, 0 if none is.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int

    @property
    def ratio(self) -> float:
        """The share of bytes that were not compacted."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def reason(self, config: LogConfig) -> tuple[bool, str]:
        """Whether it is time, and why or why not in a sentence."""
        if not self.cleanable_bytes:
            return False, (
                f"nothing before offset {self.first_uncleanable} is left to compact; the active segment "
                "(log.roll() ends it, and kstore keep --idle-roll-ms does), open transactions and records "
                "younger than min.compaction.lag.ms are not compacted"
            )
        if self.delay_ms > 0:
            return True, f"max.compaction.lag.ms was over {self.delay_ms} ms ago"
        least = config.min_cleanable_dirty_ratio
        above = self.ratio > least
        verb = "is" if above else "is not"
        return above, f"the dirty ratio {self.ratio:.3g} {verb} above min.cleanable.dirty.ratio, {least:g}"


def between(segments: Sequence[Segment], start: int, stop: int) -> Sequence[Segment]:
    """The segments from the one that holds `start` on, as far as they begin below `stop`."""
    if start >= stop:
        return ()
    first = max(bisect_right(segments, start, key=_base_offset) - 1, 0)
    return [segment for segment in segments[first:] if segment.base_offset < stop]


def cleanable(
    segments: Sequence[Segment],
    *,
    checkpoint: int | None,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    config: LogConfig,
    now_ms: int,
) -> Cleanable:
    """What there is to compact in these segments, the last of which is the active one. OSError,
    CorruptFileError."""
    active = segments[-1].base_offset if segments else log_end_offset
    first_dirty = log_start_offset if checkpoint is None else checkpoint
    if not log_start_offset <= first_dirty <= log_end_offset:
        first_dirty = log_start_offset
    dirty = between(segments, first_dirty, active)
    bound = min(last_stable_offset, active)
    if config.min_compaction_lag_ms > 0:
        since = now_ms - config.min_compaction_lag_ms
        young = next((s.base_offset for s in dirty if s.largest_timestamp > since), active)
        bound = min(bound, young)
    bound = max(first_dirty, bound)
    beyond = between(segments, bound, active)
    first_uncleanable = beyond[0].base_offset if beyond else active
    to_clean = between(segments, min(first_dirty, first_uncleanable), first_uncleanable)
    return Cleanable(
        first_dirty,
        first_uncleanable,
        sum(s.size for s in segments if s.base_offset < first_dirty),
        sum(s.size for s in to_clean),
        _delay(dirty, config, now_ms),
    )


def _delay(dirty: Sequence[Segment], config: LogConfig, now_ms: int) -> int:
    """How long ago max.compaction.lag.ms was over for the oldest of these segments."""
    until = now_ms - config.max_compaction_lag_ms
    if until <= 0:
        return 0
    oldest = oldest_of(dirty)
    return 0 if oldest is None else max(until - oldest, 0)


def oldest_of(dirty: Sequence[Segment]) -> int | None:
    """The timestamp of these segments from which max.compaction.lag.ms counts; None if no record has one."""
    firsts = [s.batch_at(0).max_timestamp for s in dirty if s.size]
    return min((timestamp for timestamp in firsts if timestamp > 0), default=None)


def legacy_horizon(segments: Sequence[Segment], first_dirty: int, delete_retention_ms: int) -> int:
    """Records of old formats without a value go if the file was last written at this time or before (spec
    10.6)."""
    clean = [segment for segment in segments if segment.base_offset < first_dirty]
    return clean[-1].mtime_ms() - delete_retention_ms if clean else 0


def groups(
    segments: Sequence[Segment], *, segment_bytes: int, segment_index_bytes: int, first_uncleanable: int
) -> list[list[Segment]]:
    """The segments in runs, of each of which one segment is made (spec 10.5)."""
    found: list[list[Segment]] = []
    sizes = [0, 0, 0]
    for at, segment in enumerate(segments):
        own = [segment.size, 8 * len(segment.offset_index), 12 * len(segment.time_index)]
        end = segments[at + 1].base_offset if at + 1 < len(segments) else first_uncleanable
        if (
            found
            and sizes[0] + own[0] <= segment_bytes
            and sizes[1] + own[1] <= segment_index_bytes
            and sizes[2] + own[2] <= segment_index_bytes
            and (segment.size == 0 or end - 1 - found[-1][0].base_offset <= 2**31 - 1)
        ):
            found[-1].append(segment)
            sizes = [a + b for a, b in zip(sizes, own, strict=True)]
        else:
            found.append([segment])
            sizes = own
    return found
