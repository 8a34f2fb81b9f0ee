"""Whether an earlier copy of a partition has records that the source should still have, and that the new copy
has not: then the earlier one stays as it is.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left, bisect_right

from kstore.arguments import MAX64
from kstore.engine.scan.batch_reader import BatchReader
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files.log_dir_state import is_led
from kstore.log.files.manifest import stamp_of, truncations_of
from kstore.log.follow.position import are_of_one_topic, epoch_before, topic_id_of
from kstore.log.recovery.gaps import merged
from kstore.log.recovery.loader import load
from kstore.log.recovery.report import in_short

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kstore.copying.file_copy import FileCopy
    from kstore.copying.losses import Expected, Loss
    from kstore.copying.rewritten_copy import RewrittenCopy
    from kstore.copying.wanted import PartitionCopy
    from kstore.engine.record.batch import Record
    from kstore.engine.segment.segment import Segment
    from kstore.log.recovery.gaps import Ranges
    from kstore.log.recovery.loader import Loaded

_KEY = ["base_offset", "last_offset", "crc"]  # columns that are equal in equal batches


class KeptEarlierError(FileExistsError):
    """An earlier copy of a partition has records that the source has lost, so it is not replaced."""


def kept_earlier(copy: FileCopy | RewrittenCopy, copied: PartitionCopy) -> KeptEarlierError | None:
    """The error if an earlier copy has records that this one lacks because the source has lost them."""
    source, destination = copy.source, copy.destination
    before, path = destination.earlier(copy.name), destination.path_of(copy.name)
    if not before or copy.expected is None:
        return None
    name, final, expected = copy.name or os.path.basename(source), destination.final, copy.expected
    earlier = load(before)
    is_filled = earlier.log_end_offset > earlier.log_start_offset
    if is_filled and not are_of_one_topic(topic_id_of(before), topic_id_of(source)):
        text = f"has {name} of another topic, with another id, and keeps it: remove it there if it is to go"
        return KeptEarlierError(errno.EEXIST, text, final)
    made = load(path, clean=True, recovery_point=copied.end, log_start_offset=copied.start)
    at = expected.truncations.removed_since(truncations_of(before, stamp_of(before)).number)
    if is_led(source):
        at = min(at, _epoch_begun_at(earlier, made))
    # an erased or compacted segment may be the active one again
    if at < MAX64 and expected.compacted_end >= 0:
        expected = expected._replace(compacted_end=max(expected.compacted_end, at))
    gone = _taken(earlier, made, expected._replace(end=min(expected.end, at)), copy.losses)
    return _refusal(name, source, gone, final) if gone else None


def _epoch_begun_at(earlier: Loaded, made: Loaded) -> int:
    """The offset at which a leader epoch began after those of an earlier copy; 2^63 - 1 if none did."""
    at = made.leader_epochs.end_offset_for(epoch_before(earlier, earlier.log_end_offset), MAX64)[1]
    return at if at >= 0 else MAX64


def _taken(earlier: Loaded, made: Loaded, expected: Expected, losses: Sequence[Loss]) -> Ranges:
    """The offsets of records of an earlier copy that the copy that was made should have, and has not as they
    are there. CorruptRecordError, OSError."""
    found: list[tuple[int, int]] = []
    # a loss up to the log start may be why the log starts there
    start = min([expected.start, *(each.first for each in losses if each.end == expected.start)])
    start = max(start, earlier.log_start_offset)
    bases = [segment.base_offset for segment in made.segments]
    for segment in earlier.segments:
        low, high = max(segment.base_offset, start), min(segment.end_offset, expected.end)
        is_lossy = any(each.first < high and low < each.end for each in losses)
        low = low if is_lossy else max(low, expected.compacted_end)
        reached = made.segments[max(bisect_right(bases, low) - 1, 0) : bisect_left(bases, high)]
        if low < high and not any(_begins_with(each, segment) for each in reached):
            found += _missing(segment, reached, low, high)
    return merged(found)


def _begins_with(made: Segment, earlier: Segment) -> bool:
    """Whether a segment has all that the earlier copy of it has: both are one file, or the last batch of that
    one is here at its place."""
    if made.base_offset != earlier.base_offset:
        return False
    if os.path.samefile(made.path, earlier.path):
        return True
    end = earlier.read_end().next_offset - 1
    last = earlier.translate(end)
    if last is None or made.translate(end) != last:
        return last is None
    return bool(made.batch_at(last.position).data == earlier.batch_at(last.position).data)


def _missing(segment: Segment, made: Sequence[Segment], low: int, high: int) -> Iterator[tuple[int, int]]:
    """The offsets from low to high (exclusive) of records that segments have not as a segment has them, as
    ranges."""
    if not len(had := segment.read_headers(0, _KEY)):
        return
    import numpy as np  # here: most copies do without

    tables = [each.read_headers(0, _KEY) for each in made]
    has = np.concatenate(tables) if tables else had[:0]
    has = has[np.argsort(has["base_offset"], kind="stable")]
    at = np.searchsorted(has["base_offset"], had["base_offset"])
    is_same = at < len(has)
    is_same[is_same] = has[at[is_same]] == had[is_same]
    beside = np.searchsorted(has["last_offset"], had["base_offset"])
    for (first, last, _), nearest in zip(had[~is_same].tolist(), beside[~is_same].tolist(), strict=True):
        first, end = max(first, low), min(last + 1, high)
        if first >= end:
            continue
        if nearest == len(has) or has["base_offset"][nearest] >= end:
            yield first, end - first
            continue
        theirs = dict(_records(made, first, end))
        for offset, record in _records([segment], first, end):
            if theirs.get(offset) != record:
                yield offset, 1


def _records(segments: Sequence[Segment], first: int, end: int) -> Iterator[tuple[int, Record]]:
    """The records of offsets, each with its offset."""
    for batch in BatchReader(tuple(segments), first, end):
        yield from ((record.offset, record) for record in batch.records() if first <= record.offset < end)


def _refusal(name: str, source: str, gone: Ranges, final: str) -> KeptEarlierError:
    """The error about an earlier copy that would lose records."""
    offsets = in_short([f"{first} to {first + count - 1}" for first, count in gone])
    text = (
        f"has offsets {offsets} of {name}, which the source has lost, and keeps them: see kstore check "
        f"{source}. Mend the source, or copy into a new directory"
    )
    return KeptEarlierError(errno.EEXIST, text, final)
