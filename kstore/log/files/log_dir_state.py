"""Where a partition's lock, clean marker and checkpoints lie: in its log directory, or in itself (spec 1.4 to
1.8).

A broker keeps them in the directory around the partitions. A partition that lies in no such directory keeps
its own, in the same form: so programs can write partitions side by side, and Kafka passes the files over.
"""

import contextlib
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

from kstore.engine.io.file import read_whole, sync_directory, unlink, write_whole
from kstore.engine.io.mutex import Mutex
from kstore.errors import CorruptCheckpointError, LogLockedError, LogNotFoundError
from kstore.log.files import checkpoints, layout, topic_file
from kstore.log.files.layout import TopicPartition
from kstore.log.files.listing import is_there
from kstore.log.files.lock import DirectoryLock, PartitionLock, User
from kstore.log.files.option_file import read_options
from kstore.log.files.topic_file import read_table, topic_being_deleted

_SIGNS = (
    layout.META_PROPERTIES,
    layout.LOCK,
    layout.CLEAN_SHUTDOWN,
    layout.RECOVERY_POINTS,
    layout.LOG_STARTS,
    layout.HIGH_WATERMARKS,
    layout.CLEANER_OFFSETS,
    topic_file.NAME,
)


class Complaint(NamedTuple):
    """A checkpoint file that could not be read; whether it hides where a log starts."""

    file: str
    text: str
    hides_start: bool = False


def directory_of(path: Path) -> Path:
    """The directory that keeps the state of a partition: the log directory around it, or itself.

    A log directory keeps the state of partitions by topic and number. So a directory whose name a broker
    would not give to a partition keeps its own, also in there: its name could be another's in the
    checkpoints, or spoil them.
    """
    return Path(_directory_of(os.path.abspath(path)))  # noqa: PTH100 - resolve() would follow a link to another log directory


def located(path: str) -> str:
    """The place of a partition, absolute: that of a link in a log directory, as a broker sees it; any other
    link stands for what it leads to."""
    return _located(os.path.abspath(path))[0]  # noqa: PTH100


def _located(path: str) -> tuple[str, bool]:
    """The same, and whether the directory around it is a log directory."""
    parent, name = os.path.split(path)
    if layout.partition_named(name) is not None and any(is_there(f"{parent}/{sign}") for sign in _SIGNS):
        return path, True
    if os.path.islink(path):  # noqa: PTH114
        real = os.path.realpath(path)
        if not os.path.islink(real):  # noqa: PTH114 - it is one still if it leads to itself
            return _located(real)
    return path, False


def _directory_of(path: str) -> str:
    """The same as directory_of as text, which takes less time: each look at a partition comes by here."""
    place, is_inside = _located(path)
    return os.path.dirname(place) if is_inside else path  # noqa: PTH120


def name_of(path: Path) -> TopicPartition:
    """What the checkpoints call a partition. One that keeps its own is alone in them, so any name serves."""
    return _name_of(located(str(path)))


def _name_of(path: str) -> TopicPartition:
    return layout.partition_named(os.path.basename(path)) or TopicPartition("log", 0)  # noqa: PTH119


def is_led(path: Path) -> bool:
    """Whether a controller of Kafka assigns the leader epochs of the partition at a path: it lies in a
    broker's directory, or has the topic id that a controller gave. Clients refuse metadata whose epoch is
    below one they have read, so nobody else may begin an epoch there."""
    directory = _directory_of(os.path.abspath(path))  # noqa: PTH100
    return is_there(f"{path}/{layout.METADATA}") or is_there(f"{directory}/{layout.META_PROPERTIES}")


def is_tiered(path: Path) -> bool:
    """Whether the broker in whose log directory a partition lies has remote storage, where older records of
    topics may be."""
    return is_there(f"{_directory_of(os.path.abspath(path))}/{layout.REMOTE_INDEXES}")  # noqa: PTH100


class KeptOptions(NamedTuple):
    """What is kept of a partition's configuration, in Kafka's notation, and whether a store keeps it."""

    options: dict[str, str]
    of_store: bool


