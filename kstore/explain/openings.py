"""What an opening for writing would do to a log."""

from __future__ import annotations

import os

from kstore.arguments import boolean
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import directory_of, locate, read_state
from kstore.log.recovery.loader import load
from kstore.log.recovery.presence import not_found, require_partition
from kstore.log.recovery.work_left import work_left

if TYPE_CHECKING:
    from kstore.typed import StrPath


class OpeningStep(NamedTuple):
    """A step of an opening. `code` is a stable word, `text` a sentence; `position` and `size` are in bytes,
    -1 if they mean nothing.

    `action`: what the opening does to the file: "delete", "cut", "rename", "set_aside" (rename to .cut),
    "delete_segment", "write_index", "write_indexes", "split" or "sync_names"; None if it only reports.
    """

    code: str
    file: str
    position: int
    size: int
    text: str
    action: str | None


class Opening(NamedTuple):
    """What an opening for writing would do to a log, and the log that it would leave.

    `is_open`: another process has the log open for writing, so there is nothing to recover. `clean`: the log
    was closed cleanly. `recovery_point`: the offset below which batches were flushed and need no check.
    `bytes_to_read`: the bytes that recovery reads. `recovered_segments`: base offsets of the segments that it
    reads. `steps`: what it does, in order. `losses`: what is lost, as sentences.
    """

    path: str
    is_open: bool
    clean: bool
    recovery_point: int
    log_start_offset: int
    log_end_offset: int
    bytes_to_read: int
    recovered_segments: tuple[int, ...]
    truncated_bytes: int
    steps: tuple[OpeningStep, ...]
    losses: tuple[str, ...]


def opening(path: StrPath, *, whole: bool = False) -> Opening:
    """Explain what an opening of a partition's directory for writing would do, as a broker's start does it.

    Nothing is changed and nothing is locked. whole: as if no batch had been flushed, so that all are checked.
    LogNotFoundError, CorruptFileError, OSError.
    """
    boolean("whole", whole)
    if not os.path.isdir(path):
        raise not_found(path)
    require_partition(path)
    place = locate(path)
    is_open = is_locked(directory_of(place.path))
    state = read_state(place.path)
    if whole:
        state = state._replace(clean=False, recovery_point=0)
    # it counts one for an opening that reads no batch, but is needed
    to_read = 0 if is_open else max(work_left(place.path, state) - 1, 0)
    found = load(
        place.path,
        clean=False if whole else None,
        recovery_point=0 if whole else None,
        mode="read" if is_open else "dry",
    )
    recovery = found.recovery
    steps = [
        OpeningStep(
            step.code.name.lower(),
            step.file,
            step.position,
            step.size,
            step.text(done=False),
            None if step.action is None else step.action.method.__name__,
        )
        for step in (*recovery.steps, *recovery.gaps.steps)
        if step.code.kind or not is_open
    ]
    return Opening(
        place.path,
        is_open,
        recovery.clean,
        recovery.recovery_point,
        found.log_start_offset,
        found.log_end_offset,
        to_read,
        tuple(recovery.recovered_segments),
        recovery.truncated_bytes,
        tuple(steps),
        (*recovery.losses, *recovery.missing),
    )
