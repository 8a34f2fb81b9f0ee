"""Refreshing a log that is open for reading with the changes of other processes."""

from __future__ import annotations

import contextlib
import os
from time import sleep, time

from kstore.arguments import INDEX_INTERVAL_BYTES, MAX64, MAX_DECOMPRESSED_BYTES
from kstore.errors import CorruptFileError, KstoreError, LogChangedError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import checkpoints, layout
from kstore.log.files.leader_epochs import LeaderEpochs
from kstore.log.files.listing import read_directory, scan_directory
from kstore.log.files.log_dir_state import read_log_start
from kstore.log.files.manifest import stamp_of, truncations_of
from kstore.log.later import later
from kstore.log.recovery.loader import load
from kstore.log.recovery.presence import refuse_other_kinds
from kstore.log.recovery.segment_factory import SegmentFactory

if TYPE_CHECKING:
    from kstore.engine.segment.active_segment import grown
    from kstore.engine.segment.segment import Segment
    from kstore.log.files.truncations import Truncations
    from kstore.log.recovery.loader import Loaded
    from kstore.log.recovery.single_file import load_file
    from kstore.log.recovery.steps import Code, Step
    from kstore.typed import StrPath
else:
    later(
        globals(),
        {
            "kstore.log.recovery.steps": "Code Step",
            "kstore.engine.segment.active_segment": "grown",
            "kstore.log.recovery.single_file": "load_file",
        },
    )


class LoadOptions(NamedTuple):
    """The options of an opening for reading. Those that are None come from the checkpoints."""

    clean: bool | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    recover: bool = True

    def load(self, path: StrPath) -> Loaded:
        """Loads a partition directory with these options."""
        return load(path, **self._asdict())

    @property
    def trusts_files(self) -> bool:
        """Whether the checkpoints are used."""
        return self.clean is None and self.recovery_point is None and self.log_start_offset is None


_LOOKS = 40  # to load a log that changes meanwhile
_LOOKS_AT_SWAP = 5  # of these, while a compaction is replacing files


def look(path: StrPath, options: LoadOptions) -> Loaded:
    """Load a log for reading, with its truncations. If another process deletes or truncates meanwhile, it is
    loaded again; LogChangedError if it keeps changing. LogNotFoundError, CorruptFileError, OSError.
    """
    now = stamp_of(path)
    if now is None:
        if os.path.isfile(path):
            return load_file(path, options.index_interval_bytes, options.max_decompressed_bytes)
        refuse_other_kinds(path)
    for _ in range(_LOOKS):
        manifest, truncations, loaded = now, truncations_of(path, now), _look_once(path, options)
        now = stamp_of(path)
        if now == manifest:
            break
    if truncations.damage is not None:
        file = f"{path}/{layout.MANIFEST}"
        text = str(truncations.damage).removeprefix(f"{file}: ").partition("\n")[0]
        step = Step(Code.MANIFEST_DAMAGED, file, detail=text)
        loaded = loaded.replace(recovery=loaded.recovery.with_step(step))
    elif truncations.pending and options.recover:
        loaded = _truncated(loaded, truncations, path, options)
    return loaded.replace(truncations=truncations, manifest=manifest)


def _truncated(loaded: Loaded, truncations: Truncations, path: StrPath, options: LoadOptions) -> Loaded:
    """The log after the truncation that a process has begun, and that the next writer completes."""
    offset, end, segments = truncations.offset, loaded.log_end_offset, loaded.segments
    kept = [] if truncations.pending == "all" else [each for each in segments if each.base_offset <= offset]
    if kept and offset >= end:
        return loaded
    if kept:
        last = kept[-1]
        found = last.translate(offset)
        rest = SegmentFactory(str(path), options.index_interval_bytes, options.max_decompressed_bytes)(
            last.stem, last.base_offset, last.suffixes, last.end_offset, last.origin
        )
        rest.limit_to(last.size if found is None else found.position)
        if found is not None and found.base_offset < offset:  # a batch that the writer will encode again
            rest.limit_to(found.position + found.size)
            offset = max(offset, rest.read_next_offset())
        offsets, times = last.offset_index.copy(), last.time_index.copy()
        offsets.truncate_to(offset)
        times.truncate_to(offset)
        rest.use_indexes(offsets, times)
        rest.files.remember()
        kept[-1] = rest
    step = Step(Code.TRUNCATION_LEFT, f"{path}/{layout.MANIFEST}", offsets=(truncations.offset, end))
    return loaded.replace(
        segments=tuple(kept),
        log_start_offset=min(loaded.log_start_offset, offset) if kept else offset,
        log_end_offset=offset,
        leader_epochs=loaded.leader_epochs.until(offset) if kept else LeaderEpochs(),
        recovery=loaded.recovery.with_step(step),
    )