def kept_options(path: Path) -> KeptOptions:
    """The options of the topic, if the partition at a path is in the directory of a store that knows it; else
    what is kept in the partition. CorruptCheckpointError, OSError."""
    directory = directory_of(path)
    if directory != Path(os.path.abspath(path)):  # noqa: PTH100
        known = read_table(directory).topics.get(name_of(path).topic)
        if known is not None:
            return KeptOptions(dict(known.options), True)
    return KeptOptions(read_options(path), False)


class State(NamedTuple):
    """What is known of a partition beside its own files."""

    clean: bool
    recovery_point: int
    log_start_offset: int
    complaints: tuple[Complaint, ...]
    by_broker: bool = False  # whether it was a broker of Kafka that closed it
    # Whether a partition says so that was put into a log directory, which tells nothing of it yet.
    by_itself: bool = False


def read_state(path: Path) -> State:
    """Reads the marker and the checkpoints. Of a damaged checkpoint the lines that can be read count.
    OSError."""
    whole = os.path.abspath(path)  # noqa: PTH100 - as text: each look at a partition comes by here
    directory, tp = _directory_of(whole), name_of(path)
    if tp.topic == layout.CLUSTER_METADATA:  # loaded by Raft, which asks for no marker
        return State(False, 0, 0, ())
    complaints: list[Complaint] = []
    _complain_of_cleaner_offsets(directory, complaints)
    log_start_offset = _log_start_of(whole, directory, tp, complaints)
    points = f"{directory}/{layout.RECOVERY_POINTS}"
    if directory != whole and is_there(f"{whole}/{layout.RECOVERY_POINTS}") and not _may_tell_of(points, tp):
        return _own_state(whole, tp, log_start_offset, complaints)
    recovery_point = _offset_of(points, tp, directory == whole, complaints)
    marker = f"{directory}/{layout.CLEAN_SHUTDOWN}"
    clean = is_there(marker)
    return State(clean, recovery_point, log_start_offset, tuple(complaints), clean and _is_a_brokers(marker))


def _may_tell_of(path: str, tp: TopicPartition) -> bool:
    """Whether a checkpoint file has a line of a partition, or may have had one."""
    try:
        offsets, damage = checkpoints.look_into(path)
    except OSError:
        return True
    return damage is not None or tp in offsets


def _complain_of_cleaner_offsets(directory: str, complaints: list[Complaint]) -> None:
    """Retention refuses to delete by age or size while the cleaner's checkpoint is damaged: a finding names
    the file."""
    _, damage = _look_into_cleaner_offsets(directory)
    if damage is not None:
        file = f"{directory}/{layout.CLEANER_OFFSETS}"
        text = f"damaged, so which topics were compacted is not known: {damage}"
        complaints.append(Complaint(file, text))


def _own_state(path: str, tp: TopicPartition, log_start_offset: int, complaints: list[Complaint]) -> State:
    """What a partition says of itself that was written by itself, and lies in a log directory now.

    It holds until the log directory tells of the partition: whoever writes it there, a broker too, notes a
    recovery point.
    """
    recovery_point = _offset_of(f"{path}/{layout.RECOVERY_POINTS}", tp, True, complaints)
    clean = is_there(f"{path}/{layout.CLEAN_SHUTDOWN}")
    return State(clean, recovery_point, log_start_offset, tuple(complaints), by_itself=True)


def read_log_start(path: Path) -> int:
    """The log start offset alone, of what read_state tells."""
    whole = os.path.abspath(path)  # noqa: PTH100
    directory, tp = _directory_of(whole), name_of(path)
    return 0 if tp.topic == layout.CLUSTER_METADATA else _log_start_of(whole, directory, tp, [])


def _log_start_of(path: str, directory: str, tp: TopicPartition, complaints: list[Complaint]) -> int:
    alone = directory == path
    offset = _offset_of(f"{directory}/{layout.LOG_STARTS}", tp, alone, complaints)
    own = f"{path}/{layout.LOG_STARTS}"
    if not alone and is_there(own):  # it kept its own state before it was put here
        offset = max(offset, _offset_of(own, tp, True, complaints))
    return offset


