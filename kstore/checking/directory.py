"""The check of log directories: what is in them beside the partitions."""

from __future__ import annotations

import os
import stat
from collections import Counter

from kstore.checking.codes import found, why
from kstore.engine.io.sources import directory_around
from kstore.errors import CorruptCheckpointError, KstoreError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.cursors.group_file import groups_in, path_of, unread_bytes
from kstore.log.files import checkpoints, layout
from kstore.log.files.log_dir_state import kept_checkpoints, read_checkpoint
from kstore.log.files.manifest import read_manifest
from kstore.log.recovery.presence import is_partition
from kstore.properties import read_properties

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kstore.checking.assigned import Assigned
    from kstore.checking.finding import Finding
    from kstore.log.files.layout import TopicPartition

_OFFSET_FILES = (
    layout.RECOVERY_POINTS,
    layout.LOG_STARTS,
    layout.HIGH_WATERMARKS,
    layout.CLEANER_OFFSETS,
)
_NO_OFFSETS = b"0\n0\n"
COMPLETE = (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS)  # have every partition after a clean stop
_FARTHEST = 1 << 60  # no log has ever had such an offset, so no record is lost
_LEAST_FREE = 64 << 20  # bytes: less hardly takes a new segment
_ENDINGS = {
    "-delete": ("deleted_partition", "note"),
    "-future": ("future_partition", "note"),
    "-stray": ("stray_partition", ""),
}


class LogDirectoryNames(NamedTuple):
    """The names in a log directory. `partitions`: directories that a broker or a store reads; `set_aside`:
    partitions under a name with a suffix; `others`: other directories, of which `logs` have files of a
    partition; `links`: links to nowhere."""

    path: str
    partitions: tuple[TopicPartition, ...]
    set_aside: tuple[str, ...]
    others: tuple[str, ...]
    links: tuple[str, ...]
    is_a_brokers: bool
    logs: tuple[str, ...]


def read_names(path: str) -> LogDirectoryNames:
    """List a log directory. OSError."""
    partitions, set_aside, others, links = [], [], [], []
    with os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            name = entry.name
            if entry.is_symlink() and not os.path.exists(entry.path):
                links.append(name)
            elif entry.is_dir() and name != layout.REMOTE_INDEXES:
                tp = layout.partition_named(name)
                if tp is not None:
                    partitions.append(tp)
                elif name.endswith(tuple(_ENDINGS)) and layout.parse_directory(name) is not None:
                    set_aside.append(name)
                else:
                    others.append(name)
    broker = os.path.exists(f"{path}/{layout.META_PROPERTIES}")
    logs = tuple(name for name in others if _is_log(f"{path}/{name}"))
    return LogDirectoryNames(
        path, tuple(partitions), tuple(set_aside), tuple(others), tuple(links), broker, logs
    )


def _is_log(path: str) -> bool:
    try:
        return is_partition(path)
    except OSError:
        return False


def check_names(directories: Sequence[LogDirectoryNames]) -> Iterator[Finding]:
    """The findings about the names in log directories of one store or broker."""
    places = Counter(tp for each in directories for tp in each.partitions)
    for each in directories:
        for tp in each.partitions:
            if places[tp] > 1:
                text = f"{tp} is in {places[tp]} log directories"
                yield found("duplicate_partition", f"{each.path}/{tp}", text)
        for name in each.set_aside:
            code, severity = _ENDINGS[name[name.rindex("-") :]]
            yield found(code, f"{each.path}/{name}", severity=severity)
        for name in each.others:
            if name in each.logs:
                text = "it has a log, and its name is not one that Kafka or a store takes for a partition"
                severity = "" if each.is_a_brokers else "suspicious"
            elif each.is_a_brokers:
                severity, text = "", ""
            else:
                severity, text = "note", "its name is not that of a partition"
            yield found("foreign_directory", f"{each.path}/{name}", text, severity=severity)
        for name in each.links:
            if layout.is_partition_name(name):
                yield found("dangling_link", f"{each.path}/{name}")


def check_files(names: LogDirectoryNames) -> Iterator[Finding]:
    """The findings about the files of a log directory."""
    path = names.path
    for name in _OFFSET_FILES:
        file = f"{path}/{name}"
        if not os.path.lexists(file):
            continue
        try:
            damage = read_checkpoint(file).damage
        except OSError as e:
            yield found("unreadable_file", file, str(e))
            continue
        if damage:
            code = "log_start_unknown" if name == layout.LOG_STARTS else "checkpoint_damaged"
            stops = stops_kafka(file)
            yield found(code, file, damage.replace(f"{file}: ", ""), stops_kafka=stops)
    for file in kept_checkpoints(path):
        yield found("checkpoint_kept", file)
    yield from check_manifest(path)
    yield from check_positions(path)
    if names.is_a_brokers:
        yield from _check_meta(f"{path}/{layout.META_PROPERTIES}")
    space = os.statvfs(path)
    free = space.f_bavail * space.f_frsize
    if free < _LEAST_FREE:
        yield found("disk_full", path, f"the file system has {free} bytes left")


def stops_kafka(file: str) -> bool:
    """Whether Kafka takes the log directory out of use because of a damaged checkpoint file. An empty file
    has no offsets, and a number that it cannot parse makes it forget all of them."""
    _, error = checkpoints.look_into(file)
    if error is None:
        return False
    words = str(error.found).split()
    return not (error.expected == "TOPIC PARTITION OFFSET" and len(words) == 3)


