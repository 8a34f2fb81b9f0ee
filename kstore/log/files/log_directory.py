"""A log directory in which this process writes: its lock, its session and its checkpoint files.

A process has one LogDirectory for a directory. Each log that is open for writing there, and each store, has a
lease of it. The last lease that ends unlocks the directory.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from functools import partial

from kstore.engine.io.directory import sync_directory, unlink, write_whole
from kstore.engine.io.file import File
from kstore.engine.io.synchronization import Mutex
from kstore.errors import CorruptCheckpointError, LogFailedError, LogLockedError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import checkpoints, layout, lock
from kstore.log.files.listing import is_there, list_directory
from kstore.log.files.lock import PartitionLock
from kstore.log.files.log_dir_state import (
    Checkpoint,
    directory_of,
    is_a_brokers,
    keep_damaged,
    kept_options,
    locate,
    read_checkpoint,
    read_cleaner_offset,
    read_log_start,
    read_state,
    remove_drafts,
)
from kstore.log.files.manifest import topic_being_deleted
from kstore.log.later import later

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from kstore.engine.append.shared_end import SharedDirectory
    from kstore.log.files.shared_session import SharedSession
else:
    later(
        globals(),
        {
            "kstore.engine.append.shared_end": "SharedDirectory",
            "kstore.log.files.shared_session": "SharedSession",
        },
    )

if TYPE_CHECKING:
    from kstore.log.files.layout import TopicPartition
    from kstore.log.files.log_dir_state import KeptOptions, Location, State
    from kstore.typed import StrPath

_KEPT_IN_MEMORY = (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS)


class Checkpoints:
    """The checkpoint files of a directory that this process has locked.

    A change is written at once. If `delays` is set, `store` writes changes whose loss costs only time at the
    next opening: a rising recovery point and a high watermark.
    """

    def __init__(
        self, directory: StrPath, own: TopicPartition | None, *, by_broker: bool, lock_file: File | None
    ) -> None:
        """own: the partition, if the files are in a partition. by_broker: a broker closed the directory.
        lock_file: the .lock file, if other processes write these files, too."""
        self._directory = directory
        self._own = own
        self._lock_file = lock_file
        self.delays = False
        self._by_broker = by_broker
        self._offsets: dict[str, dict[TopicPartition, int]] = {}  # by file
        self._damage: dict[str, str] = {}
        self._unwritten: set[str] = set()
        self._has_failed = False  # a write of log start offsets: it may have replaced the file
        self._known_starts: set[TopicPartition] = set()  # known although the file may have lost lines
        for file in _KEPT_IN_MEMORY:
            self._read(file)
            if self._damage[file] or (
                file == layout.LOG_STARTS and not self._offsets[file] and is_there(f"{directory}/{file}")
            ):
                self._unwritten.add(file)

    def _read(self, file: str) -> None:
        offsets, self._damage[file] = read_checkpoint(f"{self._directory}/{file}")
        if self._own is not None and len(offsets) == 1:
            offsets = {self._own: next(iter(offsets.values()))}  # the directory may have been renamed
        self._offsets[file] = dict(offsets)

    def end(self) -> None:
        """Lets the .lock file go. A close of it later would drop a lock that this process has taken since."""
        self._lock_file = None

    @contextlib.contextmanager
    def _changing(self, *files: str) -> Iterator[None]:
        """What other processes have written is known here, and no other process writes meanwhile."""
        if self._lock_file is None:
            yield
            return
        with lock.holding(self._lock_file, lock.CHECKPOINTS):
            for file in files:
                self._read(file)
            yield

    def _reader(self, around: StrPath) -> Callable[[str], Checkpoint]:
        """A reader of checkpoint files that returns those of `around` from memory."""

        def read(path: str) -> Checkpoint:
            directory, _, file = path.rpartition("/")
            if directory != str(around) or file not in self._offsets:
                return read_checkpoint(path)
            return Checkpoint(self._offsets[file], self._damage[file])

        return read

    def state_of(self, path: StrPath, name: TopicPartition) -> State:
        """The state of a partition in the checkpoints; `clean` is not set. OSError."""
        around = directory_of(path)
        with self._changing(*_KEPT_IN_MEMORY):
            state = read_state(path, self._reader(around))
        if name in self._known_starts:
            starts = f"{around}/{layout.LOG_STARTS}"
            state = state._replace(complaints=tuple(c for c in state.complaints if c.file != starts))
        return state if state.by_itself else state._replace(clean=False, by_broker=self._by_broker)

    def log_start_of(self, path: StrPath) -> int:
        """The log start offset of a partition. OSError."""
        with self._changing(layout.LOG_STARTS):
            return read_log_start(path, self._reader(directory_of(path)))

    def put_cleaner_offset(self, name: TopicPartition, offset: int) -> None:
        """Write the end of the compacted part of a partition. OSError."""
        file = f"{self._directory}/{layout.CLEANER_OFFSETS}"
        with self._changing():
            found = read_checkpoint(file)
            offsets = {name: offset} if self._own is not None else {**found.offsets, name: offset}
            if found.damage or offsets != found.offsets:
                checkpoints.write_offsets(file, offsets)

    def put(self, file: str, name: TopicPartition, offset: int | None) -> None:
        """Set the offset of a partition in a file, or remove it (None). After an OSError it is unchanged."""
        with self._changing(file):
            self._put(file, name, offset)

    def _put(self, file: str, name: TopicPartition, offset: int | None) -> None:
        if file == layout.LOG_STARTS:
            self._known_starts.add(name)
        offsets = self._offsets[file]
        known = offsets.get(name)
        if known == offset and (self.delays or file not in self._unwritten):
            return
        if offset is None:
            self._write(file, {other: kept for other, kept in offsets.items() if other != name})
            return
        rises = file == layout.RECOVERY_POINTS and offset >= (known or 0)
        if self.delays and (rises or file == layout.HIGH_WATERMARKS):
            offsets[name] = offset
            self._unwritten.add(file)
        else:
            self._write(file, {**offsets, name: offset})

    def lower(self, file: str, name: TopicPartition, most: int) -> None:
        """Set the offset of a partition in a file to `most`, durably, if it is larger. OSError."""
        with self._changing(file):
            offsets = self._offsets[file]
            if offsets.get(name, -1) > most:
                self._write(file, {**offsets, name: most})

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Remove partitions from all files, durably, before others get these names. OSError."""
        with self._changing(*_KEPT_IN_MEMORY):
            self._forget(names)

    def _forget(self, names: Collection[TopicPartition]) -> None:
        self._known_starts.update(names)
        for file, known in self._offsets.items():
            kept = {name: offset for name, offset in known.items() if name not in names}
            if len(kept) < len(known):
                self._write(file, kept)
        cleaner = f"{self._directory}/{layout.CLEANER_OFFSETS}"
        offsets = read_checkpoint(cleaner).offsets
        kept = {name: offset for name, offset in offsets.items() if name not in names}
        if len(kept) < len(offsets):
            checkpoints.write_offsets(cleaner, kept)

    def store(self) -> None:
        """Write delayed changes, durably. OSError."""
        files = sorted(self._unwritten)
        with self._changing(*files):
            for file in files:
                self._write(file, self._offsets[file])

    def settle(self) -> None:
        """Read the log start offsets again if a write of them has failed: OSError. Readers see those that it
        may have left in the file, so the next writer of a partition must, too. Their changes are not
        delayed."""
        if self._has_failed:
            self._read(layout.LOG_STARTS)
            self._has_failed = False

    def _write(self, file: str, offsets: dict[TopicPartition, int]) -> None:
        self._unwritten.add(file)  # a failed write may have replaced the file nevertheless
        self._has_failed = self._has_failed or file == layout.LOG_STARTS
        checkpoints.write_offsets(f"{self._directory}/{file}", offsets)
        self._offsets[file] = offsets
        self._unwritten.discard(file)
        if file == layout.LOG_STARTS:  # writing it does not restore lost lines
            self._has_failed = False
            self._known_starts.update(offsets)
        else:
            self._damage[file] = ""


