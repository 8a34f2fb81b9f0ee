"""leader-epoch-checkpoint, of a log that is written (spec 1.6, 7.8)."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from kstore.engine.io.file import File
from kstore.errors import CorruptFileError
from kstore.log.files import checkpoints, layout
from kstore.log.files.leader_epochs import LeaderEpochs


class LeaderEpochCheckpoint:
    """The leader epochs of a log, and the file that says the same. `epochs` is never changed, only replaced:
    a change is made to a copy, which readers see once it is written. OSError.

    What the deletion of records changes may wait: a log that is opened finds out about it without the file.
    On a full disk that must not keep the records from going.
    """

    def __init__(self, directory: str, epochs: LeaderEpochs) -> None:
        self._path = Path(directory, layout.LEADER_EPOCHS)
        self._written: tuple[tuple[int, int], ...] | None = None
        self.epochs = epochs
        self.store()

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that `epoch` begins at `start_offset`, if it is not the current one."""
        self._change(lambda epochs: epochs.assign(epoch, start_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins here from now on. No OSError: the file may stay behind until `store`."""
        self.epochs = self._changed(lambda epochs: epochs.truncate_from_start(start_offset))
        with contextlib.suppress(OSError):
            self.store()

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends here from now on."""
        self._change(lambda epochs: epochs.truncate_from_end(end_offset))

    def clear(self) -> None:
        """Nothing is known any more."""
        self._change(LeaderEpochs.clear)

    def store(self) -> None:
        """Brings the file up to date."""
        self._write(self.epochs)

    def _changed(self, change: Callable[[LeaderEpochs], object]) -> LeaderEpochs:
        epochs = LeaderEpochs(self.epochs.entries)
        change(epochs)
        return epochs if epochs.entries != self.epochs.entries else self.epochs

    def _change(self, change: Callable[[LeaderEpochs], object]) -> None:
        epochs = self._changed(change)
        self._write(epochs)
        self.epochs = epochs

    def _write(self, epochs: LeaderEpochs) -> None:
        """Brings the file up to date; without entries it is an empty one."""
        entries = epochs.entries
        if self._written == entries:
            return
        self._written = None
        if not entries and not self._path.exists():
            File(str(self._path), "a")
        elif self._read() != entries:
            checkpoints.write_epochs(self._path, entries)
        self._written = entries

    def _read(self) -> tuple[tuple[int, int], ...] | None:
        """What the file says; None if it says nothing that can be read."""
        try:
            return tuple(checkpoints.read_epochs(self._path))
        except (OSError, CorruptFileError):
            return None
