"""Reading a single .log or .cut file, without a partition directory."""

from __future__ import annotations

import os

from kstore.errors import CorruptFileError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.leader_epochs import LeaderEpochs
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import directory_of
from kstore.log.recovery.file_kind import kind_of
from kstore.log.recovery.loader import Loaded
from kstore.log.recovery.report import Recovery
from kstore.log.recovery.segment_factory import SegmentFactory
from kstore.log.recovery.steps import Code, Step
from kstore.log.recovery.survey import is_zeros, sound_batches

if TYPE_CHECKING:
    from kstore.engine.segment.segment import Segment
    from kstore.typed import StrPath


def load_file(path: StrPath, index_interval_bytes: int, max_decompressed_bytes: int) -> Loaded:
    """Load a file as a log, from its first sound batch to its last, with the damage in between.

    LogNotFoundError if the name is not that of a .log file, with or without a suffix. CorruptFileError, with
    the kind of the file if it is known, if it has bytes and no sound batch.
    """
    directory, name = os.path.split(path)
    directory = directory or os.curdir
    stem, dot, suffix = name.partition(".log")
    offset = layout.parse_offset(name)
    if not dot or "." in stem or offset is None or offset < 0:
        kind = kind_of(str(path))
        raise LogNotFoundError(
            f"{path} is no partition directory, nor a .log or .cut file of "
            f"one{f': it is {kind}' if kind else ''}"
        )
    # index files do not have the suffix
    suffixes = dict.fromkeys(layout.SEGMENT_KINDS, suffix) if suffix else None
    make = SegmentFactory(directory, index_interval_bytes, max_decompressed_bytes)
    segment = make(stem, offset, suffixes)
    sound = sound_batches(segment, 0)
    if sound is None and segment.size:
        raise _no_log(segment)
    first, end = (sound.first_offset, sound.last_offset + 1) if sound else (offset, offset)
    if first < offset:  # the file was misnamed
        segment = make(stem, first, suffixes)
    steps = []
    if sound is not None and not is_locked(directory_of(directory)):  # else a writer may be appending
        steps = _steps_for_tail(segment, sound.end)
    losses = [f"{step.file}: {step.text(done=True)}" for step in steps if step.code is Code.FILE_TAIL]
    recovery = Recovery(not losses, end, False, [], 0, losses, tuple(steps))
    return Loaded((segment,), first, end, LeaderEpochs(), recovery, frozenset(), frozenset(), True, object())


def _no_log(segment: Segment) -> CorruptFileError:
    """The error for a file without any sound batch."""
    if kind := kind_of(segment.path):
        return CorruptFileError(f"not in Kafka's format: the file is {kind}", file=segment.path, position=0)
    error = segment.recovery_walk().error
    why = "" if error is None else f" ({_without_path(error)})"
    return CorruptFileError(
        f"no sound batch in Kafka's format is in the file: its bytes are unknown, encrypted or damaged{why}",
        file=segment.path,
        position=0,
    )


def _steps_for_tail(segment: Segment, end: int) -> list[Step]:
    """A step about the bytes behind the last sound batch, if there are any. Zeros there do not count."""
    size = segment.size - end
    if size <= 0:
        return []
    if is_zeros(segment, end):
        segment.limit_to(end)
        return [Step(Code.SPARE_ROOM, segment.path, end, size)]
    whole = segment.recovery_walk()
    why = f": {_without_path(whole.error)}" if whole.error is not None and whole.valid_bytes == end else ""
    return [Step(Code.FILE_TAIL, segment.path, end, size, detail=why)]


def _without_path(error: CorruptFileError) -> str:
    return str(error).removeprefix(f"{error.file}: ")