class Lease:
    """The right to write in a log directory: in all of it, or in one partition.

    A lease also ends when it is garbage-collected. If `leave` is interrupted, it may be called again.
    """

    directory: LogDirectory | None = None  # set once there is something to release
    name: TopicPartition | None = None  # None: all of the directory
    is_settled = False  # whether nothing but unlocking is left to do
    _has_begun = False

    def __init__(self, place: StrPath, *, shared: bool) -> None:
        """place: a log directory, or a partition in one. shared: other processes may have the directory, too,
        if they share it."""
        self._place = place
        self._is_shared = shared
        self._pid = os.getpid()
        self._left = False

    def _take(self, path: StrPath) -> None:
        """Lock a log directory for the place. After any exception the caller calls `leave`. LogLockedError if
        another process has the directory, or another lease the place. OSError."""
        LogDirectory.enter(path, self._place, self, shared=self._is_shared)
        self._begin()

    @property
    def has_left(self) -> bool:
        """Whether the lease has ended, or belongs to the parent of this process."""
        return self._left or os.getpid() != self._pid

    def _begin(self) -> None:
        """Called when the directory is locked."""

    def _settle(self, directory: LogDirectory, clean: bool) -> None:
        """Called before the directory is unlocked."""

    def leave(self, *, clean: bool) -> None:
        """End the lease. If `clean`, write the marker of a clean shutdown, provided that every partition of
        the directory is clean and this is the last lease. OSError if that fails, LogFailedError if the
        directory was removed; the lease ends in any case."""
        directory = self.directory
        if directory is None:  # it was not taken
            self._left = True
        elif not self.has_left:
            with directory.writing:
                self._leave_inside(directory, clean)

    def leave_unclean(self) -> None:
        """End a lease that is or will be garbage, when the mutex is free."""
        directory = self.directory
        if directory is not None and not self.has_left:
            directory.writing.later(partial(self._leave_inside, directory, False))

    def _leave_inside(self, directory: LogDirectory, clean: bool) -> None:
        try:
            if not self.is_settled:
                self._settle(directory, clean)
        finally:
            self.is_settled = True
            self._unlock(directory)
            self._left = True  # not before: an interrupt may have kept it locked

    def _unlock(self, directory: LogDirectory) -> None:
        """Unlocks the place, then the directory. May be called again."""
        directory.drop(self._place, self)

    def __del__(self) -> None:
        try:  # noqa: SIM105 - at the end of the interpreter, contextlib may be gone
            self.leave_unclean()
        except AttributeError:  # the constructor was interrupted
            pass


