"""A log directory in which this process writes: its lock, its session and its checkpoint files.

There is one LogDirectory for a directory in a process. Whatever writes there has a lease of it: a log that is
open for writing, and a store. The lease that ends last unlocks the directory.
"""

import contextlib
import os
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from kstore.engine.io.file import File, sync_directory, unlink, write_whole
from kstore.engine.io.mutex import Mutex
from kstore.errors import CorruptCheckpointError, LogFailedError, LogLockedError, LogNotFoundError
from kstore.log.files import checkpoints, layout, lock
from kstore.log.files.layout import TopicPartition
from kstore.log.files.listing import is_there
from kstore.log.files.lock import PartitionLock
from kstore.log.files.log_dir_state import (
    Checkpoint,
    KeptOptions,
    State,
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
from kstore.log.files.topic_file import topic_being_deleted

_KEPT_IN_MEMORY = (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS)


class Checkpoints:
    """The checkpoint files of a directory that this process has locked, so that no other one writes them.

    A change is written at once. If `delays`, one that costs only time at the next opening is written by
    `store`, with all others: a recovery point that rises, and a high watermark.
    """

    def __init__(self, directory: Path, own: TopicPartition | None, by_broker: bool) -> None:
        """own: the partition that keeps these files for itself alone. by_broker: a broker closed them."""
        self._directory = directory
        self._own = own
        self.delays = False
        self._by_broker = by_broker
        self._offsets: dict[str, dict[TopicPartition, int]] = {}  # by file
        self._damage: dict[str, str] = {}
        self._unwritten: set[str] = set()
        self._known_starts: set[TopicPartition] = set()  # though the file may have lost its lines
        for file in _KEPT_IN_MEMORY:
            path = f"{directory}/{file}"
            offsets, self._damage[file] = read_checkpoint(path)
            if own is not None and len(offsets) == 1:
                offsets = {own: next(iter(offsets.values()))}  # the directory may have been renamed
            self._offsets[file] = dict(offsets)
            if self._damage[file] or (file == layout.LOG_STARTS and not offsets and is_there(path)):
                self._unwritten.add(file)

    def _reader(self, around: Path) -> Callable[[str], Checkpoint]:
        """What reads these files, by the path that the directory has for a partition, and others."""

        def read(path: str) -> Checkpoint:
            directory, _, file = path.rpartition("/")
            if directory != str(around) or file not in self._offsets:
                return read_checkpoint(path)
            return Checkpoint(self._offsets[file], self._damage[file])

        return read

    def state_of(self, path: Path, name: TopicPartition) -> State:
        """What is known of a partition beside its own files; not whether it was closed cleanly. OSError."""
        around = directory_of(path)
        state = read_state(path, self._reader(around))
        if name in self._known_starts:
            starts = f"{around}/{layout.LOG_STARTS}"
            state = state._replace(complaints=tuple(c for c in state.complaints if c.file != starts))
        return state if state.by_itself else state._replace(clean=False, by_broker=self._by_broker)

    def log_start_of(self, path: Path) -> int:
        """The log start offset of a partition. OSError."""
        return read_log_start(path, self._reader(directory_of(path)))

    def put_cleaner_offset(self, name: TopicPartition, offset: int) -> None:
        """Writes where the compacted part of a partition ends. OSError."""
        file = self._directory / layout.CLEANER_OFFSETS
        found = read_checkpoint(str(file))
        offsets = {name: offset} if self._own is not None else {**found.offsets, name: offset}
        if found.damage or offsets != found.offsets:
            checkpoints.write_offsets(file, offsets)

    def put(self, file: str, name: TopicPartition, offset: int | None) -> None:
        """What a file is to say of a partition; None for nothing. OSError: it says what it said before."""
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

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Takes partitions out of all files, durably: others of these names may come. OSError."""
        self._known_starts.update(names)
        for file, known in self._offsets.items():
            kept = {name: offset for name, offset in known.items() if name not in names}
            if len(kept) < len(known):
                self._write(file, kept)
        cleaner = self._directory / layout.CLEANER_OFFSETS
        offsets = read_checkpoint(str(cleaner)).offsets
        kept = {name: offset for name, offset in offsets.items() if name not in names}
        if len(kept) < len(offsets):
            checkpoints.write_offsets(cleaner, kept)

    def store(self) -> None:
        """Writes what was not written yet, durably. OSError."""
        for file in sorted(self._unwritten):
            self._write(file, self._offsets[file])

    def _write(self, file: str, offsets: dict[TopicPartition, int]) -> None:
        checkpoints.write_offsets(self._directory / file, offsets)
        self._offsets[file] = offsets
        self._unwritten.discard(file)
        if file == layout.LOG_STARTS:  # lines that are lost stay lost
            self._known_starts.update(offsets)
        else:
            self._damage[file] = ""


class Lease:
    """The right to write in a log directory: in all of it, or in one partition. A lease that is garbage has
    ended, whether `leave` was called or not. `leave` may be interrupted, and called again."""

    directory: "LogDirectory | None" = None  # set as soon as there is something to give up
    name: TopicPartition | None = None  # None: all of the directory
    _has_begun = False

    def __init__(self, path: Path, place: Path) -> None:
        """path: of the directory; place: what the lease is for. LogLockedError if another process has the
        directory, or another lease is for that place. OSError."""
        self._place = place
        self._pid = os.getpid()
        self._left = False
        try:
            LogDirectory.enter(path, place, self)
            self._begin()
        except BaseException:  # an exception that is kept keeps this object
            self.leave(clean=False)
            raise

    @property
    def has_left(self) -> bool:
        """Whether the lock was given up, or is another process's: in a forked child it is the parent's."""
        return self._left or os.getpid() != self._pid

    def _begin(self) -> None:
        """Runs when the directory is locked."""

    def _settle(self, directory: "LogDirectory", clean: bool) -> None:
        """Runs before it is unlocked."""

    def leave(self, *, clean: bool) -> None:
        """Unlocks. After a clean end the marker of a clean shutdown is written, if every partition of the
        directory is clean and no other lease is left. OSError if that fails, LogFailedError if the directory
        is no longer there: the lock is given up all the same."""
        directory = self.directory
        if directory is not None and not self.has_left:
            with directory.writing:
                self._leave_inside(directory, clean)

    def leave_unclean(self) -> None:
        """Leaves when that can be done: for a lease that is garbage, or soon will be."""
        directory = self.directory
        if directory is not None and not self.has_left:
            directory.writing.later(partial(self._leave_inside, directory, False))

    def _leave_inside(self, directory: "LogDirectory", clean: bool) -> None:
        try:
            self._settle(directory, clean)
        finally:
            directory.drop(self._place, self)
            self._left = True

    def __del__(self) -> None:
        try:  # noqa: SIM105 - at the end of the interpreter, contextlib may be gone
            self.leave_unclean()
        except AttributeError:  # it was interrupted while it was made
            pass


class LogDirectory:
    """The directory that leases of this process are for. `checkpoints` and what follows are for one thread at
    a time, with `writing` held."""

    checkpoints: Checkpoints

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self.writing = Mutex(inner=True)
        self._key = key  # its real path
        self._leases: dict[str, weakref.ref[Lease]] = {}  # by the real path of what they are for
        self._file: File | None = None
        self._is_open = False
        self._clean = False  # whether partitions that were not opened are clean
        self._closed: set[TopicPartition] = set()
        self._unclean: set[TopicPartition] = set()  # those that are open, too

    # ---- the lock ------------------------------------------------------------------------------------------

    @classmethod
    def enter(cls, path: Path, place: Path, lease: Lease) -> None:
        """Locks a directory for a lease. LogLockedError, OSError."""
        key = os.path.realpath(path)
        with lock.guard():
            found = _directories.get(key)
            if found is None:
                found = cls(path, key)
            name = found._name_of(place)
            if found._is_live(name):
                raise LogLockedError(name, os.getpid())
            lease.directory = found
            try:
                if found._file is None:
                    found._file = lock.lock_directory(key)
                    _directories[key] = found
                found._leases[name] = weakref.ref(lease)
            except BaseException:  # an interrupt
                found._unlock_if_unused()
                raise

    def drop(self, place: Path, lease: Lease) -> None:
        """Gives the lock up for a lease; it goes with the last."""
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
        if self._file is not None:
            if self.is_at_path():  # else another one's lock has its path
                with contextlib.suppress(OSError):  # a directory that has failed is given up all the same
                    unlink(f"{self._key}/{layout.LOCK}")
            lock.unlock_directory(self._key, self._file)
            self._file = None

    def _name_of(self, place: Path) -> str:
        """The real path of a place in the directory. It need not be asked for where it is known."""
        name = place.name
        if name in ("", ".", "..") or place.parent != self.path or place.is_symlink():
            return os.path.realpath(place)
        return os.path.join(self._key, name)  # noqa: PTH118

    def _is_live(self, name: str) -> bool:
        known = self._leases.get(name)
        return known is not None and known() is not None

    def _others(self, lease: Lease | None) -> list[Lease]:
        """All leases but one."""
        leases = [ref() for ref in list(self._leases.values())]
        return [other for other in leases if other is not None and other is not lease]

    def has_writer(self, partition: Path) -> bool:
        """Whether a partition is open for writing in this process."""
        return self._is_live(self._name_of(partition))

    def is_at_path(self) -> bool:
        """Whether its path still leads to the file that was locked."""
        try:
            mine = self._file
            return mine is not None and os.path.samestat(os.fstat(mine.fd), (self.path / layout.LOCK).stat())
        except OSError:
            return False

    def check_place(self) -> None:
        """LogFailedError if the directory is no longer where it was: another one may be there by now, which
        another process may have locked, or none."""
        if self._file is not None and not self.is_at_path():
            raise LogFailedError(
                f"{self.path} was renamed or removed while it was open, or its {layout.LOCK} file was: "
                "nothing is written at this path any more. Close the store, and open it again"
            )

    def close_in_child(self) -> None:
        """Closes the descriptor that a forked child has: the lock must end with its parent."""
        self._file = None

    def check_free(self) -> None:
        """ReentrantCallError if this thread is changing the directory just now."""
        with self.writing:
            pass

    # ---- the session ---------------------------------------------------------------------------------------

    def open_session(self, own: TopicPartition | None = None) -> list[str]:
        """Reads what the files of the directory say, if this is the first lease, and takes the marker of a
        clean shutdown away: until it is written again, a stop is not a clean one. Returns what damaged files
        have lost, as sentences. own: the partition that keeps these files for itself alone."""
        marker = f"{self.path}/{layout.CLEAN_SHUTDOWN}"
        losses = []
        if not self._is_open:
            remove_drafts(self.path)
            losses = keep_damaged(self.path)
            self._clean = is_there(marker)
            self.checkpoints = Checkpoints(self.path, own, self._clean and is_a_brokers(marker))
            self._is_open = True
        if is_there(marker):
            unlink(marker)
            sync_directory(str(self.path))
        return losses

    @property
    def was_clean(self) -> bool:
        """Whether all partitions were left clean, but for those that are open."""
        return self._clean and self._unclean <= {lease.name for lease in self._others(None)}

    def all_recovered(self) -> None:
        """Every partition of the directory was loaded or is new: those not opened any more are clean."""
        self._clean = True

    def failed(self, name: TopicPartition) -> None:
        """A partition could not be recovered, or closed, so the directory is not clean."""
        self._unclean.add(name)

    def begin(self, name: TopicPartition) -> bool:
        """Whether a partition that is opened now was left clean. It is unclean until `finish`."""
        clean = name not in self._unclean and (self._clean or name in self._closed)
        self._unclean.add(name)
        self._closed.discard(name)
        return clean

    def finish(self, name: TopicPartition) -> None:
        """A partition was closed cleanly."""
        self._unclean.discard(name)
        self._closed.add(name)

    def mark_clean(self, lease: Lease) -> None:
        """Writes the marker of a clean shutdown, if every partition is clean and this lease is the last.
        OSError."""
        if self._others(lease) or self._unclean:
            return
        if not self._clean:
            names = {
                layout.parse_directory(entry.name)
                for entry in self.path.iterdir()
                if layout.is_partition_name(entry.name) and any(entry.glob("*.log"))
            }
            if not names <= self._closed:
                return
        write_whole(f"{self.path}/{layout.CLEAN_SHUTDOWN}", layout.OWN_CLEAN_SHUTDOWN)

    def leave_whole(self, clean: bool) -> None:
        """Ends the time in which a store had all of the directory. OSError, LogFailedError: it is not
        clean."""
        was_clean, self._clean = self._clean, False
        if clean:
            self.check_place()
            self.checkpoints.store()
            self._clean = was_clean

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Nothing is known of these partitions any more, durably: they are gone, or new. OSError,
        LogFailedError."""
        with self.writing:
            self.check_place()
            self.checkpoints.forget(names)
            self._closed.difference_update(names)
            self._unclean.difference_update(names)

    # ---- checkpoints ---------------------------------------------------------------------------------------

    def store(self) -> None:
        """Writes the checkpoint files, as far as they have changed. OSError, LogFailedError."""
        with self.writing:
            if self._file is not None:
                self.check_place()
                self.checkpoints.store()

    def state_of(self, path: Path, name: TopicPartition) -> State:
        """What is known of a partition beside its own files; not whether it was closed cleanly. OSError."""
        with self.writing:
            return self.checkpoints.state_of(path, name)

    def log_start_of(self, path: Path) -> int:
        """The log start offset of a partition. OSError."""
        with self.writing:
            return self.checkpoints.log_start_of(path)


class WholeLease(Lease):
    """A lease of all of a directory, whether or not a partition of it is open. `was_clean`: all partitions
    were left clean, but for those that were open. `losses`: what damaged checkpoints have lost, as
    sentences."""

    was_clean = False
    losses: Sequence[str] = ()

    def __init__(self, path: Path) -> None:
        super().__init__(path, path)

    def _begin(self) -> None:
        directory = self.directory
        assert directory is not None
        with directory.writing:
            self.losses = directory.open_session()
            self.was_clean = directory.was_clean
            directory.checkpoints.delays = True
            self._has_begun = True

    def _settle(self, directory: LogDirectory, clean: bool) -> None:
        if not self._has_begun:
            return
        directory.checkpoints.delays = False
        directory.leave_whole(clean)
        if clean:
            directory.mark_clean(self)


class PartitionLease(Lease):
    """A lease of one partition. `kept` is what is kept of its configuration, if `reads_options`, and `state`
    what its checkpoints say, as they were found."""

    kept: KeptOptions | None = None
    state: State

    def __init__(self, path: Path, *, reads_options: bool) -> None:
        self.path = path
        self._location = locate(path)
        self.name: TopicPartition = self._location.name
        self.losses: list[str] = []  # of the directory, which others of its partitions may have suffered
        self.keeps_log_start = False  # whether the stored log start offset stays if there is none to store
        self._reads_options = reads_options
        self._partition_lock: PartitionLock | None = None
        super().__init__(Path(self._location.directory), path)

    @property
    def is_moved(self) -> bool:
        """Whether the directory was renamed or removed meanwhile: by its path another one may be reached."""
        return self._partition_lock is None or not self._partition_lock.is_at(self.path)

    @property
    def fate(self) -> str:
        """What became of a directory that is moved, in words."""
        removed = self._partition_lock is not None and self._partition_lock.is_removed
        return f"{self.path} was removed" if removed else f"{self.path} was renamed or removed"

    def show_loaded(self) -> None:
        """Shows readers in other processes that the log was loaded."""
        if self._partition_lock is not None:
            self._partition_lock.show_loaded()

    def _locked(self) -> LogDirectory:
        assert self.directory is not None
        return self.directory

    def _begin(self) -> None:
        directory = self._locked()
        self._partition_lock = PartitionLock(self.path)
        if locate(self.path) != self._location:  # a store's by now, which did not know of this writer
            raise LogLockedError(str(self.path), None)
        with directory.writing:
            self._refuse_deleted(directory)
            if self._reads_options:  # if they are damaged, nothing is changed
                self.kept = kept_options(self.path)
            self.losses = directory.open_session(self.name if self._location.is_alone else None)
            # `store` removes it
            if not self._location.is_alone and is_there(f"{self.path}/{layout.LOG_STARTS}"):
                self.losses += keep_damaged(self.path)
            state = directory.checkpoints.state_of(self.path, self.name)
            if state.by_itself:  # what it says of itself, its directory is to say before that is forgotten
                directory.checkpoints.put(layout.RECOVERY_POINTS, self.name, state.recovery_point)
                directory.checkpoints.store()
            self._forget_own_state()
            clean = directory.begin(self.name)
            self._has_begun = True
            self.state = state if state.by_itself else state._replace(clean=clean)

    def _refuse_deleted(self, directory: LogDirectory) -> None:
        """LogNotFoundError if a store has decided to delete the topic: what is appended now would go with
        it."""
        if self._location.is_alone:
            return
        with contextlib.suppress(CorruptCheckpointError):  # opening the store raises it
            if topic_being_deleted(directory.path) == self.name.topic:
                raise LogNotFoundError(
                    f"topic {self.name.topic} is being deleted: LogStore({str(directory.path)!r}, mode='a') "
                    "finishes that"
                )

    def _forget_own_state(self) -> None:
        """A partition that kept its own state before it was put into a log directory is no longer clean by
        what it says: a copy of it alone would be believed to be."""
        if self._location.is_alone:
            return
        for name in (layout.CLEAN_SHUTDOWN, layout.RECOVERY_POINTS):
            own = f"{self.path}/{name}"
            if is_there(own):
                unlink(own)
                sync_directory(str(self.path))

    def store(self, recovery_point: int, log_start_offset: int | None) -> None:
        """Writes both checkpoints, durably: the recovery point, and the log start offset where it is not
        None. OSError."""
        directory = self._locked()
        with directory.writing:
            directory.checkpoints.put(layout.RECOVERY_POINTS, self.name, recovery_point)
            if log_start_offset is not None or not self.keeps_log_start:
                directory.checkpoints.put(layout.LOG_STARTS, self.name, log_start_offset)
            if not self._location.is_alone and is_there(f"{self.path}/{layout.LOG_STARTS}"):
                unlink(f"{self.path}/{layout.LOG_STARTS}")  # from before it was put here

    def store_high_watermark(self, offset: int) -> None:
        """Writes what a broker takes for the high watermark; only in a log directory. OSError."""
        if not self._location.is_alone:
            directory = self._locked()
            with directory.writing:
                directory.checkpoints.put(layout.HIGH_WATERMARKS, self.name, offset)

    def cleaner_offset(self) -> int | None:
        """Where the part ends that was compacted; None if that is not known."""
        return read_cleaner_offset(self.path)

    def store_cleaner_offset(self, offset: int) -> None:
        """Writes where the compacted part ends, durably. OSError."""
        directory = self._locked()
        with directory.writing:
            directory.checkpoints.put_cleaner_offset(self.name, offset)

    def lower_cleaner_offset(self, offset: int) -> None:
        """What lies at this offset and behind it will not be what was compacted. OSError."""
        known = self.cleaner_offset()
        if known is not None and known > offset:
            self.store_cleaner_offset(offset)

    def _settle(self, directory: LogDirectory, clean: bool) -> None:
        try:
            if clean and self._has_begun:
                directory.finish(self.name)
                directory.mark_clean(self)
        finally:
            if self._partition_lock is not None:
                self._partition_lock.release()


_directories: dict[str, LogDirectory] = {}  # by real path; changed with `lock.guard` held


def _forget() -> None:
    """A forked child has no lock: what it inherited belongs to its parent."""
    for directory in _directories.values():
        directory.close_in_child()
    _directories.clear()


os.register_at_fork(after_in_child=_forget)