def read_cleaner_offset(path: Path) -> int | None:
    """Where the part of a partition ends that was compacted; None if that is not known. Of a damaged file
    what can be read counts. OSError."""
    directory = directory_of(path)
    offsets, _ = checkpoints.salvage_offsets(directory / layout.CLEANER_OFFSETS)
    if directory == Path(os.path.abspath(path)) and len(offsets) == 1:  # noqa: PTH100
        return next(iter(offsets.values()))  # perhaps by the name that the directory had before
    return offsets.get(name_of(path))


def is_known_compacted(path: Path) -> bool:
    """Whether a partition, or another of its topic, was compacted, as its log directory tells, or is of a
    topic of Kafka's own that is. CorruptCheckpointError if the file that tells is damaged, or was, and no
    sound line names the topic. OSError."""
    topic = name_of(path).topic
    if topic in layout.KAFKAS_COMPACTED or read_cleaner_offset(path) is not None:
        return True
    directory = str(directory_of(path))
    offsets, damage = _look_into_cleaner_offsets(directory)
    if any(tp.topic == topic for tp in offsets):
        return True
    kept = f"{directory}/{layout.CLEANER_OFFSETS}{layout.CUT}"
    if damage is None and is_there(kept):  # a later compaction has replaced the damaged file
        _, damage = checkpoints.look_into(kept)
        damage = damage or _error_of_emptied(kept)
    if damage is not None:  # raised anew: the one that is remembered would keep the frames
        raise CorruptCheckpointError(
            damage.reason,
            file=damage.file,
            position=damage.position,
            expected=damage.expected,
            found=damage.found,
        )
    return False


def _look_into_cleaner_offsets(
    directory: str,
) -> tuple[Mapping[TopicPartition, int], CorruptCheckpointError | None]:
    """What the cleaner's checkpoint of a directory says, and what is wrong with it. A broker creates an empty
    one, and fills it at the first compaction; kstore never creates an empty one. OSError."""
    path = f"{directory}/{layout.CLEANER_OFFSETS}"
    offsets, damage = checkpoints.look_into(path)
    if not offsets and _is_empty(path) and not is_there(f"{directory}/{layout.META_PROPERTIES}"):
        damage = _error_of_emptied(path)
    return offsets, damage


def _error_of_emptied(path: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "checkpoint file", file=path, position=1, expected="version 0", found="an empty file"
    )


def _is_a_brokers(marker: str) -> bool:
    """Whether a broker wrote a clean marker: it has an epoch, where kstore writes -1 (spec 1.7)."""
    try:
        return int(json.loads(read_whole(marker))["brokerEpoch"]) >= 0
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False


def _offset_of(path: str, tp: TopicPartition, alone: bool, complaints: list[Complaint]) -> int:
    # OSError is passed on: what cannot be read is not what is damaged, and may be right.
    offsets, error = checkpoints.look_into(path)
    if alone and tp not in offsets and len(offsets) == 1:  # the directory was given another name
        tp = next(iter(offsets))
    hides_start = tp not in offsets and path.endswith(layout.LOG_STARTS)
    if error is not None:
        counts = f"the offset of {tp} in it, {offsets.get(tp)}, counts"
        what = counts if tp in offsets else f"nothing is known of {tp}"
        complaints.append(Complaint(path, f"damaged, {what}: {error}", hides_start))
    elif hides_start and _is_emptied(path):
        complaints.append(Complaint(path, _EMPTIED, hides_start))
    return offsets.get(tp, 0)


_EMPTIED = "it was emptied: no offset is in it"


def _is_emptied(path: str) -> bool:
    """Whether a checkpoint file has lost its content. A broker makes an empty one, and fills it before it
    leaves the directory; kstore never makes one."""
    directory = os.path.dirname(path)  # noqa: PTH120
    return _is_empty(path) and (
        is_there(f"{directory}/{layout.CLEAN_SHUTDOWN}")
        or not is_there(f"{directory}/{layout.META_PROPERTIES}")
    )


def _is_empty(path: str) -> bool:
    try:
        return os.stat(path).st_size == 0  # noqa: PTH116
    except OSError:
        return False


