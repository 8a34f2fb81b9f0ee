"""The changes that recovery makes to the files of a partition (spec 8.2 to 8.4, 8.7)."""

from __future__ import annotations

import os

from kstore.engine.io.directory import new_draft, rename, set_mtime_ms, sync_directory, take_mode, unlink
from kstore.engine.io.file import File
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.listing import delete_file
from kstore.log.recovery.segment_factory import SegmentFactory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstore.engine.segment.index import OffsetIndex, TimeIndex

CUT = layout.CUT


def name_for_cut(path: str, position: int) -> str:
    """A free name for a .cut file with the bytes of a file from `position` on."""
    name, number = f"{path}.{position}{CUT}", 1
    while os.path.lexists(name):
        number += 1
        name = f"{path}.{position}.{number}{CUT}"
    return name


class Place(NamedTuple):
    """A part of a segment: its bytes in the file, and its range of offsets."""

    base_offset: int
    origin: int
    size: int
    end_offset: int


class Repairs:
    """The actions of steps, for one directory.

    `keep_cut`: keep all removed bytes in .cut files. Without it, only those of actions with `keep`.
    """

    def __init__(self, directory: str, *, keep_cut: bool = False) -> None:
        self.directory = directory
        self.keep_cut = keep_cut
        self.kept: list[str] = []

    def delete(self, name: str) -> None:
        """Remove a file. A directory of that name stays."""
        delete_file(f"{self.directory}/{name}")

    def set_aside(self, name: str) -> None:
        """Rename a .log file to a .cut file."""
        path = f"{self.directory}/{name}"
        self.kept.append(name_for_cut(path, 0))
        rename(path, self.kept[-1])

    def sync_names(self) -> None:
        """Sync the directory."""
        sync_directory(self.directory)

    def rename(self, name: str, target: str) -> None:
        """Rename a file."""
        rename(f"{self.directory}/{name}", f"{self.directory}/{target}")

    def write_index(self, name: str, entries: bytes) -> None:
        """Replace an index file."""
        path = f"{self.directory}/{name}"
        unlink(path, missing_ok=True)
        file = File(path, "x")
        take_mode(file, path.rpartition(".")[0] + ".log")
        file.write(0, entries)
        file.sync()

    def write_indexes(self, stem: str, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Replace both indexes of a segment."""
        self.write_index(f"{stem}.index", offset_index.to_bytes())
        self.write_index(f"{stem}.timeindex", time_index.to_bytes())

    def _keep(self, source: str, position: int) -> None:
        """Copy a file from a byte on to a .cut file. Holes of a sparse file are kept, because they may be
        larger than the disk."""
        target = name_for_cut(source, position)
        old, new = File(source), File(target, "x")
        take_mode(new, source)
        at, end = position, old.size()
        while (at := old.next_data(at)) < end:
            until = min(old.next_hole(at), end)
            while at < until and (chunk := old.read(at, min(1 << 20, until - at))):
                new.write(at - position, chunk)
                at += len(chunk)
        new.truncate(end - position)
        new.sync()
        self.kept.append(target)

    def cut(self, name: str, size: int, keep: bool) -> None:
        """Truncate a file to `size` bytes. Of a .log, `keep` or `keep_cut` keeps the removed bytes."""
        path = f"{self.directory}/{name}"
        if name.endswith(".log") and (self.keep_cut or keep):
            self._keep(path, size)
        file = File(path, "r+")
        file.truncate(size)
        file.sync()

    def delete_segment(self, stem: str, keep: bool) -> None:
        """Remove the files of a segment."""
        path = f"{self.directory}/{stem}"
        for kind in layout.SEGMENT_KINDS:
            if kind == ".log" and (self.keep_cut or keep):
                self.set_aside(stem + kind)
            else:
                unlink(path + kind, missing_ok=True)
        delete_file(path + layout.KEYS)

    def split(self, base_offset: int, places: Sequence[Place]) -> None:
        """Replace a segment by several that contain its parts. A crash leaves the old one or the new ones
        (spec 8.7)."""
        make, old_stem = SegmentFactory(self.directory), layout.segment_stem(base_offset)
        whole = make(old_stem, base_offset)
        mtime = whole.mtime_ms()
        names = []
        for place in places:
            stem = layout.segment_stem(place.base_offset)
            part = make(old_stem, place.base_offset, None, place.end_offset, place.origin)
            part.limit_to(place.size)
            found = part.recovery_walk(verify=False)
            contents = {
                ".index": found.offset_index.to_bytes(),
                ".timeindex": found.time_index.to_bytes(),
            }
            log = new_draft(f"{self.directory}/{stem}.log.cleaned", whole.path)
            at = 0
            while at < place.size:
                chunk = part.file().read(place.origin + at, min(1 << 20, place.size - at))
                log.write(at, chunk)
                at += len(chunk)
            log.sync()
            for kind, entries in contents.items():
                file = new_draft(f"{self.directory}/{stem}{kind}.cleaned", whole.path)
                file.write(0, entries)
                file.sync()
            names.append([stem + kind for kind in (".log", *contents)])
            for name in names[-1]:
                set_mtime_ms(f"{self.directory}/{name}.cleaned", mtime)
        self.sync_names()
        # An opening ignores .swap files at or above the offset of the first .cleaned file. So the new names
        # of each part are synced before those of the part below it.
        for part_names in reversed(names):
            for name in part_names:
                self.rename(name + ".cleaned", name + ".swap")
            self.sync_names()
        new = [name for part_names in names for name in part_names]
        for kind in layout.SEGMENT_KINDS:
            name = old_stem + kind
            if name not in new:
                self.delete(name)
        delete_file(f"{self.directory}/{old_stem}{layout.KEYS}")
        self.sync_names()  # or an old index could come back beside the new log
        for name in new:
            self.rename(name + ".swap", name)
        self.sync_names()
