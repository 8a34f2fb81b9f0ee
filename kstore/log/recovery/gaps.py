"""Gaps and overlaps of offsets between two segments, and whether they are losses.

Segments follow each other without gaps, with two exceptions: compaction removes records and whole segments,
and a broker that truncates inside a batch removes the whole batch. A gap is therefore a loss if an index
names offsets in it, or if it is large and neither explains it.
"""

from __future__ import annotations

import contextlib
from itertools import pairwise

from kstore.engine.io.file import File
from kstore.engine.segment.index import OffsetIndex, TimeIndex
from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files.log_dir_state import is_known_compacted, kept_options
from kstore.log.recovery.steps import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import Any

    from kstore.engine.segment.segment import Segment
    from kstore.log.recovery.segment_factory import SegmentFactory
    from kstore.typed import StrPath

Ranges = tuple[tuple[int, int], ...]  # the first byte or offset, and the number, of each

_DELETE_HORIZON = 64  # the attribute bit that only compaction sets
_MOST_LOOKED_THROUGH = 64 << 20  # bytes of segments to read, to find out whether a log is compacted
_FEW_GAPS = 2  # a log whose writer omits offsets has more
_UNBROKEN = 16  # consecutive offsets in a segment of a log whose writer omits none
_FEWEST_OFFSETS = 2  # of a gap that is a loss although no index names its offsets
_LARGEST_DISTANCE = 2**31 - 1  # of an offset from its segment's base


class Gap(NamedTuple):
    """A gap or overlap between the last whole batch of a segment and the next segment."""

    offsets: tuple[int, int]
    code: Code
    is_sure: bool  # records are lost for certain
    tail: int  # bytes behind the last whole batch