def check_checkpoints(
    names: LogDirectoryNames, ends: Mapping[TopicPartition, tuple[int, int]], assigned: Assigned
) -> Iterator[Finding]:
    """The findings about the offsets in the checkpoints of a log directory, by the bounds of its
    partitions."""
    path = names.path
    is_clean = os.path.exists(f"{path}/{layout.CLEAN_SHUTDOWN}")
    here = {tp: ends[tp] for tp in names.partitions if tp in ends and tp.topic != layout.CLUSTER_METADATA}
    filled = {tp for tp, (start, end) in here.items() if end > start}
    if filled and not is_clean:
        yield found("not_closed", path)
    for name in _OFFSET_FILES:
        file = f"{path}/{name}"
        try:
            offsets, damage = read_checkpoint(file)
            size = os.stat(file).st_size
        except FileNotFoundError:
            offsets, damage, size = {}, "", -1
        except OSError:  # a finding already
            continue
        if damage:
            continue
        if size > 0 and not offsets and size != len(_NO_OFFSETS):
            yield found("checkpoint_damaged", file, "no offset is in it: it was cut off", stops_kafka=False)
            continue
        if is_clean and name in COMPLETE:
            lacking = sorted(filled.difference(offsets))
            # a directory that shows a remote one has none, because it ends where its files end
            is_needed = name == layout.RECOVERY_POINTS and directory_around(path) is None
            if lacking and (size >= 0 or is_needed):
                text = f"it has no offset of {lacking[0]}" + (
                    f" and {len(lacking) - 1} more" * (len(lacking) > 1)
                )
                yield found("checkpoint_lacks", file, text)
        for tp, offset in offsets.items():
            is_beyond = tp in here and offset > here[tp][1]
            if is_beyond and name == layout.HIGH_WATERMARKS and offset < _FARTHEST:
                text = f"the high watermark is {offset}; the log ends at {here[tp][1]}"
                yield found("committed_is_lost", f"{path}/{tp}", text, offsets=(here[tp][1], offset - 1))
            elif is_beyond and name in (layout.HIGH_WATERMARKS, layout.CLEANER_OFFSETS):
                text = f"the offset of {tp} in it is {offset}; the log ends at {here[tp][1]}"
                yield found("checkpoint_beyond_end", file, text)
            elif tp not in names.partitions:
                text = f"it has an offset of {tp}, which is not in {path}"
                severity = "note" if assigned.is_removed(tp) else ""
                yield found("checkpoint_of_none", file, text, severity=severity)


def _check_meta(file: str) -> Iterator[Finding]:
    try:
        meta = read_properties(file)
    except (OSError, ValueError, KstoreError) as e:
        yield found("meta_properties_damaged", file, str(e))
        return
    if meta.get("version") not in ("0", "1"):
        yield found("meta_properties_damaged", file, f"its version is {meta.get('version')!r}, not 1")
    elif meta["version"] == "1" and not ("cluster.id" in meta and meta.get("node.id", "").isdecimal()):
        yield found("meta_properties_damaged", file, "it has no cluster.id or no node.id")


def check_manifest(directory: str) -> Iterator[Finding]:
    """The findings about kstore.json in a directory."""
    try:
        read_manifest(directory)
    except (KstoreError, OSError) as e:
        yield found("manifest_damaged", f"{directory}/{layout.MANIFEST}", why(e))


def check_positions(directory: str) -> Iterator[Finding]:
    """The findings about files of positions in a directory that cannot be read."""
    for group in groups_in(directory):
        try:
            if size := unread_bytes(directory, group):
                text = f"{size} bytes at the end of the positions of group {group!r} hold no whole commit"
                yield found("positions_damaged", path_of(directory, group), text, severity="suspicious")
        except (KstoreError, OSError) as e:
            file = getattr(e, "file", "") or directory
            text = f"the positions of group {group!r} cannot be read: {why(e)}"
            yield found("positions_damaged", file, text, position=getattr(e, "position", -1))


def check_partition_files(path: str) -> Iterator[Finding]:
    """The findings about the small files of a partition, and about their owners."""
    file = f"{path}/{layout.METADATA}"
    if os.path.lexists(file):
        try:
            checkpoints.read_topic_id(file)
        except CorruptCheckpointError as e:
            yield found("topic_id_damaged", file, why(e))
        except OSError as e:
            yield found("unreadable_file", file, str(e))
    yield from check_manifest(path)
    yield from check_positions(path)
    owner = os.stat(path).st_uid
    foreign = []
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # the writer has removed it
                continue
            if stat.S_ISREG(status.st_mode) and status.st_uid != owner and not status.st_mode & 0o022:
                foreign.append(entry.name)
    if foreign:
        text = f"{len(foreign)} files belong to another user than the directory, {min(foreign)} among them"
        yield found("foreign_owner", path, text)


def check_table(paths: Sequence[str]) -> Iterator[Finding]:
    """The findings about partitions that the table of topics has, and that are in none of the directories."""
    from kstore.store import LogStore  # imported here: it imports all of a store

    if all(list(check_manifest(path)) for path in paths):
        return  # no table is sound: these are findings already, and a store would warn
    try:
        health = LogStore(*paths).health()
    except (KstoreError, OSError) as e:
        if not isinstance(e, LogNotFoundError):
            yield found("manifest_damaged", f"{paths[0]}/{layout.MANIFEST}", why(e))
        return
    for tp in health.missing:
        text = "the table of topics has the partition, and it is in no log directory that was given"
        yield found("partition_missing", f"{paths[0]}/{tp}", text)
    if health.unfinished:
        yield found("change_unfinished", f"{paths[0]}/{layout.MANIFEST}", str(health.unfinished))
