"""What a source has lost, and which offsets a copy of it would therefore take from an earlier copy.

Both modes of a copy use these decisions. They read headers, and write nothing.
"""

from __future__ import annotations

import errno
import os

from kstore.arguments import MAX64
from kstore.errors import shown
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import directory_of, is_led
from kstore.log.files.manifest import stamp_of, truncations_of
from kstore.log.follow.position import History, Position, diverged_at, epoch_before
from kstore.log.recovery.report import in_short
from kstore.log.recovery.steps import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeAlias

    from kstore.engine.segment.segment import Segment
    from kstore.log.files.manifest import Manifest
    from kstore.log.partition import PartitionLog
    from kstore.log.recovery.loader import Loaded
    from kstore.log.recovery.steps import Step

    _Range: TypeAlias = tuple[int, int]  # the first offset, and the one after the last


class Loss(NamedTuple):
    """Records that a source has lost: a sentence, and offsets that have them all. Without a sentence, only an
    earlier copy can tell. `is_noted`: whether a repair has noted it."""

    text: str
    first: int = 0
    end: int = MAX64
    is_noted: bool = False


class KeptEarlierError(FileExistsError):
    """An earlier copy of a partition has records that the source has lost, so it is not replaced."""


def gaps_of(losses: Iterable[Loss]) -> tuple[str, ...]:
    """The sentences about losses."""
    return tuple(shown(each.text) for each in losses if each.text)


def noted_in(manifest: Manifest) -> list[Loss]:
    """The losses that a repair has noted."""
    ranges = (*manifest.gaps, *manifest.lost_ends)
    return [Loss("", first, first + count, is_noted=True) for first, count in ranges]


def losses_of(
    log: PartitionLog, start: int, stop: int, gaps: Iterable[Step], high_watermark: int, manifest: Manifest
) -> list[Loss]:
    """What a view of a partition has lost of the offsets start to stop (exclusive). `gaps`: what is missing
    between its segments, or before them."""
    end, recovery = log.log_end_offset, log.recovery
    noted = noted_in(manifest)
    found = [
        Loss(f"{step.file}: {step.text(done=True)}", *step.offsets)
        for step in gaps
        if step.is_loss
        and step.offsets[0] < stop
        and start < step.offsets[1]
        and not any(each.first <= step.offsets[0] and step.offsets[1] <= each.end for each in noted)
    ]
    # what a writer is at work on is no loss yet
    if stop >= end and not is_locked(directory_of(log.path)):
        texts = (text if log.path in text else f"{log.path}: {text}" for text in recovery.losses)
        found += [Loss(text, end) for text in texts]
        codes = (Code.FLUSHED_IS_LOST, Code.ENDS_EARLY)
        known = max([end, *(step.offsets[1] for step in recovery.steps if step.code in codes)])
        if known < high_watermark:
            text = f"offsets {end} to {high_watermark - 1} had been committed, and are lost"
            found.append(Loss(f"{log.path}: {text}", end))
        found += _suspected(log, start)
    return found + noted


def _suspected(log: PartitionLog, start: int) -> Iterator[Loss]:
    """What a log that was closed cleanly may have lost: records of which nothing is left, as those of a first
    segment, or that other files stand for."""
    if not log.recovery.clean or is_led(log.path):
        return
    base = log.segments[0].base_offset if log.segments else log.log_end_offset
    if log.leader_epochs and log.leader_epochs[0][1] < base:  # a deletion would have moved their beginning
        yield Loss("", log.leader_epochs[0][1], base)
    if any(step.code is Code.ENDS_LATE for step in log.recovery.steps):
        yield Loss("", start)


def losses_since(path: str, earlier: str) -> list[Loss]:
    """What recovery has cut off a partition since an earlier copy of it. Recovery ends the log there as a
    truncation does, and keeps in .cut files what had been flushed, or is sound. OSError."""
    copied_at = os.stat(f"{earlier}/{layout.LEADER_EPOCHS}").st_mtime_ns
    names = [name for name in os.listdir(path) if name.endswith(layout.CUT) and ".log." in name]
    cut = [name for name in names if os.stat(f"{path}/{name}").st_ctime_ns > copied_at]
    bases = (layout.segment_offset(f"{name.partition('.')[0]}.log") for name in cut)
    return [Loss("", base, is_noted=True) for base in bases if base is not None]


