"""The directory of a partition's lock, clean marker and checkpoints: its log directory, or the partition
(spec 1.4 to 1.8).

A broker keeps these files in the directory around the partitions. A partition that is not in a log directory
has its own files in that format, so that several programs can write partitions side by side. Kafka
ignores them.
"""

from __future__ import annotations

import os

from kstore.engine.io.directory import unlink, write_whole
from kstore.engine.io.file import read_whole
from kstore.errors import CorruptCheckpointError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import checkpoints, layout
from kstore.log.files.layout import TopicPartition
from kstore.log.files.listing import is_there
from kstore.log.files.manifest import OLDER_TABLE, read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kstore.typed import StrPath

_SIGNS = (
    layout.META_PROPERTIES,
    layout.LOCK,
    layout.CLEAN_SHUTDOWN,
    layout.RECOVERY_POINTS,
    layout.LOG_STARTS,
    OLDER_TABLE,
    layout.CLEANER_OFFSETS,
    layout.MANIFEST,
)


class Location(NamedTuple):
    """The absolute path of a partition, the directory of its checkpoints, and its name in them."""

    path: str
    directory: str
    name: TopicPartition

    @property
    def is_alone(self) -> bool:
        """Whether the partition has its own checkpoints."""
        return self.directory == self.path


def locate(path: StrPath) -> Location:
    """The location of the partition at a path. Its checkpoints are in the log directory around it, or in the
    partition.

    The checkpoints of a log directory name partitions by topic and number. A directory whose name a broker
    would not give to a partition therefore has its own checkpoints, even in a log directory: its name could
    be that of another partition there. Its name in its own checkpoints is arbitrary. A link in a log
    directory is a partition of that directory, as for a broker; any other link is resolved.
    """
    whole = os.path.abspath(path)
    place = located(whole)
    parent, base = os.path.split(place)
    name = layout.partition_named(base)
    inside = name is not None and _is_log_directory(parent)
    return Location(whole, parent if inside else whole, name or TopicPartition("log", 0))


def located(path: str) -> str:
    """The absolute path of a partition. A link in a log directory is not resolved, as by a broker; any other
    link is."""
    path = os.path.abspath(path)
    if not os.path.islink(path):
        return path
    parent, base = os.path.split(path)
    real = os.path.realpath(path)
    if (layout.is_partition_name(base) and _is_log_directory(parent)) or os.path.islink(real):
        return path  # the link leads to itself
    return real


def _is_log_directory(path: str) -> bool:
    return any(is_there(f"{path}/{sign}") for sign in _SIGNS)


def directory_of(path: StrPath) -> str:
    """The directory with the checkpoints of a partition."""
    return locate(path).directory


def name_of(path: StrPath) -> TopicPartition:
    """The name of a partition in the checkpoints."""
    return locate(path).name


def is_led(path: StrPath) -> bool:
    """Whether a controller of Kafka assigns the leader epochs of a partition: it is in a broker's directory,
    or has a topic id. No other program may begin an epoch there, because clients refuse metadata whose epoch
    is below one they have read."""
    directory = locate(path).directory
    return is_there(f"{path}/{layout.METADATA}") or is_there(f"{directory}/{layout.META_PROPERTIES}")


def is_tiered(path: StrPath) -> bool:
    """Whether the broker of a partition's log directory has remote storage, which may have older records."""
    return is_there(f"{locate(path).directory}/{layout.REMOTE_INDEXES}")


class KeptOptions(NamedTuple):
    """The saved options of a partition, in Kafka's notation, and whether a store saved them."""

    options: dict[str, str]
    of_store: bool


def kept_options(path: StrPath) -> KeptOptions:
    """The saved options of a partition: those of its topic, if a store's table has the topic, else those in
    the partition. CorruptCheckpointError, OSError."""
    place = locate(path)
    if not place.is_alone:
        known = read_manifest(place.directory).table.topics.get(place.name.topic)
        if known is not None:
            return KeptOptions(dict(known.options), True)
    return KeptOptions(dict(read_manifest(path).options), False)


class Complaint(NamedTuple):
    """A checkpoint file that could not be read, and whether the start of the log is therefore unknown."""

    file: str
    text: str
    hides_start: bool = False


class State(NamedTuple):
    """The state of a partition in checkpoints and clean marker."""

    clean: bool
    recovery_point: int
    log_start_offset: int
    complaints: tuple[Complaint, ...]
    by_broker: bool = False  # whether a Kafka broker closed it
    # whether the checkpoints are in the partition, which was moved into a log directory since
    by_itself: bool = False