class HeldCheckpoints:
    """The checkpoint files of a log directory, in memory while one program keeps all of it.

    A recovery point that is too low costs time at the next opening and nothing else, so one that rises is
    written by `store`, later and with all others. Whatever must not be lost is written at once.
    """

    FILES = (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS)

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._by_broker = is_closed_by_broker(directory)
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self._damage: dict[str, str] = {}
        self._unwritten: set[str] = set()
        for file in self.FILES:
            offsets, damage = checkpoints.salvage_offsets(directory / file)
            self._offsets[file] = offsets
            if damage is not None:
                self._damage[file] = f"damaged: {damage}"
                self._unwritten.add(file)
        starts = self._offsets[layout.LOG_STARTS]
        if not starts and _is_emptied(f"{directory}/{layout.LOG_STARTS}"):
            self._damage[layout.LOG_STARTS] = _EMPTIED
        if not starts and _is_empty(f"{directory}/{layout.LOG_STARTS}"):
            self._unwritten.add(layout.LOG_STARTS)
        # why nothing is known of the log starts that are not in the file, until their logs are written
        self._hides_starts = self._damage.get(layout.LOG_STARTS, "")
        self._known_starts = set(starts)

    def state_of(self, path: Path, name: TopicPartition) -> State:
        """What is known of a partition beside its own files."""
        if name.topic == layout.CLUSTER_METADATA:
            return State(False, 0, 0, ())
        complaints: list[Complaint] = []
        _complain_of_cleaner_offsets(str(self._directory), complaints)
        found = []
        told = name in self._offsets[layout.RECOVERY_POINTS] or layout.RECOVERY_POINTS in self._damage
        for file in (layout.RECOVERY_POINTS, layout.LOG_STARTS):
            where = f"{self._directory}/{file}"
            if file == layout.LOG_STARTS and self._hides_starts and name not in self._known_starts:
                complaints.append(Complaint(where, self._hides_starts, hides_start=True))
            elif file in self._damage:
                complaints.append(Complaint(where, self._damage[file]))
            found.append(self._offsets[file].get(name, 0))
        recovery_point, log_start_offset = found
        own = f"{path}/{layout.LOG_STARTS}"
        if is_there(own):  # it kept its own state before it was put here
            log_start_offset = max(log_start_offset, _offset_of(own, name, True, complaints))
        if not told and is_there(f"{path}/{layout.RECOVERY_POINTS}"):
            return _own_state(str(path), name, log_start_offset, complaints)
        return State(False, recovery_point, log_start_offset, tuple(complaints), self._by_broker)

    def put(self, file: str, name: TopicPartition, offset: int | None) -> None:
        """What a file is to say of a partition; None for nothing. OSError: it says what it said before."""
        if file == layout.LOG_STARTS:
            self._known_starts.add(name)
        offsets = self._offsets[file]
        known = offsets.get(name)
        if known == offset:
            return
        later = file == layout.HIGH_WATERMARKS or (
            file == layout.RECOVERY_POINTS and offset is not None and offset >= (known or 0)
        )
        changed = dict(offsets) if not later else offsets
        if offset is None:
            changed.pop(name, None)
        else:
            changed[name] = offset
        if later:
            self._unwritten.add(file)
        else:
            self._write(file, changed)

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Takes partitions out of all files, durably: others of these names may come. OSError."""
        self._known_starts.update(names)
        for file in self.FILES:
            kept = {name: offset for name, offset in self._offsets[file].items() if name not in names}
            if len(kept) < len(self._offsets[file]):
                self._write(file, kept)
        cleaner = self._directory / layout.CLEANER_OFFSETS
        offsets, _ = checkpoints.salvage_offsets(cleaner)
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
        self._damage.pop(file, None)


def keep_damaged(directory: Path) -> list[str]:
    """Copies damaged checkpoints whose content is nowhere else to .cut files, before a write replaces them.

    The lost lines may be of partitions that are not open. Returns a sentence if log start offsets are lost.
    The directory must be locked, and the clean marker still be there: by it, an empty file of a broker is
    known to be damaged. OSError.
    """
    losses = []
    for name in layout.IRREPLACEABLE:
        path = f"{directory}/{name}"
        offsets, damage = (
            _look_into_cleaner_offsets(str(directory))
            if name == layout.CLEANER_OFFSETS
            else checkpoints.look_into(path)
        )
        if damage is None and not (name == layout.LOG_STARTS and not offsets and _is_emptied(path)):
            continue
        kept = _keep(path)
        if name == layout.LOG_STARTS:
            what = damage or f"{path}: {_EMPTIED}"
            losses.append(
                f"{what}. Deleted records may be readable again, of partitions whose lines are lost; a copy is kept in {kept}"
            )
    return losses


def _keep(path: str) -> str:
    """The name of a copy of a file, which is made if there is none yet. OSError."""
    content, kept, number = read_whole(path), path + layout.CUT, 1
    while is_there(kept):
        if read_whole(kept) == content:
            return kept
        number += 1
        kept = f"{path}.{number}{layout.CUT}"
    write_whole(kept, content)
    return kept


def kept_checkpoints(directory: Path) -> list[Path]:
    """The copies of damaged checkpoints in a directory."""
    return sorted(path for path in directory.glob("*" + layout.CUT) if is_kept_checkpoint(path.name))


def is_kept_checkpoint(name: str) -> bool:
    """Whether a file has the name of a copy of a damaged checkpoint."""
    return name.endswith(layout.CUT) and name.startswith(tuple(f"{file}." for file in layout.IRREPLACEABLE))


def remove_drafts(directory: Path) -> None:
    """Removes what a crash has left of checkpoints that were being written. With the directory locked.
    OSError."""
    for name in (*layout.CHECKPOINTS, topic_file.NAME):
        draft = directory / (name + layout.DRAFT)
        if draft.is_file():
            unlink(str(draft), missing_ok=True)


class LogDirState:
    """The state of a partition that is written: holds the lock from its making to `leave`.

    `leave` may be interrupted, and called again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = name_of(path)
        self.directory = directory_of(path)
        # whether the checkpoints are the partition's own
        self._alone = self.directory == Path(os.path.abspath(path))  # noqa: PTH100
        self.keeps_log_start = (
            False  # whether the log start offset stays that is stored, if there is none to store
        )
        self._pid = os.getpid()
        self._user = User()
        self._left = self._entered = False
        self.losses: list[str] = []  # of the directory, which others of its partitions may have suffered
        self._lock: DirectoryLock | None = None
        self._partition_lock: PartitionLock | None = None
        try:
            self._lock = DirectoryLock.acquire(self.directory, path, self._user)
            self._partition_lock = PartitionLock(path)
            if directory_of(path) != self.directory:  # a store's by now, which did not know of this writer
                raise LogLockedError(str(self.path), None)
            self.state = self._enter()
        except BaseException:
            self._lock = self._user.lock
            self.leave(clean=False)
            raise

    @property
    def has_left(self) -> bool:
        """Whether the lock was given up, or is another process's."""
        return self._left or os.getpid() != self._pid

    @property
    def is_moved(self) -> bool:
        """Whether the directory was renamed or removed meanwhile: by its path another one may be reached."""
        return self._partition_lock is None or not self._partition_lock.is_at(self.path)

    @property
    def fate(self) -> str:
        """What became of a directory that is moved, in words."""
        removed = self._partition_lock is not None and self._partition_lock.is_removed
        return f"{self.path} was removed" if removed else f"{self.path} was renamed or removed"

    @property
    def _writing(self) -> Mutex:
        """For one log of the directory at a time."""
        assert self._lock is not None
        return self._lock.writing

    def _enter(self) -> State:
        """Takes the clean marker away: until it is written again, a stop is not a clean one."""
        with self._writing:
            self._refuse_deleted()
            session = SESSIONS.get(self.directory)
            if session is not None and session.checkpoints is not None:
                state = session.checkpoints.state_of(self.path, self.name)
            else:
                state = read_state(self.path)
                self.losses = keep_damaged(self.directory)
                if session is None:  # nobody in this process writes there
                    remove_drafts(self.directory)
                session = SESSIONS.setdefault(self.directory, Session(state.clean))
            if not self._alone and is_there(f"{self.path}/{layout.LOG_STARTS}"):  # `store` removes it
                self.losses += keep_damaged(self.path)
            session.open[self.name] = self._user
            marker = f"{self.directory}/{layout.CLEAN_SHUTDOWN}"
            if is_there(marker):
                unlink(marker)
                sync_directory(str(self.directory))
            self._take_over(state)
            self._forget_own_state()
            clean = session.enter(self.name)
            self._entered = True
            return state if state.by_itself else state._replace(clean=clean)

    def _take_over(self, state: State) -> None:
        """What a partition said of itself is said by the log directory from here on, durably, before it is
        forgotten."""
        if state.by_itself:
            self._store(layout.RECOVERY_POINTS, state.recovery_point)
            session = SESSIONS[self.directory]
            if session.checkpoints is not None:
                session.checkpoints.store()

    def _forget_own_state(self) -> None:
        """A partition that kept its own state before it was put into a log directory is no longer clean by
        what it says: a copy of it alone would be believed to be."""
        if self._alone:
            return
        for name in (layout.CLEAN_SHUTDOWN, layout.RECOVERY_POINTS):
            own = f"{self.path}/{name}"
            if is_there(own):
                unlink(own)
                sync_directory(str(self.path))

    def _refuse_deleted(self) -> None:
        """LogNotFoundError if a store has decided to delete the topic: what is appended now would go with
        it."""
        if self._alone:
            return
        with contextlib.suppress(CorruptCheckpointError):  # who opens the store is told
            if topic_being_deleted(self.directory) == self.name.topic:
                raise LogNotFoundError(
                    f"topic {self.name.topic} is being deleted: LogStore({str(self.directory)!r}, mode='a') finishes that"
                )

    def store(self, recovery_point: int, log_start_offset: int | None) -> None:
        """Writes both checkpoints, durably: the recovery point, and the log start offset where it is not
        None. OSError."""
        with self._writing:
            self._store(layout.RECOVERY_POINTS, recovery_point)
            if log_start_offset is not None or not self.keeps_log_start:
                self._store(layout.LOG_STARTS, log_start_offset)
            if not self._alone and (self.path / layout.LOG_STARTS).exists():
                unlink(
                    str(self.path / layout.LOG_STARTS)
                )  # from before it was put here; now the other one tells

    def store_high_watermark(self, offset: int) -> None:
        """Writes what a broker takes for the high watermark; only in a log directory. OSError."""
        if not self._alone:
            with self._writing:
                self._store(layout.HIGH_WATERMARKS, offset)

    def cleaner_offset(self) -> int | None:
        """Where the part ends that was compacted; None if that is not known."""
        with self._writing:
            return read_cleaner_offset(self.path)

    def store_cleaner_offset(self, offset: int) -> None:
        """Writes where the compacted part ends, durably. OSError."""
        with self._writing:
            self._store(layout.CLEANER_OFFSETS, offset)

    def lower_cleaner_offset(self, offset: int) -> None:
        """What lies at this offset and behind it will not be what was compacted. OSError."""
        known = self.cleaner_offset()
        if known is not None and known > offset:
            self.store_cleaner_offset(offset)

    def _store(self, file: str, offset: int | None) -> None:
        session = SESSIONS.get(self.directory)
        if session is not None and session.checkpoints is not None and file in HeldCheckpoints.FILES:
            session.checkpoints.put(file, self.name, offset)
            return
        path = self.directory / file
        offsets, damage = checkpoints.salvage_offsets(path)
        before = dict(offsets)
        if self._alone:
            offsets.clear()
        if offset is None:
            offsets.pop(self.name, None)
        else:
            offsets[self.name] = offset
        if damage is not None or offsets != before or (not offsets and _is_empty(str(path))):
            checkpoints.write_offsets(path, offsets)

    def leave(self, *, clean: bool) -> None:
        """Unlocks. After a clean close the marker is written, if every partition around is clean with this
        one.

        OSError if the marker could not be written: the lock is given up all the same.
        """
        if (
            self._left or self._lock is None or os.getpid() != self._pid
        ):  # in a forked child it is the parent's
            return
        with self._writing:
            try:
                self._end_session(clean)
            except OSError:
                self._end_session(False)
                raise
            finally:
                self._give_up()

    def _end_session(self, clean: bool) -> None:
        session = SESSIONS.get(self.directory)
        if session is None or session.open.get(self.name) is not self._user:
            if session is not None and not (
                session.is_used or session.is_kept
            ):  # of an opening that was interrupted
                SESSIONS.pop(self.directory, None)
            return
        if clean and self._entered:
            session.unclean.discard(self.name)
            session.closed.add(self.name)
        others = session.is_kept or any(user is not self._user for user in session.open.values())
        if clean and not others:
            session.mark_clean(self.directory)
        if not others:
            SESSIONS.pop(self.directory, None)
        session.open.pop(self.name, None)

    def _give_up(self) -> None:
        """Gives the lock up, once nothing more is to be written."""
        session = SESSIONS.get(self.directory)
        if session is None or session.open.get(self.name) is not self._user:
            assert self._lock is not None
            if self._partition_lock is not None:
                self._partition_lock.release()
            self._lock.release(self.path, self._user)
            self._left = True

    def leave_unclean(self) -> None:
        """Leaves when that can be done: nobody closed the log, and it is garbage now."""
        if not self._left and self._lock is not None and os.getpid() == self._pid:
            self._writing.later(self._leave_inside)

    def _leave_inside(self) -> None:
        """Leaves, for whoever is under the guard already."""
        try:
            self._end_session(False)
        finally:
            self._give_up()

    def __del__(self) -> None:
        try:  # noqa: SIM105 - at the end of the interpreter, contextlib may be gone
            self.leave_unclean()
        except AttributeError:  # it was interrupted while it was made
            pass


