"""Segments that compaction has made, until they take the place of others (spec 8.7)."""

from __future__ import annotations

import contextlib
import os

from kstore.engine.io.directory import new_draft, set_mtime_ms, unlink
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout

if TYPE_CHECKING:
    from kstore.engine.io.file import File
    from kstore.engine.segment.index import OffsetIndex, TimeIndex, TimestampOffset, TransactionIndex

CLEANED, SWAP = ".cleaned", ".swap"


class Cleaned(NamedTuple):
    """A segment made by compaction, whose files end in .cleaned; the kinds of files that it has."""

    stem: str
    base_offset: int
    kinds: tuple[str, ...]
    offset_index: OffsetIndex
    time_index: TimeIndex
    transaction_index: TransactionIndex
    max_timestamp: TimestampOffset


def path_of(directory: str, base_offset: int) -> str:
    """The paths of its files, but for their kinds."""
    return f"{directory}/{layout.segment_stem(base_offset)}"


def new_log(directory: str, base_offset: int, old: str) -> File:
    """Its .log file, empty; what there was of an earlier one is removed. `old`: the .log of which it is made,
    whose mode and owner it gets, and its indexes too. OSError."""
    path = path_of(directory, base_offset)
    remove(path)
    return new_draft(f"{path}.log{CLEANED}", old)


def complete(
    directory: str,
    base_offset: int,
    log: File,
    mtime_ms: int,
    indexes: tuple[OffsetIndex, TimeIndex, TransactionIndex],
    max_timestamp: TimestampOffset,
) -> Cleaned:
    """Writes the indexes, and brings the contents of all files to the disk. OSError."""
    path = path_of(directory, base_offset)
    offsets, times, transactions = indexes
    contents = {".index": offsets.to_bytes(), ".timeindex": times.to_bytes()}
    if not transactions.is_empty:
        contents[".txnindex"] = transactions.to_bytes()
    files = [log]
    for kind, entries in contents.items():
        files.append(new_draft(f"{path}{kind}{CLEANED}", log.path))
        files[-1].write(0, entries)
    for file in files:
        if not file.path.endswith(f".txnindex{CLEANED}"):
            set_mtime_ms(file.path, mtime_ms)
        file.sync()
    stem = layout.segment_stem(base_offset)
    return Cleaned(stem, base_offset, (".log", *contents), offsets, times, transactions, max_timestamp)


def give_up(directory: str, *base_offsets: int) -> None:
    """Removes what there is of new segments that were not finished. Once files have begun to be called
    .swap, those that are still called .cleaned stay: by them an opening knows that it must pass over the
    others."""
    paths = [path_of(directory, base_offset) for base_offset in base_offsets]
    with contextlib.suppress(OSError):  # an opening does it too
        if not any(os.path.exists(f"{path}.log{SWAP}") for path in paths):
            for path in paths:
                remove(path)


def remove(path: str) -> None:
    """Removes what there is of a segment that was not finished. OSError."""
    for kind in layout.SEGMENT_KINDS:
        unlink(f"{path}{kind}{CLEANED}", missing_ok=True)
