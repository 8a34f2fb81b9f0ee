"""The .snapshot files of a partition: listing, writing and removing them (spec 3.5, 6.7, 8.5)."""

from __future__ import annotations

import os
from collections import deque

from kstore.engine.io.directory import unlink, write_whole
from kstore.engine.io.file import read_whole
from kstore.errors import CorruptFileError, CorruptSnapshotError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.listing import list_directory
from kstore.log.producers.states import encode_snapshot, read_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.log.producers.states import ProducerState


class SnapshotFiles:
    """The producer snapshots in one directory.

    A log has one for each segment, so an operation on one segment must not read the whole list.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._paths: dict[int, str] = {}
        for name in list_directory(directory) if not os.path.isfile(directory) else ():
            offset = layout.parse_offset(name)
            if offset is not None and name.partition(".")[2] == "snapshot":
                self._paths[offset] = f"{directory}/{name}"
        self._order = deque(sorted(self._paths))  # all offsets, and some of removed snapshots
        self.unsynced: list[str] = []  # paths of snapshots that were written and not synced

    @property
    def offsets(self) -> list[int]:
        return [offset for offset in self._order if offset in self._paths]

    @property
    def latest(self) -> int:
        """The offset of the newest snapshot, or -1."""
        while self._order and self._order[-1] not in self._paths:
            self._order.pop()
        return self._order[-1] if self._order else -1

    def _begins_until(self, offset: int) -> bool:
        """Whether the oldest snapshot is at this offset or below."""
        while self._order and self._order[0] not in self._paths:
            self._order.popleft()
        return bool(self._order) and self._order[0] <= offset

    def _enter(self, offset: int) -> None:
        """Add a snapshot to the list."""
        latest = self.latest
        is_known = offset in self._paths
        self._paths[offset] = self.path_of(offset)
        if offset > latest:
            self._order.append(offset)
        elif not is_known:
            self._order = deque(sorted(self._paths))

    def __contains__(self, offset: int) -> bool:
        return offset in self._paths

    def path_of(self, offset: int) -> str:
        return self._paths.get(offset) or f"{self.directory}/{layout.segment_stem(offset)}.snapshot"

    def write(self, offset: int, states: Iterable[ProducerState], *, durable: bool = False) -> None:
        """Write a snapshot at an offset. OSError."""
        path = self.path_of(offset)
        write_whole(path, encode_snapshot(states), durable=durable)
        if not durable:
            self.unsynced.append(path)
        self._enter(offset)

    def remove(self, offset: int) -> None:
        """Remove a snapshot, if it exists. OSError."""
        path = self._paths.pop(offset, None)
        if path is not None:
            unlink(path, missing_ok=True)

    def clear(self) -> None:
        """Remove all snapshots. OSError."""
        for offset in self.offsets:
            self.remove(offset)

    def set_aside(self, offset: int) -> str | None:
        """Remove a snapshot from the list and return its path, for a later deletion of the file."""
        return self._paths.pop(offset, None)

    def strays(self, bases: Iterable[int]) -> list[int]:
        """Offsets of snapshots at no base offset, except the newest one if it is above all base offsets."""
        known = set(bases)
        strays = [offset for offset in self.offsets if offset not in known]
        return strays[:-1] if strays and strays[-1] >= max(known, default=0) else strays

    def remove_strays(self, bases: Iterable[int]) -> None:
        """Remove the strays. OSError."""
        for offset in self.strays(bases):
            self.remove(offset)

    def remove_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        """Remove snapshots at or below the start of the log, or above its end. OSError."""
        while self.latest > log_end_offset:
            self.remove(self.latest)
        while self._begins_until(log_start_offset):
            self.remove(self._order[0])

    def read(self, offset: int) -> list[ProducerState]:
        """The producers in a snapshot. CorruptSnapshotError, OSError."""
        return read_snapshot(read_whole(self._paths[offset], or_deleted=True), self._paths[offset])

    def read_newest(self, most: int) -> tuple[int, list[ProducerState]] | None:
        """The newest sound snapshot at or below `most`: its offset and producers. Damaged ones on the way are
        removed, as in Kafka."""
        for offset in reversed(self._order):
            if offset <= most and offset in self._paths:
                try:
                    return offset, self.read(offset)
                except CorruptFileError:
                    self.remove(offset)
        return None


class SnapshotsInMemory(SnapshotFiles):
    """Snapshots for a reader: writing keeps them in memory, and removing only hides them."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._written: dict[int, bytes] = {}

    def write(self, offset: int, states: Iterable[ProducerState], *, durable: bool = False) -> None:
        self._written[offset] = encode_snapshot(states)
        self._enter(offset)

    def remove(self, offset: int) -> None:
        self._paths.pop(offset, None)
        self._written.pop(offset, None)

    def read(self, offset: int) -> list[ProducerState]:
        """The producers in a snapshot. CorruptSnapshotError, also if the file is missing or unreadable."""
        if offset in self._written:
            return read_snapshot(self._written[offset], self._paths[offset])
        try:
            return super().read(offset)
        except OSError as e:  # the writer of the log may have removed it
            raise CorruptSnapshotError("a producer snapshot", file=self._paths[offset], position=0) from e
