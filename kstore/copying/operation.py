"""kstore.copy: a partition, a topic, a store or a broker's log directory, copied into a new directory."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from kstore.arguments import (
    ON_ERROR,
    boolean,
    checked_url,
    choice,
    instances,
    integer,
    is_url,
    moment,
    path_text,
)
from kstore.copying.destination import Destination
from kstore.copying.earlier_copy import KeptEarlierError
from kstore.copying.partition_copy import copy_partition, earlier_checkpoints, write_checkpoints
from kstore.copying.wanted import Wanted
from kstore.engine.io.directory import new_draft, rename, write_whole
from kstore.engine.io.file import File, read_whole
from kstore.engine.record.batch import CODECS
from kstore.errors import CorruptCheckpointError, CorruptFileError, LogChangedError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.log_dir_state import locate, read_checkpoint
from kstore.log.files.manifest import read_manifest, write_manifest
from kstore.log.files.topic_table import TopicTable
from kstore.log.read.progress import check_progress
from kstore.log.recovery.presence import require_partition
from kstore.remote.tiered_log import RemotePart
from kstore.remote.urls import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from os import PathLike
    from typing import Any, Literal

    from kstore.copying.wanted import Checkpoints, PartitionCopy
    from kstore.log.files.layout import TopicPartition
    from kstore.log.files.manifest import Manifest
    from kstore.log.read.progress import ProgressCallback

_NOT_COPIED = (
    *layout.CHECKPOINTS,
    layout.HIGH_WATERMARKS,
    layout.LOCK,
    layout.SHARED,
    layout.SHARED_DIRECTORY,
)
# the files from which a copy takes over offsets, and what it lacks without one
_LACKS = {
    layout.RECOVERY_POINTS: "Records that were lost at the end of a partition are not reported",
    layout.LOG_STARTS: "Deleted records may be in the copy",
    layout.CLEANER_OFFSETS: "The copy does not have how far partitions are compacted",
    layout.HIGH_WATERMARKS: "Committed records that were lost are not reported",
}
_POSITIONS = "kstore-cursors-"  # files with positions of groups, and of their locks


class CopyReport(NamedTuple):
    """The result of kstore.copy().

    `source` and `destination` are directories, `manifest` is the file with the checksums. `partitions` maps
    the name of each copied partition to a PartitionCopy: its first offset and its end, the bytes that this
    run and earlier ones have copied, and its gaps. `left_out` maps directories of the source that were not
    copied, and files of a log directory, to the reason. `is_complete` is False if the copy has gaps, or if a
    partition or a file was left out; directories that Kafka has set aside do not count.
    """

    source: Path
    destination: Path
    manifest: Path
    partitions: dict[str, PartitionCopy]
    left_out: dict[str, str]
    is_complete: bool

    @property
    def copied_bytes(self) -> int:
        """Bytes of segments that this run has copied."""
        return sum(each.copied_bytes for each in self.partitions.values())

    @property
    def reused_bytes(self) -> int:
        """Bytes of segments that earlier runs had copied."""
        return sum(each.reused_bytes for each in self.partitions.values())

    @property
    def gaps(self) -> list[str]:
        """What is missing in the copy, as sentences."""
        return [gap for each in self.partitions.values() for gap in each.gaps]


def copy(
    source: str | PathLike[str],
    destination: str | PathLike[str],
    *,
    topic: str | Iterable[str] | None = None,
    start: int | None = None,
    stop: int | None = None,
    since: int | datetime | None = None,
    until: int | datetime | None = None,
    renumber: bool = False,
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    remote: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: ProgressCallback | None = None,
) -> CopyReport:
    """Copy a partition, a store or a broker's log directory into a new directory, and return a CopyReport.

    source: the directory of a partition, or a log directory of a store or a broker, or its URL. It may be
        written meanwhile: the copy of each partition is that of one moment.
    destination: a directory that does not exist, is empty, or is an earlier copy that was not changed since.
        Its sealed segments are then not copied again. FileExistsError if it has a partition that this run
        does not copy.
    topic: copies only this topic of a log directory, or these topics.
    start, stop: the first offset, and the offset to stop before, of each partition. Records of the same batch
        before `start` are in the copy, below its log start offset.
    since, until: the range by time, in ms since 1970 or as a datetime with a time zone: from the first record
        with this timestamp or a later one.
    renumber: True copies only committed records, without transactions, producers and positions, and gives
        them offsets from 0 on.
    compression: the codec to encode all batches with.
    on_error: "skip" leaves out damaged batches, and partitions and files that cannot be opened; the report
        has them, and the records that the source has lost. Without log-start-offset-checkpoint, deleted
        records may be in the copy.
    remote: the URL to which kstore.ship() has uploaded the source: segments that the source no longer has are
        copied from there.
    storage_options: a mapping of fsspec's options.
    progress: called as progress(done, total), in bytes.

    The copy has equal offsets, timestamps, leader epochs, log start offsets, topic ids, options, transactions
    and producers. The copy of a log directory has the positions of its groups, too. It is closed cleanly:
    kstore or a broker opens it without recovery. The file kstore-copy.jsonl in it has the size and the
    SHA-256 of each file.

    If the source has lost records that an earlier copy has, or has another topic of the name, that copy of
    the partition is kept, and `left_out` says so; FileExistsError if the partition is copied by itself.

    The copy is made in DESTINATION.copying and renamed at the end; the next run continues an interrupted one.

    Raises:
        FileExistsError: the destination is something else, was changed, has other partitions, or records that
            a partition has lost.
        LogNotFoundError: the source does not exist.
        CorruptFileError: a file of the source is damaged, or records are lost.
        LogChangedError: a partition changes too quickly.
        OSError: a file cannot be read or written, or the disk has too little space, which is checked first.
    """
    is_local = remote is not None and not is_url(path_text("source", source))
    place = os.path.abspath(readable(source, None if is_local else storage_options, name="source"))
    final = os.path.abspath(path_text("destination", destination))
    choice("on_error", on_error, ON_ERROR)
    wanted = Wanted(
        None if start is None else integer("start", start),
        None if stop is None else integer("stop", stop),
        None if since is None else moment("since", since),
        None if until is None else moment("until", until),
        on_error,
        "" if compression is None else choice("compression", compression, CODECS),
        boolean("renumber", renumber),
    )
    topics = (
        None if topic is None else {topic} if isinstance(topic, str) else set(instances("topic", topic, str))
    )
    if progress is not None:
        check_progress(progress)
    if os.path.commonpath([os.path.realpath(place), os.path.realpath(final)]) in map(
        os.path.realpath, (place, final)
    ):
        raise ValueError(f"source {place} and destination {final} must not be inside each other")
    if not locate(final).is_alone:
        raise ValueError(
            f"{final} is a partition in a log directory, which has files about all its partitions: "
            "kstore.adopt() adds partitions to a stopped broker"
        )
    if os.path.islink(final):
        if not os.path.exists(final):
            raise FileExistsError(errno.EEXIST, "is a symbolic link to nowhere: choose another place", final)
        final = os.path.realpath(final)
    work = Destination(final, place, progress)
    one = _is_partition(place)
    if remote is not None:
        url = checked_url("remote", remote)
        wanted = wanted._replace(
            remote=lambda path: RemotePart(url if one else f"{url}/{os.path.basename(path)}", storage_options)
        )
    # A store has a table of topics, a broker has its metadata; a partition by itself has neither.
    is_brokers = os.path.exists(f"{place}/{layout.META_PROPERTIES}")
    wanted = wanted._replace(saves_options=one or (topics is not None and is_brokers))
    if one and topics is not None:
        raise ValueError(f"topic needs a log directory, and {place} is a partition")
    try:
        unread = _unread_checkpoints(locate(place).directory, work, wanted)
        wanted = wanted._replace(unread=frozenset(unread))
        if one:
            work.begin({""})
            work.plan(_size_of(place))
            copied, known = copy_partition(place, "", work, wanted)
            write_checkpoints(work.path, {locate(final).name: known})
            partitions, left_out, lost = {os.path.basename(place): copied}, dict[str, str](), dict[str, str]()
            work.finish({""})
        else:
            partitions, left_out, lost = _copy_directory(place, topics, work, wanted)
        lost |= unread
    finally:
        work.release()
    is_complete = not lost and not any(each.gaps for each in partitions.values())
    return CopyReport(Path(place), Path(final), Path(work.manifest), partitions, left_out | lost, is_complete)


def _is_partition(place: str) -> bool:
    """Whether a directory is a partition, not a log directory. LogNotFoundError if it is neither."""
    if not os.path.isdir(place):
        raise LogNotFoundError(f"no directory at {place}")
    names = os.listdir(place)
    if any(layout.parse_file(name) for name in names) or layout.LEADER_EPOCHS in names:
        return True
    marks = (layout.MANIFEST, layout.META_PROPERTIES)
    try:
        require_partition(place)
    except LogNotFoundError as e:
        if not e.is_log_directory and not any(mark in names for mark in marks):
            raise
        return False
    # a store without topics may have the small files of a partition by itself, and no others
    return not any(mark in names for mark in (*marks, layout.CLEAN_SHUTDOWN, layout.RECOVERY_POINTS))


def _copy_directory(
    place: str, topics: set[str] | None, work: Destination, wanted: Wanted
) -> tuple[dict[str, PartitionCopy], dict[str, str], dict[str, str]]:
    """The copied partitions, and what was left out: what no copy has, and what should be in it."""
    names = sorted(name for name in os.listdir(place) if os.path.isdir(f"{place}/{name}"))
    found = [tp for tp in map(layout.partition_named, names) if tp is not None]
    others = [name for name in names if not layout.is_partition_name(name)]
    if topics is not None:
        found, others = [tp for tp in found if tp.topic in topics], []
        if missing := sorted(topics - {tp.topic for tp in found}):
            raise LogNotFoundError(f"no partition of topic {missing[0]!r} in {place}")
    # KRaft's metadata last: a topic of a later moment than the partitions has empty ones, and none is a stray
    found.sort(key=lambda tp: (tp.topic == layout.CLUSTER_METADATA, tp))
    absent = _absent(place, topics)
    work.begin({*map(str, found), *absent})
    total = sum(_size_of(f"{place}/{tp}") for tp in found)
    work.plan(total)
    if not wanted.is_bounded:
        work.expect(total)
    work.clear("", {})
    # Positions first: none may be beyond the end of its partition.
    lost = _copy_files(place, topics, work, wanted)
    copied: dict[str, PartitionCopy] = {}
    known: dict[TopicPartition, Checkpoints] = {}
    left_out: dict[str, str] = {}
    for name in others:
        if layout.is_set_aside(name):
            left_out[name] = f"Kafka has set it aside (-{name.rpartition('-')[2]})"
        elif _has_log(f"{place}/{name}"):
            lost[name] = "its name is not that of a partition of Kafka, such as orders-0: copy it by itself"
        else:
            left_out[name] = "it is not a partition"
    for tp in found:
        try:
            copied[str(tp)], offsets = copy_partition(f"{place}/{tp}", str(tp), work, wanted)
            if tp.topic != layout.CLUSTER_METADATA:
                known[tp] = offsets
        except LogNotFoundError:  # deleted meanwhile
            continue
        except KeptEarlierError as e:
            lost[str(tp)] = f"the earlier copy {e.strerror}"
        except (CorruptFileError, OSError) as e:
            if os.path.lexists(f"{place}/{tp}") or not os.path.isdir(place):
                lost[str(tp)] = _skipped(e, work, wanted)
    lost |= absent
    kept = {name for name in lost if work.earlier(name)}
    for name in sorted(kept):
        work.keep(name)
        partition = layout.partition_named(name)
        if partition is not None and partition.topic != layout.CLUSTER_METADATA:
            known[partition] = earlier_checkpoints(work.final, partition)
    write_checkpoints(work.path, known)
    work.finish({*copied, *kept})
    return copied, left_out, lost


def _skipped(error: CorruptFileError | OSError, work: Destination, wanted: Wanted) -> str:
    """The reason why a part of the source is left out. Raises the error if errors are not skipped, or if it
    is not about a file of the source."""
    file = getattr(error, "file", None) or getattr(error, "filename", None)
    is_changing = isinstance(error, LogChangedError)
    if wanted.on_error != "skip" or not file or is_changing or work.has(file):
        raise error
    return str(error)


def _unread_checkpoints(directory: str, work: Destination, wanted: Wanted) -> dict[str, str]:
    """The checkpoint files of the source that cannot be used, with the reason. Only their damage would be
    copied: a copy has checkpoints of its own."""
    unread = {}
    for name, lacks in _LACKS.items():
        file = f"{directory}/{name}"
        try:
            if damage := read_checkpoint(file).damage:
                raise CorruptCheckpointError(damage.removeprefix(f"damaged: {file}: "), file=file)
        except (CorruptFileError, OSError) as e:
            unread[name] = f"{_skipped(e, work, wanted)}. {lacks}"
    return unread


def _absent(place: str, topics: set[str] | None) -> dict[str, str]:
    """Partitions that are not in a log directory although they have been there, with what tells it. A store
    may have others in other directories."""
    names = os.listdir(place)
    found = {
        name: "it is a link that leads nowhere"
        for name in names
        if layout.is_partition_name(name)
        and os.path.islink(path := f"{place}/{name}")
        and not os.path.exists(path)
    }
    lines: set[TopicPartition] = set()
    for file in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
        with contextlib.suppress(OSError):  # reported already
            lines |= read_checkpoint(f"{place}/{file}").offsets.keys()
    aside = {layout.parse_directory(name) for name in names if layout.is_set_aside(name)}
    try:
        table = read_manifest(place).table
    except (CorruptFileError, OSError):  # reported already
        table = TopicTable()
    for tp in sorted(lines.difference(aside)):
        known = table.topics.get(tp.topic)
        is_gone = bool(table.number) and (known is None or tp.partition >= known.count)
        if is_gone or (table.change is not None and table.change.concerns(tp)):
            continue
        if not os.path.isdir(f"{place}/{tp}") and tp.topic != layout.CLUSTER_METADATA:
            found.setdefault(str(tp), f"the checkpoints of {place} have it, and it is not there")
    return {name: why for name, why in found.items() if topics is None or name.rpartition("-")[0] in topics}


def _has_log(directory: str) -> bool:
    try:
        return any(layout.segment_offset(name) is not None for name in os.listdir(directory))
    except OSError:  # such as lost+found
        return False


def _size_of(partition: str) -> int:
    """The bytes of the segments of a partition now; 0 if it cannot be read. Others may remove some."""
    size = 0
    with contextlib.suppress(OSError), os.scandir(partition) as entries:
        for entry in entries:
            if entry.name.endswith(".log"):
                with contextlib.suppress(FileNotFoundError):
                    size += entry.stat().st_size
    return size


def _copy_files(place: str, topics: set[str] | None, work: Destination, wanted: Wanted) -> dict[str, str]:
    """Copies the files of a log directory: positions of groups, the table of topics, a broker's identity.
    Returns what was left out."""
    lost = {}
    for name in sorted(os.listdir(place)):
        path = f"{place}/{name}"
        is_position = name.startswith(_POSITIONS)
        if name in _NOT_COPIED or name.endswith((layout.DRAFT, layout.CUT)) or not os.path.isfile(path):
            continue
        if is_position and (wanted.renumber or not name.endswith(".positions")):
            continue
        try:
            if name == layout.MANIFEST:
                write_manifest(work.path, _manifest_of(place, topics))
            elif is_position:
                write_whole(f"{work.path}/{name}", read_whole(path))
            elif topics is None:
                file = File(path)
                draft = new_draft(f"{work.path}/{name}{layout.DRAFT}", path)
                draft.begin_as(file, file.size())
                draft.sync()
                rename(draft.path, f"{work.path}/{name}")
        except (CorruptFileError, OSError) as e:
            lost[name] = _skipped(e, work, wanted)
            if work.keep_file(name):
                lost[name] += ". The earlier copy of it was kept"
    return lost


def _manifest_of(place: str, topics: set[str] | None) -> Manifest:
    """The manifest of a log directory with only these topics, or all. CorruptFileError, OSError."""
    manifest = read_manifest(place)
    if topics is None:
        return manifest
    table = manifest.table
    kept = {name: known for name, known in table.topics.items() if name in topics}
    return manifest._replace(table=TopicTable(table.number, kept))
