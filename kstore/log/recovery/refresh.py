"""A log that is read, brought up to date with what others have written."""

import contextlib
from pathlib import Path
from time import sleep, time
from typing import TYPE_CHECKING, NamedTuple

from kstore.arguments import INDEX_INTERVAL_BYTES, MAX64, MAX_DECOMPRESSED_BYTES
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, KstoreError, LogChangedError, LogNotFoundError
from kstore.log.files import checkpoints, layout
from kstore.log.files.leader_epochs import LeaderEpochs
from kstore.log.files.listing import read_directory, scan_directory
from kstore.log.files.log_dir_state import read_log_start
from kstore.log.files.truncations import read_truncations
from kstore.log.later import later
from kstore.log.recovery.loader import Loaded, load
from kstore.log.recovery.segment_factory import SegmentFactory

if TYPE_CHECKING:
    from kstore.engine.segment.active_segment import grown
    from kstore.log.recovery.single_file import load_file
else:
    later(
        globals(),
        {
            "kstore.engine.segment.active_segment": "grown",
            "kstore.log.recovery.single_file": "load_file",
        },
    )


class LoadOptions(NamedTuple):
    """How a log was opened for reading; what is None comes from the directory around it."""

    clean: bool | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    recover: bool = True

    @property
    def trusts_files(self) -> bool:
        """Whether what the files beside the log say counts."""
        return self.clean is None and self.recovery_point is None and self.log_start_offset is None


_LOOKS = 40  # at a log that changes while it is looked at
_LOOKS_AT_SWAP = 5  # of these, at one where a compaction puts files in the place of others


def look(path: Path, options: LoadOptions) -> Loaded:
    """The log now, with the truncations before it. What another process deletes or truncates meanwhile is
    looked at again: LogChangedError if it does not come to rest. LogNotFoundError, CorruptFileError, OSError.
    """
    known = read_truncations(path)
    for _ in range(_LOOKS):
        before, loaded = known, _look_once(path, options)
        known = read_truncations(path)
        if known == before:
            break
    return loaded.replace(truncations=before)


def _look_once(path: Path, options: LoadOptions) -> Loaded:
    if path.is_file():
        return load_file(path, options.index_interval_bytes, options.max_decompressed_bytes)
    before = None  # as a look found it damaged; a healthy one pays nothing
    for attempt in range(_LOOKS):
        try:
            loaded = load(path, **options._asdict())
            if attempt >= _LOOKS_AT_SWAP or not _is_being_replaced(path, loaded):
                return loaded
        except LogNotFoundError:
            raise
        except (FileNotFoundError, CorruptFileError) as e:
            if isinstance(e, CorruptFileError):
                now = _traces(path)
                if now == before:
                    raise  # nobody has changed it since the look before, which found the same
                before = now
            if attempt == _LOOKS - 1:
                if isinstance(e, KstoreError):
                    raise
                raise LogChangedError(e.filename or str(path), 0, 0, 0, "it was deleted") from e
        sleep(0.001 * attempt)
    raise AssertionError


def _is_being_replaced(path: Path, loaded: Loaded) -> bool:
    """Whether files of the log have the suffix .swap, and not since long: a moment later they will have lost
    it. What a compaction has left that was broken off stays so until somebody writes."""
    if not any(segment.suffixes for segment in loaded.segments):
        return False
    return abs(time() - path.stat().st_mtime) < 1