class LogDirectory:
    """A log directory and the leases of it in this process. Its session and checkpoints are guarded by
    `writing`."""

    checkpoints: Checkpoints

    def __init__(self, path: StrPath, key: str) -> None:
        self.path = os.fspath(path)
        self.writing = Mutex(inner=True)
        self._key = key  # its real path
        self._leases: dict[str, weakref.ref[Lease]] = {}  # by the real path of their place
        self._lock = lock.DirectoryLock(key)
        self._is_shared = False  # other processes may write in it
        self._is_alone = True  # no other process has entered yet
        self._state: SharedDirectory | None = None
        self._is_open = False
        self._clean = False  # whether partitions that were not opened are clean
        self._closed: set[TopicPartition] = set()
        self._unclean: set[TopicPartition] = set()  # with those that are open

    # ---- the lock ------------------------------------------------------------------------------------------

    @classmethod
    def enter(cls, path: StrPath, place: StrPath, lease: Lease, *, shared: bool) -> None:
        """Lock a directory for a lease. LogLockedError, OSError."""
        key = os.path.realpath(path)
        with lock.guard():
            found = _directories.get(key)
            if found is None:
                found = cls(path, key)
            name = found._name_of(place)
            if found._is_live(name) or (found._file is not None and found._is_shared != shared):
                raise LogLockedError(name, os.getpid())
            lease.directory = found
            try:
                if found._file is None:
                    found._is_shared = shared
                    found._is_alone = found._lock.take(shared=shared)
                    _directories[key] = found
                found._leases[name] = weakref.ref(lease)
            finally:
                found._unlock_if_unused()

    @property
    def _file(self) -> File | None:
        """The lock file, while it is locked."""
        return self._lock.held

    def drop(self, place: StrPath, lease: Lease) -> None:
        """Remove a lease, and unlock the directory after the last one."""
        lock.guard().later(partial(self._drop, self._name_of(place), lease), wait=True)

    def _drop(self, name: str, lease: Lease) -> None:
        known = self._leases.get(name)
        if known is not None and known() in (None, lease):
            del self._leases[name]
        self._unlock_if_unused()

    def _unlock_if_unused(self) -> None:
        if any(ref() is not None for ref in self._leases.values()):
            return
        if _directories.get(self._key) is self:
            del _directories[self._key]
        file = self._file
        # else the path leads to another lock file, or another process uses this one
        if file is not None and self.is_at_path() and (not self._is_shared or self._lock.is_last()):
            with contextlib.suppress(OSError):  # unlock a failed directory in any case
                if self._is_shared:
                    unlink(f"{self._key}/{layout.SHARED_DIRECTORY}", missing_ok=True)
                unlink(f"{self._key}/{layout.LOCK}")
        self._lock.release()
        if self._is_open:
            self.checkpoints.end()
        self._state = None

    def _name_of(self, place: StrPath) -> str:
        """The real path of a place in the directory, without a system call where possible."""
        parent, name = os.path.split(place)
        if name in ("", ".", "..") or parent != self.path or os.path.islink(place):
            return os.path.realpath(place)
        return os.path.join(self._key, name)

    def _is_live(self, name: str) -> bool:
        known = self._leases.get(name)
        return known is not None and known() is not None

    def _others(self, lease: Lease | None) -> list[Lease]:
        """All leases but one."""
        leases = [ref() for ref in list(self._leases.values())]
        return [other for other in leases if other is not None and other is not lease]

    def has_writer(self, partition: StrPath) -> bool:
        """Whether a partition is open for writing in this process."""
        return self._is_live(self._name_of(partition))

    def is_at_path(self) -> bool:
        """Whether the path still leads to the locked file."""
        try:
            mine = self._file
            return mine is not None and mine.is_at(f"{self.path}/{layout.LOCK}")
        except OSError:
            return False

    def check_place(self) -> None:
        """Raise LogFailedError if the directory was moved: its path may lead to another directory, which
        another process may have locked."""
        if self._file is not None and not self.is_at_path():
            raise LogFailedError(
                f"{self.path} was renamed or removed while it was open, or its {layout.LOCK} file was: "
                "nothing is written at this path any more. Close the store, and open it again"
            )

    def close_in_child(self) -> None:
        """Close the descriptor in a forked child, so that the lock ends with its parent."""
        self._lock.close_in_child()

    def check_free(self) -> None:
        """Raise ReentrantCallError if this thread is changing the directory."""
        with self.writing:
            pass

    # ---- the session ---------------------------------------------------------------------------------------

    def open_session(self, own: TopicPartition | None = None) -> list[str]:
        """Read the files of the directory, for the first lease, and remove the clean marker: until it is
        written again, a stop is unclean. Returns the losses by damaged files, as sentences. own: the
        partition, if the files are in a partition."""
        marker = f"{self.path}/{layout.CLEAN_SHUTDOWN}"
        losses = []
        if not self._is_open:
            if self._is_shared:
                file = File(f"{self.path}/{layout.SHARED_DIRECTORY}", "a")
                self._state = SharedDirectory(file, is_first=self._is_alone)
            if self._is_alone:
                remove_drafts(self.path)
                if not self._is_shared:
                    unlink(f"{self.path}/{layout.SHARED_DIRECTORY}", missing_ok=True)
                losses = keep_damaged(self.path)
                self._clean = is_there(marker)
            by_broker = self._clean and is_a_brokers(marker)
            lock_file = self._file if self._is_shared else None
            self.checkpoints = Checkpoints(self.path, own, by_broker=by_broker, lock_file=lock_file)
            self._is_open = True
        if is_there(marker):
            unlink(marker)
            sync_directory(str(self.path))
        if self._state is not None and self._is_alone and self._file is not None:
            self._is_alone, self._state.is_clean = False, self._clean
            self._lock.enter()
        return losses

    @property
    def was_clean(self) -> bool:
        """Whether all partitions that are not open are clean."""
        return self._is_clean and self._unclean <= {lease.name for lease in self._others(None)}

    @property
    def _is_clean(self) -> bool:
        """Whether partitions that were not opened are clean."""
        return self._clean or (self._state is not None and self._state.is_clean)

    def all_recovered(self) -> None:
        """Note that every partition was loaded or is new, so that those not open are clean."""
        self._clean = True
        if self._state is not None and not self._unclean:
            self._state.is_clean = True

    def failed(self, name: TopicPartition) -> None:
        """Note that a partition could not be recovered or closed, so that the directory is not clean."""
        self._unclean.add(name)

    def begin(self, name: TopicPartition) -> bool:
        """Open a partition: return whether it was clean. It is unclean until `finish`."""
        clean = name not in self._unclean and (self._is_clean or name in self._closed)
        self._unclean.add(name)
        self._closed.discard(name)
        return clean

    def finish(self, name: TopicPartition) -> None:
        """Note that a partition was closed cleanly."""
        self._unclean.discard(name)
        self._closed.add(name)

    def leave_to_others(self, name: TopicPartition) -> None:
        """Note that other processes have a partition open, or that its shared file tells how it was left."""
        self._unclean.discard(name)

    def mark_clean(self, lease: Lease) -> None:
        """Write the clean marker, if every partition is clean and this lease is the last one. OSError."""
        if self._others(lease) or self._unclean:
            return
        if self._is_shared and not self._closes_for_all():
            return
        if not self._is_clean:
            names = {
                layout.parse_directory(name)
                for name in list_directory(self.path)
                if layout.is_partition_name(name) and _has_segment(f"{self.path}/{name}")
            }
            if not names <= self._closed:
                return
        write_whole(f"{self.path}/{layout.CLEAN_SHUTDOWN}", layout.OWN_CLEAN_SHUTDOWN)

    def _closes_for_all(self) -> bool:
        """Whether this is the last process that leaves, and none has left a partition uncleanly."""
        if not self._lock.is_last():
            return False
        names = filter(layout.is_partition_name, list_directory(self.path))
        places = [self.path, *(f"{self.path}/{name}" for name in names)]
        return not any(is_there(f"{place}/{layout.SHARED}") for place in places)

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write in the directory."""
        return self._is_shared

    @property
    def topic_changes(self) -> int:
        """How often processes that share the directory have begun or ended a change of its topics."""
        return 0 if self._state is None else self._state.changes

    def note_topic_change(self) -> None:
        """A change of the topics begins or ends; `topics_locked` is held."""
        if self._state is not None:
            self._state.note_change()

    def topics_locked(self) -> contextlib.AbstractContextManager[None]:
        """Keeps other processes from changing topics."""
        if self._file is None or not self._is_shared:
            return contextlib.nullcontext()
        return lock.holding(self._file, lock.TOPICS)

    def is_keeper(self) -> bool:
        """Whether this process does the maintenance of the store. From then on it does, until it ends."""
        return not self._is_shared or (self._file is not None and lock.keep_byte(self._file.fd, lock.UPKEEP))

    def leave_whole(self, clean: bool) -> None:
        """End the lease of a store. After an OSError or LogFailedError the directory is not clean."""
        was_clean, self._clean = self._clean, False
        if clean:
            self.check_place()
            self.checkpoints.store()
            self._clean = was_clean

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Remove all state of partitions that were deleted or are new, durably. OSError, LogFailedError."""
        with self.writing:
            self.check_place()
            self.checkpoints.forget(names)
            self._closed.difference_update(names)
            self._unclean.difference_update(names)

    # ---- checkpoints ---------------------------------------------------------------------------------------

    def put_closed(self, name: TopicPartition, start: int | None, end: int, cleaner: int | None) -> None:
        """Write the checkpoints of a partition that was closed cleanly elsewhere, durably, before its files
        are moved here. OSError, LogFailedError."""
        with self.writing:
            self.check_place()
            self.checkpoints.put(layout.LOG_STARTS, name, start)
            if cleaner is not None:
                self.checkpoints.put_cleaner_offset(name, cleaner)
            for file in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
                self.checkpoints.put(file, name, end)
            self.checkpoints.store()

    def store(self) -> None:
        """Write the checkpoint files that have changed. OSError, LogFailedError."""
        with self.writing:
            if self._file is not None:
                self.check_place()
                self.checkpoints.store()

    def state_of(self, path: StrPath, name: TopicPartition) -> State:
        """The state of a partition in the checkpoints; `clean` is not set. OSError."""
        with self.writing:
            return self.checkpoints.state_of(path, name)

    def log_start_of(self, path: StrPath) -> int:
        """The log start offset of a partition. OSError."""
        with self.writing:
            return self.checkpoints.log_start_of(path)


