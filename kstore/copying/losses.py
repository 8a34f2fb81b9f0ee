"""What a source has lost, and what it should have. Both modes of a copy use it. It writes nothing."""

from __future__ import annotations

from contextlib import suppress

from kstore.arguments import MAX64
from kstore.errors import CorruptFileError, shown
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import directory_of, is_known_compacted, is_led
from kstore.log.recovery.steps import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.log.files.manifest import Manifest
    from kstore.log.files.truncations import Truncations
    from kstore.log.partition import PartitionLog
    from kstore.log.recovery.steps import Step


class Loss(NamedTuple):
    """Records that a source has lost: a sentence, and offsets that have them all. A repair has noted those
    without a sentence."""

    text: str
    first: int = 0
    end: int = MAX64


class Expected(NamedTuple):
    """The offsets of which a source should have all records that it once had: `start` to `end` (exclusive).
    Below `compacted_end` compaction or an erasure may have removed some; -1 if there was none. `truncations`
    explain what they have removed."""

    start: int
    end: int
    compacted_end: int
    truncations: Truncations


def gaps_of(losses: Iterable[Loss]) -> tuple[str, ...]:
    """The sentences about losses."""
    return tuple(shown(each.text) for each in losses if each.text)


def losses_of(
    log: PartitionLog, start: int, stop: int, gaps: Iterable[Step], high_watermark: int, manifest: Manifest
) -> list[Loss]:
    """What a view of a partition has lost of the offsets start to stop (exclusive). `gaps`: what is missing
    between its segments, or before them."""
    end, recovery = log.log_end_offset, log.recovery
    noted = [Loss("", first, first + count) for first, count in (*manifest.gaps, *manifest.lost_ends)]
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
    return found + noted


def expected_of(log: PartitionLog, start: int, end: int, cleaner: int | None) -> Expected:
    """What a view of a partition should have of the offsets start to end (exclusive). `cleaner`: the end of
    the compacted part, if there is one."""
    segments, epochs = log.segments, log.leader_epochs
    # a loss may be why the log starts there; a deletion would have moved the beginning of the epochs, too
    if epochs and start == log.log_start_offset and not is_led(log.path):
        start = min(start, epochs[0][1])
    is_compacted = False
    with suppress(CorruptFileError, OSError):
        is_compacted = is_known_compacted(log.path)
    active = segments[-1].base_offset if segments else 0
    compacted_end = max(active, cleaner or 0) if is_compacted else -1
    return Expected(start, end, compacted_end, log.snapshot.truncations)
