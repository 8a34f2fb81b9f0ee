"""Damaged bytes of a segment: where they are, and how they are moved to .cut files."""

from __future__ import annotations

import os

from kstore.arguments import MAX64
from kstore.checking.segment_facts import read_segment
from kstore.engine.io.directory import new_draft, rename, set_mtime_ms, sync_directory, unlink
from kstore.engine.io.file import File
from kstore.errors import KstoreError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.listing import delete_file
from kstore.log.recovery.gaps import Ranges, merged
from kstore.log.recovery.loader import load

if TYPE_CHECKING:
    from collections.abc import Iterable

_PIECE = 1 << 20


def damage_of(partition: str, file: str) -> tuple[Ranges, Ranges, int]:
    """The ranges of bytes of a .log file that hold no sound batch, the ranges of offsets that its other
    bytes lack, and the offset behind its last sound batch. A tail of the last segment is left to recovery.
    Empty, and 0, if the file is not a segment of the log. OSError."""
    # without recovery: a recovery that reads a segment for another reason ends it at the first damage
    try:
        segments = load(partition, recover=False).segments
    except KstoreError:
        return (), (), 0
    for segment in segments:
        if segment.path != file or segment.suffixes or segment.origin:
            continue
        facts = read_segment(segment)
        batches = [segment.batch_at(position) for position in facts.errors]
        ranges = [(each.position, each.size) for each in facts.skipped]
        ranges += [(each.position, each.size) for each in batches]
        if facts.end_position < facts.size and segment.end_offset < MAX64:
            ranges.append((facts.end_position, facts.size - facts.end_position))
        offsets = [(each.first, each.last - each.first + 1) for each in (*facts.holes, *facts.gaps)]
        offsets += [(each.base_offset, each.last_offset - each.base_offset + 1) for each in batches]
        return merged(ranges), merged(offsets), facts.next_offset
    return (), (), 0


def move_bytes(path: str, ranges: Ranges) -> None:
    """Copy ranges of a .log file to .cut files, and replace the file by one without them. The indexes are
    removed, because recovery makes them again. A crash or an error leaves the old file or the new one, whole
    .cut files, and perhaps a draft, which an opening removes. OSError."""
    directory, old, draft = os.path.dirname(path), File(path), f"{path}.cleaned"
    for position, size in ranges:
        cut = new_draft(draft, path)
        _copy(old, [(position, size)], cut)
        cut.sync()
        rename(draft, name_for_repaired(f"{path}.{position}"))
    new = new_draft(draft, path)
    _copy(old, _between(ranges, old.size()), new)
    new.sync()
    set_mtime_ms(draft, old.mtime_ms())
    sync_directory(directory)
    stem = path.removesuffix(".log")
    for kind in layout.INDEX_KINDS:  # before the log changes: an index must never lead into another file
        unlink(stem + kind, missing_ok=True)
    delete_file(stem + layout.KEYS)
    sync_directory(directory)
    rename(draft, path)
    sync_directory(directory)


def name_for_repaired(stem: str) -> str:
    """A free name for bytes of a segment that a repair moves: a check knows by it that an operator has asked
    for them."""
    number, name = 1, f"{stem}{layout.REPAIRED}"
    while os.path.lexists(name):
        number += 1
        name = f"{stem}.{number}{layout.REPAIRED}"
    return name


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