def offset_named(segment: Segment) -> int:
    """The largest offset of a segment that its index files name, or -1. Implausible files name none."""
    named = -1
    for kind, width in ((".index", 8), (".timeindex", 12)):
        try:
            file = File(segment.path_of(kind))
            entry = file.read(file.size() // width * width - width, width) if file.size() >= width else b""
        except OSError:
            continue
        if entry and kind == ".index":
            named = max(named, OffsetIndex(segment.base_offset, entry).last_offset)
        elif entry:
            named = max(named, TimeIndex(segment.base_offset, entry).last_entry.offset)
    return named if segment.base_offset <= named < segment.end_offset else -1


def is_compacted(path: StrPath) -> bool:
    """Whether a log is known to be compacted: by its options, by the cleaner's checkpoint, or because it is a
    compacted topic of Kafka's own. Gaps between its segments are not losses then."""
    if "compact" in _policy_of(path):
        return True
    with contextlib.suppress(CorruptFileError, OSError):
        return is_known_compacted(path)
    return False


def _policy_of(path: StrPath) -> str:
    try:
        return kept_options(path).options.get("cleanup.policy", "")
    except (CorruptFileError, OSError):
        return ""


def gaps_in(
    path: StrPath,
    segments: Sequence[Segment],
    recovered: Collection[Segment],
    log_start_offset: int,
    orphans: Collection[int],
    make: SegmentFactory,
) -> Iterator[tuple[Segment, Gap]]:
    """The gaps and overlaps of a log to report, each with the segment before it.

    `orphans`: the offsets of indexes without a log. `recovered`: segments to use as they are; other segments
    are opened again, so that no file stays open, and only headers behind their last index entry are read.
    """

    def reopened(segment: Segment) -> Segment:
        return make(segment.stem, segment.base_offset, segment.suffixes, segment.end_offset, segment.origin)

    unexplained: list[tuple[int, Gap]] = []  # named by no index, as a compaction leaves them
    for at, (segment, following) in enumerate(pairwise(segments)):
        base, next_base = segment.base_offset, following.base_offset
        if next_base <= log_start_offset:
            continue  # it was deleted
        asked = segment if segment in recovered else reopened(segment)
        try:
            found, size = asked.read_end(), asked.size
        except (CorruptFileError, OSError):
            continue  # reading the segment raises the error
        end = found.next_offset
        offsets = (end, next_base)
        if end > next_base and asked.overlaps_next():
            yield segment, Gap(offsets[::-1], Code.SEGMENTS_OVERLAP, False, 0)
        elif found.tail_bytes:
            yield segment, Gap(offsets, Code.BYTES_BEFORE_NEXT_SEGMENT, False, found.tail_bytes)
        elif end < next_base:
            if offset_named(segment) >= end:
                yield segment, Gap(offsets, Code.FILE_SHORTENED, True, 0)
            elif any(end <= offset < next_base for offset in orphans):
                yield segment, Gap(offsets, Code.OFFSETS_MISSING, True, 0)
            elif next_base - base <= _LARGEST_DISTANCE:
                code = Code.OFFSETS_MISSING if size else Code.SEGMENT_EMPTY
                unexplained.append((at, Gap(offsets, code, False, 0)))
    if not unexplained or is_compacted(path) or _has_gaps_inside(segments, unexplained[0][0], reopened):
        return
    missing = [gap for _, gap in unexplained if gap.code is Code.OFFSETS_MISSING]
    are_few = len(missing) <= max(_FEW_GAPS, len(segments) // 4)
    for at, gap in unexplained:
        count, held = gap.offsets[1] - gap.offsets[0], gap.offsets[0] - segments[at].base_offset
        if gap.code is Code.OFFSETS_MISSING:
            if count < _largest_batch(map(reopened, segments[at : at + 2])):
                continue  # a broker may have truncated it inside a batch
            # A follower of Kafka may omit a few offsets, or some small segments: a loss is a gap of about a
            # segment's size, in a log that has few gaps or segments of many offsets.
            is_sure = count >= max(_FEWEST_OFFSETS, held // 2) and (are_few or held >= _UNBROKEN)
            gap = Gap(gap.offsets, gap.code, is_sure, 0)
        yield segments[at], gap


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The union of ranges, without empty ones, in order."""
    found: list[tuple[int, int]] = []
    for first, count in sorted(ranges):
        if found and first <= sum(found[-1]):
            found[-1] = found[-1][0], max(sum(found[-1]), first + count) - found[-1][0]
        elif count > 0:
            found.append((first, count))
    return tuple(found)


def still_missing(ranges: Sequence[tuple[int, int]], segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """The ranges, each a first offset and a length, of whose offsets no batch of the log has one."""
    return [(first, count) for first, count in ranges if not _has_batch(first, first + count, segments)]


def _has_batch(first: int, end: int, segments: Sequence[Segment]) -> bool:
    for segment in segments:
        if segment.base_offset < end and segment.end_offset > first:
            with contextlib.suppress(CorruptFileError, OSError):  # reading the segment raises the error
                found = segment.translate(first)
                if found is not None and found.base_offset < end:
                    return True
    return False


def _largest_batch(segments: Iterable[Segment]) -> int:
    """The number of offsets of the largest batch beside a gap. A truncation inside a batch leaves a smaller
    gap."""
    largest = 1
    for segment in segments:
        with contextlib.suppress(CorruptFileError, OSError):
            headers = segment.read_headers()
            if len(headers):
                largest = max(largest, int((headers["last_offset"] - headers["base_offset"]).max()) + 1)
    return largest


def _has_gaps_inside(segments: Sequence[Segment], at: int, reopened: Callable[[Segment], Segment]) -> bool:
    """Whether records are missing within the segments beside a gap, or within others if they are small."""
    beside = segments[at : at + 2]
    budget = _MOST_LOOKED_THROUGH
    for segment in [*beside, *(s for s in segments if s not in beside)]:
        opened = reopened(segment)
        try:
            budget -= opened.size
            if budget < 0 and segment not in beside:
                break
            if _looks_compacted(opened.read_headers()):
                return True
        except (CorruptFileError, OSError):
            continue
    return False


def _looks_compacted(headers: Any) -> bool:
    known = headers["magic"] == 2
    return bool(
        (headers["base_offset"][1:] > headers["last_offset"][:-1] + 1).any()
        or (headers["records_count"][known] <= headers["last_offset_delta"][known]).any()
        or (headers["attributes"][known] & _DELETE_HORIZON).any()
    )