class Checkpoint(NamedTuple):
    """The offsets of a checkpoint file, and its damage in words, or "". The sound lines of a damaged file are
    used. An emptied log-start-offset-checkpoint is damaged, too."""

    offsets: Mapping[TopicPartition, int]
    damage: str = ""


def read_checkpoint(path: str) -> Checkpoint:
    """Read one of the checkpoint files of a directory. OSError if it cannot be read."""
    offsets, error = (
        _look_into_cleaner_offsets(path)
        if path.endswith(layout.CLEANER_OFFSETS)
        else checkpoints.look_into(path)
    )
    if error is not None:
        return Checkpoint(offsets, f"damaged: {error}")
    if not offsets and path.endswith(layout.LOG_STARTS) and _is_emptied(path):
        return Checkpoint(offsets, "it was emptied: no offset is in it")
    return Checkpoint(offsets)


def read_state(path: StrPath, read: Callable[[str], Checkpoint] = read_checkpoint) -> State:
    """Read the state of a partition from marker and checkpoints. read: reads a checkpoint file. OSError."""
    place = locate(path)
    if place.name.topic == layout.CLUSTER_METADATA:  # Raft loads it, and uses no marker
        return State(False, 0, 0, ())
    complaints: list[Complaint] = []
    cleaner = f"{place.directory}/{layout.CLEANER_OFFSETS}"
    if damage := read(cleaner).damage:  # retention deletes nothing by age or size then
        text = f"which topics were compacted is not known: {damage}"
        complaints.append(Complaint(cleaner, text))
    log_start_offset = _log_start_of(place, complaints, read)
    by_itself = False
    if not place.is_alone and is_there(f"{place.path}/{layout.RECOVERY_POINTS}"):
        # The partition was moved into a log directory. Its own checkpoints apply until those of the log
        # directory have a line for it, which any writer there adds, a broker too.
        known = read(f"{place.directory}/{layout.RECOVERY_POINTS}")
        by_itself = not known.damage and place.name not in known.offsets
    own = place._replace(directory=place.path) if by_itself else place
    recovery_point = _offset_in(layout.RECOVERY_POINTS, own, complaints, read)
    marker = f"{own.directory}/{layout.CLEAN_SHUTDOWN}"
    clean = is_there(marker)
    by_broker = clean and not by_itself and is_a_brokers(marker)
    return State(clean, recovery_point, log_start_offset, tuple(complaints), by_broker, by_itself)


def read_log_start(path: StrPath, read: Callable[[str], Checkpoint] = read_checkpoint) -> int:
    """Read only the log start offset of read_state. OSError."""
    place = locate(path)
    return 0 if place.name.topic == layout.CLUSTER_METADATA else _log_start_of(place, [], read)


def _log_start_of(place: Location, complaints: list[Complaint], read: Callable[[str], Checkpoint]) -> int:
    offset = _offset_in(layout.LOG_STARTS, place, complaints, read)
    if not place.is_alone and is_there(f"{place.path}/{layout.LOG_STARTS}"):
        # it was moved here with checkpoints of its own
        own = place._replace(directory=place.path)
        offset = max(offset, _offset_in(layout.LOG_STARTS, own, complaints, read))
    return offset


def _offset_in(
    file: str, place: Location, complaints: list[Complaint], read: Callable[[str], Checkpoint]
) -> int:
    """The offset of a partition in a checkpoint file, or 0."""
    path, name = f"{place.directory}/{file}", place.name
    offsets, damage = read(path)
    if place.is_alone and name not in offsets and len(offsets) == 1:  # the directory may have been renamed
        name = next(iter(offsets))
    if damage:
        counts = f"the offset of {name} in it, {offsets.get(name)}, counts"
        what = counts if name in offsets else f"nothing is known of {name}"
        hides_start = name not in offsets and file == layout.LOG_STARTS
        complaints.append(Complaint(path, f"{what}: {damage}", hides_start))
    return offsets.get(name, 0)


def read_cleaner_offset(path: StrPath) -> int | None:
    """The end of the compacted part of a partition, or None. The sound lines of a damaged file are used.
    OSError."""
    place = locate(path)
    offsets, _ = checkpoints.look_into(f"{place.directory}/{layout.CLEANER_OFFSETS}")
    if place.is_alone and len(offsets) == 1:
        return next(iter(offsets.values()))  # the directory may have been renamed
    return offsets.get(place.name)


