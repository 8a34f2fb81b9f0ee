"""Leader epochs of a log (spec 7.8), and the leader-epoch-checkpoint (spec 1.6)."""

from __future__ import annotations

import contextlib
import os

from kstore.engine.io.file import File
from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import checkpoints, layout

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self


class LeaderEpochs:
    """The first offset of each leader epoch: rising (epoch, start offset) `entries`. Immutable."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """Take entries in order; a later one removes those that contradict it."""
        kept: list[tuple[int, int]] = []
        for epoch, start_offset in entries:
            if epoch < 0 or start_offset < 0:
                raise ValueError(f"epoch {epoch} and start offset {start_offset} must not be negative")
            if kept and epoch == kept[-1][0] and start_offset >= kept[-1][1]:
                continue
            while kept and (kept[-1][0] >= epoch or kept[-1][1] >= start_offset):
                kept.pop()
            kept.append((epoch, start_offset))
        self.entries = tuple(kept)

    @property
    def latest(self) -> int | None:
        """The newest epoch."""
        return self.entries[-1][0] if self.entries else None

    def assigned(self, epoch: int, start_offset: int) -> Self:
        """The epochs after `epoch` has begun at `start_offset`, without entries that contradict it."""
        return type(self)([*self.entries, (epoch, start_offset)])

    def until(self, end_offset: int) -> Self:
        """The epochs that begin below `end_offset`."""
        return type(self)(entry for entry in self.entries if entry[1] < end_offset)

    def since(self, start_offset: int) -> Self:
        """The epochs of the log from `start_offset` on."""
        before = [epoch for epoch, offset in self.entries if offset <= start_offset]
        first = [(before[-1], start_offset)] if before else []
        return type(self)([*first, *self.entries[len(before) :]])

    def end_offset_for(self, requested: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above `requested`; (-1, -1) if it is not known."""
        if requested < 0 or not self.entries:
            return -1, -1
        if requested == self.latest:
            return requested, log_end_offset
        higher = next((start for epoch, start in self.entries if epoch > requested), None)
        if higher is None:
            return -1, -1
        floor = [epoch for epoch, _ in self.entries if epoch <= requested]
        return (floor[-1] if floor else requested), higher

    def __eq__(self, other: object) -> bool:
        return self.entries == other.entries if isinstance(other, LeaderEpochs) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


class LeaderEpochCheckpoint:
    """The leader epochs of a log that is open for writing, and their file. Readers see a change after it was
    written. OSError.

    The change of a deletion of records may be written later, since an opening finds it without the file. So
    records can be deleted on a full disk.
    """

    def __init__(self, directory: str, epochs: LeaderEpochs | None) -> None:
        """None: what the file says when `reload` is called."""
        self._path = f"{directory}/{layout.LEADER_EPOCHS}"
        self._written: tuple[tuple[int, int], ...] | None = None
        self.epochs = epochs or LeaderEpochs()
        if epochs is not None:
            self.store()

    def reload(self) -> None:
        """Take in what another process has written. OSError, CorruptCheckpointError."""
        entries = checkpoints.read_epochs(self._path)
        self.epochs = LeaderEpochs(entries)
        self._written = tuple(entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin `epoch` at `start_offset`, unless it is the latest one."""
        self._change(self.epochs.assigned(epoch, start_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs before a new start of the log. No OSError: a failed write is repeated by `store`."""
        self.epochs = self.epochs.since(start_offset)
        with contextlib.suppress(OSError):
            self.store()

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs from a new end of the log on."""
        self._change(self.epochs.until(end_offset))

    def clear(self) -> None:
        """Remove all epochs."""
        self._change(LeaderEpochs())

    def store(self) -> None:
        """Write the file, if it differs."""
        self._write(self.epochs.entries)

    def _change(self, epochs: LeaderEpochs) -> None:
        self._write(epochs.entries)
        self.epochs = epochs

    def _write(self, entries: tuple[tuple[int, int], ...]) -> None:
        """Write the file, if it differs; without entries, an empty one."""
        if self._written == entries:
            return
        self._written = None
        if not entries and not os.path.exists(self._path):
            File(self._path, "a")
        elif self._read() != entries:
            checkpoints.write_epochs(self._path, entries)
        self._written = entries

    def _read(self) -> tuple[tuple[int, int], ...] | None:
        """The entries of the file; None if it cannot be read."""
        try:
            return tuple(checkpoints.read_epochs(self._path))
        except (OSError, CorruptFileError):
            return None