class Session:
    """What this process has done in one directory since it locked it."""

    def __init__(self, clean: bool) -> None:
        self.clean = clean
        # Weak: a log that is garbage is not open, also if it found no memory to say so.
        self.open: WeakValueDictionary[TopicPartition, User] = WeakValueDictionary()
        self.closed: set[TopicPartition] = set()
        self.unclean: set[TopicPartition] = set()  # those that are open, too
        self.checkpoints: HeldCheckpoints | None = None  # while somebody keeps the directory as a whole

    @property
    def is_kept(self) -> bool:
        """Whether somebody keeps the directory, with or without a partition that is open."""
        return self.checkpoints is not None

    @property
    def is_used(self) -> bool:
        """Whether a partition is open."""
        return any(self.open.values())

    @property
    def was_clean(self) -> bool:
        """Whether all partitions were left clean, but for those that are open."""
        return self.clean and all(name in self.open for name in self.unclean)

    def enter(self, name: TopicPartition) -> bool:
        """Whether a partition that is opened now was left clean. It is unclean until it is closed."""
        clean = name not in self.unclean and (self.clean or name in self.closed)
        self.unclean.add(name)
        self.closed.discard(name)
        return clean

    def forget(self, name: TopicPartition) -> None:
        """The partition is no longer there, so nothing of it keeps the directory from being clean."""
        self.closed.discard(name)
        self.unclean.discard(name)

    def mark_clean(self, directory: Path) -> None:
        """Writes the clean marker, if every partition of the directory is clean. OSError."""
        if self.all_clean(directory):
            write_whole(str(directory / layout.CLEAN_SHUTDOWN), b'{"version":0,"brokerEpoch":-1}')

    def all_clean(self, directory: Path) -> bool:
        """Whether the marker may say that every partition of the directory is clean."""
        if self.unclean:
            return False
        if self.clean:
            return True
        names = {
            layout.parse_directory(entry.name)
            for entry in directory.iterdir()
            if layout.is_partition_name(entry.name) and any(entry.glob("*.log"))
        }
        return names <= self.closed


def is_closed_by_broker(directory: Path) -> bool:
    """Whether the directory has a clean marker that a broker wrote."""
    return _is_a_brokers(f"{directory}/{layout.CLEAN_SHUTDOWN}")


SESSIONS: dict[Path, Session] = {}
os.register_at_fork(after_in_child=SESSIONS.clear)