def is_known_compacted(path: StrPath) -> bool:
    """Whether a partition is known to be compacted: the cleaner's checkpoint names a partition of its topic,
    or it is a compacted topic of Kafka's own. CorruptCheckpointError if that file is damaged, or was replaced
    after damage, and no sound line names the topic. OSError."""
    place = locate(path)
    directory, topic = place.directory, place.name.topic
    if topic in layout.KAFKAS_COMPACTED or read_cleaner_offset(path) is not None:
        return True
    offsets, damage = _look_into_cleaner_offsets(f"{directory}/{layout.CLEANER_OFFSETS}")
    if any(tp.topic == topic for tp in offsets):
        return True
    kept = f"{directory}/{layout.CLEANER_OFFSETS}{layout.CUT}"
    if damage is None and is_there(kept):  # a compaction has replaced the damaged file
        _, damage = checkpoints.look_into(kept)
        damage = damage or _error_of_emptied(kept)
    if damage is not None:  # a copy, because the cached one would keep the frames alive
        raise CorruptCheckpointError(
            damage.reason,
            file=damage.file,
            position=damage.position,
            expected=damage.expected,
            found=damage.found,
        )
    return False


def _look_into_cleaner_offsets(
    path: str,
) -> tuple[Mapping[TopicPartition, int], CorruptCheckpointError | None]:
    """Read a cleaner's checkpoint, and its damage or None. An empty file is damaged, unless it is a broker's:
    a broker creates it empty and fills it at the first compaction. OSError."""
    offsets, damage = checkpoints.look_into(path)
    beside = f"{os.path.dirname(path)}/{layout.META_PROPERTIES}"
    if not offsets and _is_empty(path) and not is_there(beside):
        damage = _error_of_emptied(path)
    return offsets, damage


def _error_of_emptied(path: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "checkpoint file", file=path, position=1, expected="version 0", found="an empty file"
    )


def is_a_brokers(marker: str) -> bool:
    """Whether a broker wrote a clean marker: it contains an epoch, and kstore's contains -1 (spec 1.7)."""
    try:
        content = read_whole(marker)
        if content == layout.OWN_CLEAN_SHUTDOWN:
            return False
        import json

        return int(json.loads(content)["brokerEpoch"]) >= 0
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False


def _is_emptied(path: str) -> bool:
    """Whether a checkpoint file has lost its content. A broker creates it empty and fills it before a clean
    shutdown; kstore never creates an empty one."""
    directory = os.path.dirname(path)
    return _is_empty(path) and (
        is_there(f"{directory}/{layout.CLEAN_SHUTDOWN}")
        or not is_there(f"{directory}/{layout.META_PROPERTIES}")
    )


def _is_empty(path: str) -> bool:
    try:
        return os.stat(path).st_size == 0
    except OSError:
        return False


def keep_damaged(directory: StrPath) -> list[str]:
    """Copy damaged checkpoints that cannot be rebuilt to .cut files, before a write replaces them.

    The lost lines may be of partitions that are not open. Returns a sentence if log start offsets are lost.
    The caller has locked the directory and not yet removed the clean marker, which shows that an empty file
    of a broker is damaged. OSError.
    """
    losses = []
    for name in layout.IRREPLACEABLE:
        path = f"{directory}/{name}"
        damage = read_checkpoint(path).damage
        if damage:
            kept = _keep(path)
            if name == layout.LOG_STARTS:
                losses.append(
                    f"{path}: {damage}. Deleted records may be readable again, of partitions whose lines are "
                    f"lost; a copy is kept in {kept}"
                )
    return losses


def _keep(path: str) -> str:
    """Copy a file, unless an equal copy exists, and return the name of the copy. OSError."""
    content, kept, number = read_whole(path), path + layout.CUT, 1
    while is_there(kept):
        if read_whole(kept) == content:
            return kept
        number += 1
        kept = f"{path}.{number}{layout.CUT}"
    write_whole(kept, content)
    return kept


def kept_checkpoints(directory: StrPath) -> list[str]:
    """The copies of damaged checkpoints in a directory; none in a file. OSError."""
    if not os.path.isdir(directory):
        return []
    return sorted(f"{directory}/{name}" for name in os.listdir(directory) if is_kept_checkpoint(name))


def is_kept_checkpoint(name: str) -> bool:
    """Whether it is the name of a copy of a damaged checkpoint."""
    return name.endswith(layout.CUT) and name.startswith(tuple(f"{file}." for file in layout.IRREPLACEABLE))


def remove_drafts(directory: StrPath) -> None:
    """Remove unfinished checkpoint files that a crash has left. The caller has locked the directory.
    OSError."""
    for name in (*layout.CHECKPOINTS, layout.MANIFEST):
        draft = f"{directory}/{name}{layout.DRAFT}"
        if os.path.isfile(draft):
            unlink(draft, missing_ok=True)