def _look_once(path: StrPath, options: LoadOptions) -> Loaded:
    before = None  # the files when the log was found damaged
    for attempt in range(_LOOKS):
        try:
            loaded = options.load(path)
            if attempt >= _LOOKS_AT_SWAP or not _is_being_replaced(path, loaded):
                return loaded
        except LogNotFoundError:
            raise
        except (FileNotFoundError, CorruptFileError) as e:
            if isinstance(e, CorruptFileError):
                now = _traces(path)
                if now == before:
                    raise  # no file has changed since the last attempt
                before = now
            if attempt == _LOOKS - 1:
                if isinstance(e, KstoreError):
                    raise
                raise LogChangedError(e.filename or str(path), 0, 0, 0, "it was deleted") from e
        sleep(0.001 * attempt)
    raise AssertionError


def _is_being_replaced(path: StrPath, loaded: Loaded) -> bool:
    """Whether a compaction is replacing files: some have the suffix .swap and the directory has just changed.
    An interrupted compaction leaves .swap files until the next opening for writing."""
    if not any(segment.suffixes for segment in loaded.segments):
        return False
    return abs(time() - os.stat(path).st_mtime) < 1


def _traces(path: StrPath) -> list[tuple[str, int, int, int]]:
    """Name, inode, size and time of each file in a directory."""
    found = []
    with contextlib.suppress(FileNotFoundError), scan_directory(str(path)) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                stat = entry.stat()
                found.append((entry.name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return sorted(found)


def _ends_as_it_did(last: Segment, before: Loaded) -> bool:
    """Whether the last segment still has the batch with which the log ended. If not, it was truncated, even
    if it has grown since."""
    try:
        return (
            not last.origin
            and last.file().size() >= last.size
            and last.has_its_last_batch()
            and max(last.read_next_offset(), before.log_start_offset) == before.log_end_offset
        )
    except (CorruptFileError, FileNotFoundError):
        return False


def refreshed(path: StrPath, before: Loaded, options: LoadOptions) -> Loaded:
    """The log at present, from an earlier load; the object `before` if nothing has changed.

    A truncated log is loaded again. Otherwise existing segments are reused, except the last, which may have
    grown, and new segments are added.
    """
    try:
        if stamp_of(path) == before.manifest:
            if before.truncations.pending and not any(s.files.is_replaced() for s in before.segments):
                return before
            loaded = _grown_from(path, before, options)
            if loaded is not None and stamp_of(path) == before.manifest:
                return loaded
    except LogNotFoundError:
        raise
    except (FileNotFoundError, CorruptFileError):  # it changed meanwhile, or is damaged
        pass
    return look(path, options)


def with_tail(before: Loaded) -> Loaded | None:
    """The log with the records appended to its last segment, or None if that segment was truncated. It reads
    only this segment; `refreshed` finds other changes. OSError."""
    last = before.segments[-1] if before.segments else None
    if before.truncations.pending:  # nothing is appended before it is complete
        return None
    try:
        if last is None or not _ends_as_it_did(last, before):
            return None
        active = grown(last, MAX64)
    except (FileNotFoundError, CorruptFileError):
        return None
    if active is last:
        return before
    end = max(active.read_next_offset(), before.log_start_offset)
    segments = (*before.segments[:-1], active)
    return before.replace(segments=segments, log_end_offset=end, recovered_producers=True)


def _grown_from(path: StrPath, before: Loaded, options: LoadOptions) -> Loaded | None:
    """The log with the records appended to it; None if more has changed."""
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
        # retention removes the first ones; a compaction also removes others, or replaces their files
        or left[0] is not before.segments[-len(left)]
        or any(segment.files.is_replaced() for segment in left)
        # a listing is not atomic: it may miss a file that is renamed meanwhile
        or any(segment.files.is_there() for segment in before.segments[: -len(left)])
        or any(base not in known for base in bases if base < last.base_offset)
        or not last.files.is_at_its_name()
        or not _ends_as_it_did(last, before)
    ):
        return None
    log_start_offset = options.log_start_offset
    if log_start_offset is None:
        log_start_offset = read_log_start(path)
    log_start_offset = max(log_start_offset, min(known))
    later = [base for base in bases if base > last.base_offset]
    active = grown(last, later[0] if later else MAX64)
    if later and active.size < last.file().size() - last.origin:
        return None  # recovery would end the log here
    epochs = before.leader_epochs
    with contextlib.suppress(OSError, CorruptFileError):
        entries = checkpoints.read_epochs(f"{path}/{layout.LEADER_EPOCHS}")
        if entries:  # else it was emptied, and they are those of the batches
            epochs = LeaderEpochs(entry for entry in entries if min(entry) >= 0)
    same = active is last and not later and len(known) == len(before.segments)
    # A new epoch belongs to the next records, which `with_tail` adds without reading this file.
    if same and log_start_offset == before.log_start_offset and epochs == before.leader_epochs:
        return before
    segments = [*left[:-1], active]
    make = SegmentFactory(str(path), options.index_interval_bytes, options.max_decompressed_bytes)
    for at, base in enumerate(later):
        if segments[-1].read_next_offset() != base:
            return None  # the listing missed a segment, or recovery would end the log here
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
        recovered_producers=True,  # new batches may have producers
    )
