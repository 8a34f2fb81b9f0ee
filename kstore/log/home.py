"""Where a partition's lock, clean marker and checkpoints lie: in its log directory, or in itself (spec 1.4 to 1.8).

A broker keeps them in the directory around the partitions. A partition that lies in no such directory keeps its own, in
the same form: so programs can write partitions side by side, and Kafka passes the files over.
"""

import os
from pathlib import Path
from typing import NamedTuple

from kstore.engine.file import sync_directory, unlink, write_whole
from kstore.errors import CorruptFileError
from kstore.log import checkpoints, layout
from kstore.log.layout import TopicPartition
from kstore.log.lock import DirectoryLock

_SIGNS = (
    layout.META_PROPERTIES,
    layout.LOCK,
    layout.CLEAN_SHUTDOWN,
    layout.RECOVERY_POINTS,
    layout.LOG_STARTS,
    layout.HIGH_WATERMARKS,
    layout.CLEANER_OFFSETS,
)


class Complaint(NamedTuple):
    """A checkpoint file that could not be read."""

    file: str
    text: str


def directory_of(path: Path) -> Path:
    """The directory that keeps the state of a partition: the log directory around it, if it lies in one, or itself."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow a link to another log directory
    parent = path.parent
    return parent if any((parent / name).exists() for name in _SIGNS) else path


def name_of(path: Path) -> TopicPartition:
    """What the checkpoints call a partition; directories not named TOPIC-N get their name and 0."""
    name = Path(os.path.abspath(path)).name  # noqa: PTH100
    return layout.parse_directory(name) or TopicPartition(name.replace(" ", "_") or "log", 0)


class State(NamedTuple):
    """What is known of a partition beside its own files."""

    clean: bool
    recovery_point: int
    log_start_offset: int
    complaints: tuple[Complaint, ...]


def read_state(path: Path) -> State:
    """Reads the marker and the checkpoints; unreadable ones count as absent."""
    directory, tp = directory_of(path), name_of(path)
    if tp.topic == layout.CLUSTER_METADATA:  # loaded by Raft, which asks for no marker
        return State(False, 0, 0, ())
    complaints: list[Complaint] = []
    recovery_point = _offset_of(directory / layout.RECOVERY_POINTS, tp, complaints)
    log_start_offset = _offset_of(directory / layout.LOG_STARTS, tp, complaints)
    clean = (directory / layout.CLEAN_SHUTDOWN).exists()
    return State(clean, recovery_point, log_start_offset, tuple(complaints))


def _offset_of(path: Path, tp: TopicPartition, complaints: list[Complaint]) -> int:
    try:
        return checkpoints.read_offsets(path).get(tp, 0)
    except FileNotFoundError:
        return 0
    except (OSError, CorruptFileError) as e:
        complaints.append(Complaint(str(path), f"not read: {e}"))
        return 0


class Home:
    """The state of a partition that is written: holds the lock from its making to `leave`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = name_of(path)
        self.directory = directory_of(path)
        self._lock = DirectoryLock.acquire(self.directory, path)
        self._writing = self._lock.writing
        try:
            self.state = self._enter()
        except BaseException:
            self._lock.release(path)
            raise

    def _enter(self) -> State:
        """Takes the clean marker away: until it is written again, a stop is not a clean one."""
        with self._writing:
            state = read_state(self.path)
            session = _sessions.setdefault(self.directory, _Session(state.clean))
            marker = self.directory / layout.CLEAN_SHUTDOWN
            if marker.exists():
                unlink(str(marker))
                sync_directory(str(self.directory))
            clean = session.was_clean(self.name)
            session.open.add(self.name)
            return state._replace(clean=clean)

    def store(self, recovery_point: int, log_start_offset: int | None) -> None:
        """Writes both checkpoints, durably: the recovery point, and the log start offset where it is not None. OSError."""
        with self._writing:
            self._store(layout.RECOVERY_POINTS, recovery_point)
            self._store(layout.LOG_STARTS, log_start_offset)

    def store_high_watermark(self, offset: int) -> None:
        """Writes what a broker takes for the high watermark; only in a log directory. OSError."""
        if self.directory != Path(os.path.abspath(self.path)):  # noqa: PTH100
            with self._writing:
                self._store(layout.HIGH_WATERMARKS, offset)

    def _store(self, file: str, offset: int | None) -> None:
        path = self.directory / file
        try:
            offsets = checkpoints.read_offsets(path)
        except (FileNotFoundError, CorruptFileError):
            offsets = {}
            if offset is None:
                return
        if offsets.get(self.name) == offset:
            return
        if offset is None:
            del offsets[self.name]
        else:
            offsets[self.name] = offset
        checkpoints.write_offsets(path, offsets)

    def leave(self, *, clean: bool) -> None:
        """Unlocks. After a clean close the marker is written, if every partition around is clean with this one."""
        with self._writing:
            session = _sessions[self.directory]
            session.open.discard(self.name)
            (session.closed if clean else session.unclean).add(self.name)
            try:
                if clean and not session.open and session.all_clean(self.directory):
                    marker = str(self.directory / layout.CLEAN_SHUTDOWN)
                    write_whole(marker, b'{"version":0,"brokerEpoch":-1}')
            finally:
                if not session.open:
                    _sessions.pop(self.directory, None)
                self._lock.release(self.path)

    def leave_unclean(self) -> None:
        """The same where nobody closes the log, as it is garbage."""
        self._writing.later(lambda: self.leave(clean=False))


class _Session:
    """What this process has done in one directory since it locked it."""

    def __init__(self, clean: bool) -> None:
        self.clean = clean
        self.open: set[TopicPartition] = set()
        self.closed: set[TopicPartition] = set()
        self.unclean: set[TopicPartition] = set()

    def was_clean(self, name: TopicPartition) -> bool:
        """Whether a partition that is opened now was left clean; the answer counts once."""
        if name in self.closed:
            self.closed.discard(name)
            return True
        if name in self.unclean:
            self.unclean.discard(name)
            return False
        return self.clean

    def all_clean(self, directory: Path) -> bool:
        """Whether the marker may say that every partition of the directory is clean."""
        if self.unclean:
            return False
        if self.clean:
            return True
        names = {layout.parse_directory(entry.name) for entry in directory.iterdir() if entry.is_dir()}
        return names - {None} <= self.closed


_sessions: dict[Path, _Session] = {}
os.register_at_fork(after_in_child=_sessions.clear)
