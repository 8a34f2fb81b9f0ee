"""Damaged bytes of a segment: where they are, and how they are moved to .cut files."""

from __future__ import annotations

import os

from kstore.arguments import MAX64
from kstore.checking.segment_facts import read_segment
from kstore.engine.io.file import File, new_draft, rename, set_mtime_ms, sync_directory, take_mode, unlink
from kstore.errors import KstoreError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.listing import delete_file
from kstore.log.recovery.loader import load
from kstore.log.recovery.repairs import name_for_cut

if TYPE_CHECKING:
    from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]  # the first byte and the number of bytes of each
_PIECE = 1 << 20


def damaged_ranges(partition: str, file: str) -> Ranges:
    """The ranges of a .log file that hold no sound batch. A tail of the last segment is left to recovery.
    Empty if the file is not a segment of the log. OSError."""
    # without recovery: a recovery that reads a segment for another reason ends it at the first damage
    try:
        segments = load(partition, recover=False).segments
    except KstoreError:
        return ()
    for segment in segments:
        if segment.path != file or segment.suffixes or segment.origin:
            continue
        facts = read_segment(segment)
        ranges = [(each.position, each.size) for each in facts.skipped if each.size]
        ranges += [(position, segment.batch_at(position).size) for position in facts.errors]
        if facts.end_position < facts.size and segment.end_offset < MAX64:
            ranges.append((facts.end_position, facts.size - facts.end_position))
        return tuple(sorted(ranges))
    return ()


def move_bytes(path: str, ranges: Ranges) -> list[str]:
    """Copy ranges of a .log file to .cut files, and replace the file by one without them. Returns the .cut
    files. The indexes are removed, because recovery makes them again. A crash leaves the old file or the new
    one. OSError."""
    directory, old, kept = os.path.dirname(path), File(path), []
    for position, size in ranges:
        kept.append(name_for_cut(path, position))
        cut = File(kept[-1], "x")
        take_mode(cut, path)
        _copy(old, [(position, size)], cut)
        cut.sync()
    new = new_draft(f"{path}.cleaned", path)  # an opening removes it if this is interrupted
    _copy(old, _between(ranges, old.size()), new)
    new.sync()
    set_mtime_ms(f"{path}.cleaned", old.mtime_ms())
    sync_directory(directory)
    stem = path.removesuffix(".log")
    for kind in layout.INDEX_KINDS:  # before the log changes: an index must never lead into another file
        unlink(stem + kind, missing_ok=True)
    delete_file(stem + layout.KEYS)
    sync_directory(directory)
    rename(f"{path}.cleaned", path)
    sync_directory(directory)
    return kept


def _between(ranges: Ranges, size: int) -> list[tuple[int, int]]:
    """The ranges between these."""
    found, at = [], 0
    for position, count in (*ranges, (size, 0)):
        if position > at:
            found.append((at, position - at))
        at = max(at, position + count)
    return found


def _copy(old: File, ranges: Iterable[tuple[int, int]], new: File) -> None:
    at = 0
    for position, size in ranges:
        while size > 0 and (chunk := old.read(position, min(_PIECE, size))):
            new.write(at, chunk)
            at, position, size = at + len(chunk), position + len(chunk), size - len(chunk)
