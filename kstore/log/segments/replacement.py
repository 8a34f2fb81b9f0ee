"""Putting segments that compaction has made in the place of others (spec 8.7)."""

from __future__ import annotations

import os

from kstore.engine.io.directory import rename, sync_directory, unlink
from kstore.errors import LogChangedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files.listing import list_directory
from kstore.log.segments.cleaned import CLEANED, SWAP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstore.engine.segment.segment import Segment
    from kstore.log.segments.cleaned import Cleaned
    from kstore.log.segments.segment_set import SegmentSet


def replace_segments(log: SegmentSet, old: Sequence[Segment], new: Sequence[Cleaned]) -> None:
    """Replaces sealed segments by others, whose files are complete and on the disk. `log_end.held()`.

    At any moment the files are the old segments, or an opening makes them the new ones. The first new one has
    the base offset of the first old one. LogChangedError if the old ones are not in the log any more.
    OSError: nothing is changed, or the log refuses to write.
    """
    log.check_place()
    end, directory = log.log_end, log.directory
    at = _position_of(log, old)
    due = log.clock_ms() + log.config.file_delete_delay_ms
    names = [each.stem + kind for each in new for kind in each.kinds]
    _remove_unfinished(directory, names)
    # Readers that have the first one must not take the new files of its name for its own.
    _ = old[0].offset_index, old[0].time_index, old[0].transaction_index
    base, stop = old[0].base_offset, old[-1].end_offset
    with end.unfinished(f"the replacement of the segments from {base} to {stop}") as change:
        try:
            # Beside a .cleaned file an opening passes over the .swap files from its offset on, and over no
            # other: so each segment's new names are on the disk before those of the one below it.
            for each in reversed(new):
                for kind in each.kinds:
                    path = f"{directory}/{each.stem}{kind}"
                    rename(path + CLEANED, path + SWAP)
                sync_directory(directory)
            # From here on the new ones count.
        except OSError:
            _remove_new(directory, names)
            change.undone()
            raise
        log.deleted.set_all_aside(old[0], due)
        for segment in old[1:]:
            log.deleted.set_aside(segment, due)
            log.set_rest_aside(segment, due)
        # Or an old one may come back beside the new one that holds its records.
        sync_directory(directory)
        for name in names:
            rename(f"{directory}/{name}{SWAP}", f"{directory}/{name}")
        end.publish(end.sealed.replacing(at, len(old), _segments_of(log, new, stop)), end.active)
        sync_directory(directory)


def _segments_of(log: SegmentSet, new: Sequence[Cleaned], stop: int) -> list[Segment]:
    segments = []
    ends = [*(each.base_offset for each in new[1:]), stop]
    for each, end_offset in zip(new, ends, strict=True):
        segment = log.make_segment()(each.stem, each.base_offset, end_offset=end_offset)
        segment.use_indexes(each.offset_index, each.time_index, each.transaction_index)
        segment.set_max_timestamp(each.max_timestamp)
        if log.lease.session is not None:  # another process may replace or delete it
            segment.files.remember()
        segments.append(segment)
    return segments


def _position_of(log: SegmentSet, old: Sequence[Segment]) -> int:
    """The index of the first of these among the sealed segments. LogChangedError if they are not there, one
    after the other."""
    sealed = log.sealed()
    at = next((i for i, segment in enumerate(sealed) if segment is old[0]), -1)
    if at < 0 or [id(s) for s in sealed[at : at + len(old)]] != [id(s) for s in old]:
        what = "segments were deleted, or the log was truncated,"
        raise LogChangedError(old[0].path, old[0].base_offset, log.offsets.start, log.log_end.offset, what)
    return at


def _remove_unfinished(directory: str, names: Sequence[str]) -> None:
    """Removes what an earlier compaction could not remove: beside it an opening would not take the new files.
    As long as there are .swap files, a .cleaned one may be what keeps an opening from taking them."""
    left = [
        name
        for name in list_directory(directory)
        if name.endswith((CLEANED, SWAP)) and name.removesuffix(CLEANED) not in names
    ]
    for suffix in (SWAP, CLEANED):
        if found := [name for name in left if name.endswith(suffix)]:
            for name in found:
                unlink(f"{directory}/{name}")
            sync_directory(directory)


def _remove_new(directory: str, names: Sequence[str]) -> None:
    """Removes new segments that do not count yet. The first .log goes last: as long as it ends in .cleaned,
    an opening passes all of them over."""
    first, *others = names
    path = f"{directory}/{first}"
    if sum(name.endswith(".log") for name in names) > 1 and os.path.exists(path + SWAP):
        rename(path + SWAP, path + CLEANED)
        sync_directory(directory)
    for part in (others, [first]):
        for name in reversed(part):
            for suffix in (CLEANED, SWAP):
                unlink(f"{directory}/{name}{suffix}", missing_ok=True)
        sync_directory(directory)