def _traces(path: Path) -> list[tuple[str, int, int, int]]:
    """What tells that files of a directory were changed."""
    found = []
    with contextlib.suppress(FileNotFoundError), scan_directory(str(path)) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                stat = entry.stat()
                found.append((entry.name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return sorted(found)


def _ends_as_it_did(last: Segment, before: Loaded) -> bool:
    """Whether the last segment is a whole file that still has the batch with which the log ended: it may have
    been truncated, and have grown beyond that point since."""
    try:
        return (
            not last.origin
            and last.file().size() >= last.size
            and last.has_its_last_batch()
            and max(last.read_next_offset(), before.log_start_offset) == before.log_end_offset
        )
    except (CorruptFileError, FileNotFoundError):
        return False


def refreshed(path: Path, before: Loaded, options: LoadOptions) -> Loaded:
    """The log now, given what it was: the same object where nothing has changed.

    If it was truncated, all of it is loaded again. Else segments that are still there are taken as they were,
    but for the last: it may have grown, and others may follow.
    """
    try:
        if read_truncations(path) == before.truncations:
            loaded = _grown_from(path, before, options)
            if loaded is not None and read_truncations(path) == before.truncations:
                return loaded
    except LogNotFoundError:
        raise
    except (FileNotFoundError, CorruptFileError):  # it changed meanwhile, or is damaged
        pass
    return look(path, options)


def with_tail(before: Loaded) -> Loaded | None:
    """The log with what was appended to its last segment, if nothing else has changed; None if it has: then
    `refreshed` tells. It looks at no other file. OSError."""
    last = before.segments[-1] if before.segments else None
    try:
        if last is None or not _ends_as_it_did(last, before):
            return None
        active = _grown(last, MAX64)
    except (FileNotFoundError, CorruptFileError):
        return None
    if active is last:
        return before
    end = max(active.read_next_offset(), before.log_start_offset)
    segments = (*before.segments[:-1], active)
    return before.replace(segments=segments, log_end_offset=end, recovered_producers=True)


def _grown(last: Segment, end_offset: int) -> Segment:
    """The last segment with what was appended to it; the same object if nothing was."""
    active = grown(last, end_offset)
    if active is not last and last._keys is not None:
        last._keys.go_on_with(active)
    return active


def _grown_from(path: Path, before: Loaded, options: LoadOptions) -> Loaded | None:
    """The log with what was appended to it; None if more than that has changed."""
    last = before.segments[-1] if before.segments else None
    try:
        bases, *_ = read_directory(str(path), (".log",))
    except FileNotFoundError:
        raise LogNotFoundError(f"no partition directory at {path}") from None
    known = {segment.base_offset for segment in before.segments} & bases.keys()
    left = [segment for segment in before.segments if segment.base_offset in known]
    if (
        last is None
        or last.base_offset not in known
        # retention takes the first ones; a compaction also others, or puts new files in their place
        or left[0] is not before.segments[-len(left)]
        or any(segment.is_replaced() for segment in left)
        # not listed: a directory is not listed at one moment, and a file that is renamed meanwhile may be
        # missed
        or any(segment.is_there() for segment in before.segments[: -len(left)])
        or any(base not in known for base in bases if base < last.base_offset)
        or not last.is_file_of_its_name()
        or not _ends_as_it_did(last, before)
    ):
        return None
    log_start_offset = options.log_start_offset
    if log_start_offset is None:
        log_start_offset = read_log_start(path)
    log_start_offset = max(log_start_offset, min(known))
    later = [base for base in bases if base > last.base_offset]
    active = _grown(last, later[0] if later else MAX64)
    if later and active.size < last.file().size() - last.origin:
        return None  # recovery would end the log here
    epochs = before.leader_epochs
    with contextlib.suppress(OSError, CorruptFileError):
        epochs = LeaderEpochs(e for e in checkpoints.read_epochs(path / layout.LEADER_EPOCHS) if min(e) >= 0)
    same = active is last and not later and len(known) == len(before.segments)
    # An epoch that has begun belongs to the next records, which `with_tail` takes in without this file.
    if same and log_start_offset == before.log_start_offset and epochs == before.leader_epochs:
        return before
    segments = [*left[:-1], active]
    make = SegmentFactory(str(path), options.index_interval_bytes, options.max_decompressed_bytes)
    for at, base in enumerate(later):
        if segments[-1].read_next_offset() != base:
            return None  # one was missed, or recovery would end the log here
        segment = make(layout.segment_stem(base), base, None, later[at + 1] if at + 1 < len(later) else MAX64)
        found = segment.recovery_walk()
        if found.valid_bytes < segment.size and at + 1 < len(later):
            return None
        segment.limit_to(found.valid_bytes)
        segment.use_indexes(found.offset_index, found.time_index)
        segments.append(segment)
    end = segments[-1].read_next_offset()
    return before.replace(
        segments=tuple(segments),
        log_start_offset=log_start_offset,
        log_end_offset=max(end, log_start_offset),
        leader_epochs=epochs,
        recovered_producers=True,  # there may be some in what is new
    )
