"""Offsets that lie between two segments, or in both, and whether that is as it should be.

Segments follow each other without a gap, but for compaction, which takes records away, and whole segments
with them, and for a broker's truncation inside a batch, which takes all of the batch. So a gap is a loss if
an index still names offsets in it, or if it is large and the log looks like neither.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from kstore.engine.io.file import File
from kstore.engine.segment.index import OffsetIndex, TimeIndex
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError
from kstore.log.files.log_dir_state import is_known_compacted, kept_options
from kstore.log.recovery.segment_factory import SegmentFactory
from kstore.log.recovery.steps import Code

_DELETE_HORIZON = 64  # the attribute bit that only compaction sets
_MOST_LOOKED_THROUGH = 64 << 20  # bytes of segments, to see whether a log is compacted
_FEW_GAPS = 2  # a log that leaves out offsets has more
_UNBROKEN = 16  # offsets that follow each other in a segment, in a log that leaves out none
_FEWEST_OFFSETS = 2  # that are surely missing if no index names them
_LARGEST_DISTANCE = 2**31 - 1  # of an offset from its segment's base


class Gap(NamedTuple):
    """What lies between the last whole batch of a segment and the next segment."""

    offsets: tuple[int, int]
    code: Code
    is_sure: bool  # records are missing
    tail: int  # bytes that are no batch


def offset_named(segment: Segment) -> int:
    """The largest offset of the segment that its index files name, -1 for none. Files that make no sense name
    none."""
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


def is_compacted(path: Path) -> bool:
    """Whether a log is known to be compacted: by its options, by the cleaner's checkpoint, or by Kafka's own
    use of its topic. Offsets that are missing between its segments say nothing then."""
    if "compact" in _policy_of(path):
        return True
    with contextlib.suppress(CorruptFileError, OSError):
        return is_known_compacted(path)
    return False


def is_said_to_delete(path: Path) -> bool:
    """Whether the options that are kept of a log say that old segments are deleted. Asked only if it is not
    compacted, too."""
    return "delete" in _policy_of(path)


def _policy_of(path: Path) -> str:
    try:
        return kept_options(path).options.get("cleanup.policy", "")
    except (CorruptFileError, OSError):
        return ""


def gaps_in(
    path: Path,
    segments: Sequence[Segment],
    recovered: Collection[Segment],
    log_start_offset: int,
    orphans: Collection[int],
    make: SegmentFactory,
) -> Iterator[tuple[Segment, Gap]]:
    """The gaps of a log that are not as they should be, each with the segment before it.

    `orphans` are the offsets of indexes without a log. `recovered` segments are asked themselves; of others
    only headers behind the last index entry are read, and no file stays open.
    """

    def reopened(segment: Segment) -> Segment:
        return make(segment.stem, segment.base_offset, segment.suffixes, segment.end_offset, segment.origin)

    unexplained: list[tuple[int, Gap]] = []  # by no index; a compaction leaves such gaps
    for at, (segment, following) in enumerate(pairwise(segments)):
        base, next_base = segment.base_offset, following.base_offset
        if next_base <= log_start_offset:
            continue  # it was deleted
        asked = segment if segment in recovered else reopened(segment)
        try:
            end, size = asked.read_next_offset(), asked.size
        except (CorruptFileError, OSError):
            continue  # reading raises it
        offsets = (end, next_base)
        if end > next_base and asked.overlaps_next():
            yield segment, Gap(offsets[::-1], Code.SEGMENTS_OVERLAP, False, 0)
        elif asked.tail_bytes:
            yield segment, Gap(offsets, Code.BYTES_BEFORE_NEXT_SEGMENT, False, asked.tail_bytes)
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
                continue  # it was truncated inside a batch, perhaps
            # As much as a segment may hold. A follower of Kafka may have left out a few, or a few of all
            # segments, if they are small.
            is_sure = count >= max(_FEWEST_OFFSETS, held // 2) and (are_few or held >= _UNBROKEN)
            gap = Gap(gap.offsets, gap.code, is_sure, 0)
        yield segments[at], gap


def _largest_batch(segments: Iterable[Segment]) -> int:
    """How many offsets a batch beside the gap takes at most. Truncation inside a batch leaves a gap of
    fewer."""
    largest = 1
    for segment in segments:
        with contextlib.suppress(CorruptFileError, OSError):
            headers = segment.read_headers()
            if len(headers):
                largest = max(largest, int((headers["last_offset"] - headers["base_offset"]).max()) + 1)
    return largest


def _has_gaps_inside(segments: Sequence[Segment], at: int, reopened: Callable[[Segment], Segment]) -> bool:
    """Whether records are missing within segments too: those beside the gap, and others if they are small."""
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