def _has_segment(path: str) -> bool:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        return any(name.endswith(".log") for name in list_directory(path))
    return False


class WholeLease(Lease):
    """A lease of a whole directory, beside leases of its partitions. `was_clean`: whether all partitions that
    were not open were clean. `losses`: the losses by damaged checkpoints, as sentences."""

    was_clean = False
    losses: Sequence[str] = ()

    def __init__(self, path: StrPath, *, shared: bool = False) -> None:
        super().__init__(path, shared=shared)

    def take(self) -> None:
        """Lock the directory. After any exception the caller calls `leave`. LogLockedError, OSError."""
        self._take(self._place)

    def _begin(self) -> None:
        directory = self.directory
        assert directory is not None
        with directory.writing:
            self.losses = directory.open_session()
            self.was_clean = directory.was_clean
            directory.checkpoints.delays = not directory.is_shared
            self._has_begun = True

    def _settle(self, directory: LogDirectory, clean: bool) -> None:
        if not self._has_begun:
            return
        directory.checkpoints.delays = False
        directory.leave_whole(clean)
        if clean:
            directory.mark_clean(self)


class PartitionLease(Lease):
    """A lease of one partition. `kept`: its saved options, if `reads_options`. `state`: its state in the
    checkpoints at the opening."""

    kept: KeptOptions | None = None
    state: State
    name: TopicPartition
    _location: Location

    def __init__(self, path: StrPath, *, reads_options: bool, shared: bool = False) -> None:
        super().__init__(path, shared=shared)
        self.path = os.fspath(path)
        self.session = SharedSession(self.path) if shared else None
        self.losses: list[str] = []  # in the directory, perhaps of other partitions
        self.keeps_log_start = False  # whether `store` without a log start offset keeps the stored one
        self._reads_options = reads_options
        self._partition_lock: PartitionLock | None = None

    def take(self) -> None:
        """Lock the partition. After any exception the caller calls `leave`. LogNotFoundError, LogLockedError,
        OSError."""
        if self.session is not None:  # first: what the first process does in the directory, others wait for
            self.session.begin()
        self._location = locate(self.path)
        self.name = self._location.name
        self._take(self._location.directory)

    def leave(self, *, clean: bool) -> None:
        super().leave(clean=clean)
        if self.directory is None and self.session is not None:
            self.session.end_here()

    @property
    def is_moved(self) -> bool:
        """Whether the directory was renamed or removed, so that its path may lead to another one."""
        return self._partition_lock is None or not self._partition_lock.is_at(self.path)

    @property
    def fate(self) -> str:
        """What happened to a moved directory, as a sentence."""
        removed = self._partition_lock is not None and self._partition_lock.is_removed
        return f"{self.path} was removed" if removed else f"{self.path} was renamed or removed"

    def show_loaded(self) -> None:
        """Show readers in other processes that the log was loaded."""
        if self._partition_lock is not None:
            self._partition_lock.show_loaded()

    def _locked(self) -> LogDirectory:
        assert self.directory is not None
        return self.directory

    def _begin(self) -> None:
        directory = self._locked()
        self._partition_lock = PartitionLock(self.path)
        self._partition_lock.take(shared=self._is_shared)
        if self.session is not None and self.session.is_first:
            self._partition_lock.check_alone()
        if locate(self.path) != self._location:  # a store has made it part of a log directory meanwhile
            raise LogLockedError(str(self.path), None)
        with directory.writing:
            self._refuse_deleted(directory)
            if self._reads_options:  # before any change, because they may be damaged
                self.kept = kept_options(self.path)
            self.losses = directory.open_session(self.name if self._location.is_alone else None)
            # `store` removes it
            if not self._location.is_alone and is_there(f"{self.path}/{layout.LOG_STARTS}"):
                self.losses += keep_damaged(self.path)
            directory.checkpoints.settle()
            state = directory.checkpoints.state_of(self.path, self.name)
            if state.by_itself:  # copy it to the log directory before the own files are removed
                directory.checkpoints.put(layout.RECOVERY_POINTS, self.name, state.recovery_point)
                directory.checkpoints.store()
            self._forget_own_state()
            clean = directory.begin(self.name) and not (self.session is not None and self.session.was_left)
            self._has_begun = True
            self.state = state if state.by_itself else state._replace(clean=clean)

    def _refuse_deleted(self, directory: LogDirectory) -> None:
        """Raise LogNotFoundError if a store is deleting the topic: appended records would be deleted, too."""
        if self._location.is_alone:
            return
        with contextlib.suppress(CorruptCheckpointError):  # opening the store raises it
            if topic_being_deleted(directory.path) == self.name.topic:
                raise LogNotFoundError(
                    f"topic {self.name.topic} is being deleted: LogStore({str(directory.path)!r}, mode='a') "
                    "finishes that"
                )

    def _forget_own_state(self) -> None:
        """Remove the clean marker and the recovery point of a partition that was moved into a log directory.
        Otherwise a copy of the partition alone would look clean."""
        if self._location.is_alone:
            return
        for name in (layout.CLEAN_SHUTDOWN, layout.RECOVERY_POINTS):
            own = f"{self.path}/{name}"
            if is_there(own):
                unlink(own)
                sync_directory(str(self.path))

    def store(self, recovery_point: int, log_start_offset: int | None) -> None:
        """Write the recovery point, and the log start offset unless it is None, durably. OSError."""
        directory = self._locked()
        with directory.writing:
            directory.checkpoints.put(layout.RECOVERY_POINTS, self.name, recovery_point)
            if log_start_offset is not None or not self.keeps_log_start:
                directory.checkpoints.put(layout.LOG_STARTS, self.name, log_start_offset)
            if not self._location.is_alone and is_there(f"{self.path}/{layout.LOG_STARTS}"):
                unlink(f"{self.path}/{layout.LOG_STARTS}")  # it was moved here with the partition

    def store_high_watermark(self, offset: int) -> None:
        """Write the high watermark for a broker, if the partition is in a log directory. OSError."""
        if not self._location.is_alone:
            directory = self._locked()
            with directory.writing:
                directory.checkpoints.put(layout.HIGH_WATERMARKS, self.name, offset)

    def lower_high_watermark(self, offset: int) -> None:
        """Lower the high watermark, before a truncation removes the records from here on. OSError."""
        if not self._location.is_alone:
            directory = self._locked()
            with directory.writing:
                directory.checkpoints.lower(layout.HIGH_WATERMARKS, self.name, offset)

    def cleaner_offset(self) -> int | None:
        """The end of the compacted part, or None."""
        return read_cleaner_offset(self.path)

    def store_cleaner_offset(self, offset: int) -> None:
        """Write the end of the compacted part, durably. OSError."""
        directory = self._locked()
        with directory.writing:
            directory.checkpoints.put_cleaner_offset(self.name, offset)

    def lower_cleaner_offset(self, offset: int) -> None:
        """Lower the end of the compacted part, before other records get offsets from here on. OSError."""
        known = self.cleaner_offset()
        if known is not None and known > offset:
            self.store_cleaner_offset(offset)

    def _settle(self, directory: LogDirectory, clean: bool) -> None:
        if self.session is not None:
            if clean:
                self.session.remove_file()
            directory.leave_to_others(self.name)
        if clean and self._has_begun:
            directory.finish(self.name)
            directory.mark_clean(self)

    def _unlock(self, directory: LogDirectory) -> None:
        if self._partition_lock is not None:
            self._partition_lock.release()
        super()._unlock(directory)
        self._partition_lock = None  # last: it says whether the directory was moved

    def _leave_inside(self, directory: LogDirectory, clean: bool) -> None:
        try:
            super()._leave_inside(directory, clean)
        finally:  # the next process that enters or leaves must find the directory as this one has left it
            if self.session is not None:
                self.session.end_here()


_directories: dict[str, LogDirectory] = {}  # by real path; changed with `lock.guard` held


def _forget() -> None:
    """Drop all locks in a forked child: they belong to its parent."""
    for directory in _directories.values():
        directory.close_in_child()
    _directories.clear()


os.register_at_fork(after_in_child=_forget)