def taken(
    earlier: Loaded, made: Loaded, losses: Sequence[Loss], stop: int, truncated_at: int
) -> list[_Range]:
    """The offsets below `stop` of an earlier copy that the copy that was made has not, because the source has
    lost them. What is below the log start was deleted, and what is above `truncated_at` was truncated, except
    by a recovery or a repair. CorruptRecordError, OSError."""
    start, end = made.log_start_offset, made.log_end_offset
    ranges = [(max(start, end), truncated_at)] if end < earlier.log_end_offset else []
    for each in losses:
        # a loss that ends at the log start may be why the log starts there
        low = each.first if each.end <= start and not each.is_noted else max(each.first, start)
        ranges.append((low, each.end if each.is_noted else min(each.end, truncated_at)))
    found: list[_Range] = []
    for first, last in ranges:
        bounds = first, min(last, stop)
        found += _without(_offsets(earlier.segments, *bounds), _offsets(made.segments, *bounds))
    return _joined(found)


def truncated_at(earlier: Loaded, path: str, made: Loaded, made_path: str) -> int:
    """The offset at which the source of the copy at `made_path` was truncated since the earlier one at `path`
    was made; 2^63 - 1 if it was not. CorruptCheckpointError, OSError."""
    end = earlier.log_end_offset
    generation = truncations_of(path, stamp_of(path)).number
    position = Position(end, epoch_before(earlier, end), generation)
    # one that is under way may have removed records already
    truncations = truncations_of(made_path, stamp_of(made_path))._replace(pending="")
    # a log that has lost its end ends early, too: that is no truncation
    now = History(truncations, made.leader_epochs, MAX64)
    at = diverged_at(now, position, "read_uncommitted")
    return MAX64 if at < 0 else at


def refusal(name: str, source: str, gone: Iterable[_Range], final: str) -> KeptEarlierError:
    """The error about an earlier copy that would lose records."""
    offsets = in_short([f"{first} to {end - 1}" for first, end in gone])
    text = (
        f"has offsets {offsets} of {name}, which the source has lost, and keeps them: see kstore check "
        f"{source}. Mend the source, or copy into a new directory"
    )
    return KeptEarlierError(errno.EEXIST, text, final)


def _offsets(segments: Iterable[Segment], low: int, high: int) -> list[_Range]:
    """The offsets from low to high (exclusive) that are in batches of segments, as ranges."""
    found: list[_Range] = []
    for segment in segments:
        if segment.base_offset < high and low < segment.end_offset:
            headers = segment.read_headers(0, ["base_offset", "last_offset"])
            firsts, ends = headers["base_offset"], headers["last_offset"] + 1
            if len(headers):
                breaks = (firsts[1:] != ends[:-1]).nonzero()[0]
                starts = [int(firsts[0]), *firsts[breaks + 1].tolist()]
                found += zip(starts, [*ends[breaks].tolist(), int(ends[-1])], strict=True)
    clipped = ((max(first, low), min(end, high)) for first, end in found)
    return _joined((first, end) for first, end in clipped if first < end)


def _joined(ranges: Iterable[_Range]) -> list[_Range]:
    """The same offsets as ranges that do not touch each other, in order."""
    found: list[_Range] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found


def _without(ranges: Iterable[_Range], others: Sequence[_Range]) -> Iterator[_Range]:
    """The offsets of ranges that are in none of the others; both are in order, and do not touch."""
    at = 0
    for first, end in ranges:
        while at < len(others) and others[at][1] <= first:
            at += 1
        while at < len(others) and others[at][0] < end:
            if first < others[at][0]:
                yield first, others[at][0]
            first = max(first, others[at][1])
            if first >= end:
                break
            at += 1
        if first < end:
            yield first, end
