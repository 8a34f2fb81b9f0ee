"""Positions of groups in a broker's topic __consumer_offsets: import and export."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from kstore.arguments import boolean, integer, path_text
from kstore.config import LogConfig
from kstore.engine.record.batch import control_type
from kstore.errors import CorruptCheckpointError, CorruptRecordError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.cursors.arguments import checked_group, is_group
from kstore.log.cursors.expiry import expire
from kstore.log.cursors.group_file import GroupFile, groups_in, read_positions
from kstore.log.cursors.home import Home
from kstore.log.cursors.member_lock import MemberLock
from kstore.log.cursors.offset_commits import (
    MAX_METADATA_BYTES,
    Commit,
    OffsetAndMetadata,
    encode_key,
    encode_value,
    lag_behind,
)
from kstore.log.files import layout
from kstore.log.files.checkpoints import read_topic_id
from kstore.log.files.layout import TopicPartition
from kstore.log.partition import PartitionLog
from kstore.log.writer import LogWriter
from kstore.messages.reader import Reader
from kstore.properties import read_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike
    from typing import Any

    from kstore.engine.record.batch import Record, RecordBatch
    from kstore.log.cursors.group_file import Changes, Entries
    from kstore.messages.schema import Table
    from kstore.store.topic_catalog import TopicCatalog

TOPIC = "__consumer_offsets"
PARTITIONS = 50  # Kafka's offsets.topic.num.partitions
_CONFIG = LogConfig(cleanup_policy="compact", retention_ms=-1)


class CursorTransfer(NamedTuple):
    """Positions that were imported from a broker's __consumer_offsets, or exported to it.

    `positions` has them by group and partition; `left_out` maps (group, topic, partition) to the reason why a
    position was left out. `unreadable` lists the records of __consumer_offsets whose group or partition
    cannot be read.
    """

    positions: dict[str, dict[TopicPartition, OffsetAndMetadata]]
    left_out: dict[tuple[str, str, int], str]
    unreadable: tuple[str, ...] = ()


# ---- records of a broker -----------------------------------------------------------------------------------


class _Committed:
    """What groups have committed, and what cannot be read of that: the last record of a key, or a key."""

    def __init__(self) -> None:
        self.positions: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self.damaged: dict[tuple[str, TopicPartition], CorruptRecordError] = {}
        self.unreadable: list[CorruptRecordError] = []


def commit_of(record: Record, file: str = "") -> tuple[str, TopicPartition, OffsetAndMetadata | None] | None:
    """The group, the partition and the position in a record of __consumer_offsets; no position, if it was
    removed. None for a record that is no commit. CorruptRecordError."""
    key = _key_in(record, file)
    return None if key is None else (*key, _position_in(record, file))


def _key_in(record: Record, file: str) -> tuple[str, TopicPartition] | None:
    source = Reader(record.key or b"")
    try:
        if source.number(2) not in (0, 1):
            return None
        key: Any = _offsets().messages["OffsetCommitKey"].read_version(source, 0)
    except ValueError as e:
        raise _no_commit(record, file, e) from None
    return key["group"], TopicPartition(key["topic"], key["partition"])


def _position_in(record: Record, file: str) -> OffsetAndMetadata | None:
    if record.value is None:
        return None
    source, message = Reader(record.value), _offsets().messages["OffsetCommit"]
    try:
        version = source.number(2)
        if not 0 <= version <= message.highest:
            raise ValueError(f"version {version}")
        value: Any = message.read_version(source, version)
    except ValueError as e:
        raise _no_commit(record, file, e) from None
    return OffsetAndMetadata(
        value["offset"], value["leaderEpoch"], value["metadata"], value["commitTimestamp"]
    )


@cache
def _offsets() -> Table:
    from kstore.messages.schema import Table  # imported here: most stores have no such topic
    from kstore.messages.tables import OFFSETS

    return Table(OFFSETS)


def _no_commit(record: Record, file: str, error: Exception) -> CorruptRecordError:
    return CorruptRecordError(
        "record of a commit", file=file, offset=record.offset, expected="an OffsetCommit", found=str(error)
    )


def committed_in(directory: str | PathLike[str]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """What groups have committed in the partitions of __consumer_offsets in a log directory, or in one of
    them, as far as that can be read. LogNotFoundError if there is none, CorruptRecordError if a batch is
    damaged. OSError."""
    return _committed_in(_partitions_in(Path(path_text("directory", directory))).values()).positions


def _committed_in(partitions: Iterable[Path]) -> _Committed:
    found = _Committed()
    for path in partitions:
        try:
            log = PartitionLog(path)
        except LogNotFoundError as e:
            if not path.is_dir() or e.is_log_directory:
                raise
            continue  # it was made, and nothing of it was written: Kafka takes it for an empty one too
        _replay(log, found)
    found.positions = dict(sorted(found.positions.items()))
    return found


def _replay(log: PartitionLog, found: _Committed) -> None:
    """Adds what a broker's coordinator makes of a partition. A transaction's commits count once it is
    committed, unless there is a later one. An open one does not keep others from counting, though a
    reader of committed records would stop there."""
    latest: dict[tuple[str, TopicPartition], tuple[int, OffsetAndMetadata | CorruptRecordError | None]] = {}
    pending: dict[int, list[Record]] = {}  # by producer

    def take(records: Iterable[Record]) -> None:
        for record in records:
            try:
                key = _key_in(record, log.path)
            except CorruptRecordError as e:
                found.unreadable.append(e)
                continue
            if key is None or latest.get(key, (-1, None))[0] >= record.offset:
                continue
            try:
                latest[key] = record.offset, _position_in(record, log.path)
            except CorruptRecordError as e:  # whatever it says, an earlier position is not the last one
                latest[key] = record.offset, e

    for batch in log.batches():
        if batch.is_control:
            ended = pending.pop(batch.producer_id, ())
            take(ended if commits(batch) else ())
        elif batch.is_transactional:
            pending.setdefault(batch.producer_id, []).extend(batch.records())
        else:
            take(batch.records())
    for (group, tp), (_, position) in latest.items():
        if isinstance(position, CorruptRecordError):
            found.damaged[group, tp] = position
        elif position is not None:
            found.positions.setdefault(group, {})[tp] = position


def commits(batch: RecordBatch) -> bool:
    """Whether a control batch commits a transaction."""
    return any(control_type(record.key) == 1 for record in batch.records())


def _own_number(directory: Path) -> int | None:
    """Which partition of __consumer_offsets a directory itself is."""
    own = layout.parse_directory(Path(os.path.realpath(directory)).name)
    return own.partition if own is not None and own.topic == TOPIC else None


def _partitions_in(directory: Path, *, needed: bool = True) -> dict[int, Path]:
    own = _own_number(directory)
    if own is not None:
        return {own: directory}
    names = os.listdir(directory) if directory.is_dir() else []
    parsed = {name: layout.parse_directory(name) for name in names if layout.is_partition_name(name)}
    found = {
        tp.partition: directory / name for name, tp in parsed.items() if tp is not None and tp.topic == TOPIC
    }
    if needed and not found:
        raise LogNotFoundError(f"no partition of {TOPIC} in {directory}")
    return dict(sorted(found.items()))


def partition_of(group: str, count: int) -> int:
    """The partition of __consumer_offsets in which a broker keeps a group: Kafka's
    `Utils.abs(group.hashCode()) % count`, where `abs` is the absolute value of a signed number of 32 bits,
    and 0 for the least one."""
    value = 0
    units = group.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    value = value if value < 2**31 else (2**32 - value) % 2**31
    return value % count


# ---- importing ---------------------------------------------------------------------------------------------


def import_from(
    paths: Mapping[TopicPartition, str],
    source: str | PathLike[str],
    groups: Iterable[str] | None,
    *,
    dry_run: bool,
) -> CursorTransfer:
    """Commits what groups have committed to a broker, for these partitions; all of a group in one step for
    each directory. See LogStore.import_cursors."""
    groups = _checked_groups(groups)
    boolean("dry_run", dry_run)
    committed = _committed_in(_partitions_in(Path(path_text("source", source))).values())
    unreadable = tuple(f"{error}; skipped, because its key names no group" for error in committed.unreadable)
    result = CursorTransfer({}, {}, unreadable)
    for (group, tp), error in sorted(committed.damaged.items()):
        if groups is None or group in groups:
            result.left_out[group, tp.topic, tp.partition] = f"its last position cannot be read: {error}"
    for group, positions in committed.positions.items():
        if groups is not None and group not in groups:
            continue
        mine: dict[TopicPartition, OffsetAndMetadata] = {}
        for tp, position in positions.items():
            reason = _why_not(group, position) or ("" if tp in paths else "no such partition here")
            if reason:
                result.left_out[group, tp.topic, tp.partition] = reason
            else:
                mine[tp] = position
        if mine:
            if not dry_run:
                _commit(group, {Home.of(paths[tp]): position for tp, position in mine.items()})
            result.positions[group] = mine
    return result


def _why_not(group: str, position: OffsetAndMetadata) -> str:
    if not is_group(group):
        return "the name of the group cannot be that of a file"
    if position.offset < 0:
        return f"offset {position.offset}"
    if len(position.metadata.encode()) > MAX_METADATA_BYTES:
        return f"metadata of more than {MAX_METADATA_BYTES} bytes"
    return ""


def _commit(group: str, positions: Mapping[Home, OffsetAndMetadata]) -> None:
    """CursorLockedError, before anything is changed, if the group has a reader."""
    with contextlib.ExitStack() as stack:
        by_file: dict[GroupFile, dict[TopicPartition, Commit]] = {}
        for home, position in positions.items():
            lock = MemberLock.of_partition(home.directory, group, home.tp)
            stack.callback(lock.release)
            lock.take()
            file = GroupFile.of(home.directory, group, lock.file)
            by_file.setdefault(file, {})[home.tp] = Commit(position, home.make_id())
        for file, commits in by_file.items():

            def decide(_: Entries, changes: Changes = commits) -> Changes:
                return changes

            file.write(decide, lambda: None, True)


# ---- exporting ---------------------------------------------------------------------------------------------


def committed_here(
    paths: Mapping[TopicPartition, str], groups: Collection[str] | None = None
) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """What groups have committed for these partitions, but for those that were deleted meanwhile.

    CorruptRecordError, CorruptCheckpointError, OSError."""
    homes = {}
    for tp, path in paths.items():
        with contextlib.suppress(LogNotFoundError):
            homes[tp] = Home.of(path)
    found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for directory in sorted({home.directory for home in homes.values()}):
        for group in groups_in(directory):
            if groups is not None and group not in groups:
                continue
            entries = read_positions(directory, group)
            for tp in entries:
                if tp in homes and homes[tp].directory == directory:
                    with contextlib.suppress(LogNotFoundError):
                        position = homes[tp].position_in(entries)
                        if position is not None:
                            found.setdefault(group, {})[tp] = position
    return {group: dict(sorted(found[group].items())) for group in sorted(found)}


def export_to(
    paths: Mapping[TopicPartition, str],
    target: str | PathLike[str],
    groups: Iterable[str] | None,
    partitions: int | None,
    beside: Iterable[str | PathLike[str]] = (),
    *,
    dry_run: bool,
) -> CursorTransfer:
    """Appends what groups have committed for these partitions to those of __consumer_offsets in a log
    directory, or in those `beside`, if it is one of them: together they have the topics of one broker. See
    LogStore.export_cursors."""
    groups = _checked_groups(groups)
    boolean("dry_run", dry_run)
    return append_positions(
        lambda: committed_here(paths, groups), paths, target, partitions, beside, dry_run=dry_run
    )


def append_positions(
    committed: Callable[[], Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]],
    paths: Mapping[TopicPartition, str],
    target: str | PathLike[str],
    partitions: int | None,
    beside: Iterable[str | PathLike[str]] = (),
    *,
    dry_run: bool,
) -> CursorTransfer:
    """Appends the positions of groups to __consumer_offsets, as `export_to` does. `paths` are the partitions
    with the topic ids that a broker knows."""
    if partitions is not None:
        partitions = integer("partitions", partitions, 1, 2**31 - 1)
    directory = Path(path_text("target", target))
    if _own_number(directory) is not None:
        raise ValueError(f"{directory} is one partition of {TOPIC}: give the log directory in which it lies")
    others = [os.path.realpath(place) for place in beside]
    known: dict[int, Path] = {}
    for place in (directory, *(map(Path, others) if os.path.realpath(directory) in others else ())):
        for number, path in _partitions_in(place, needed=False).items():
            known.setdefault(number, path)
    count = _count_of(directory, known, partitions)
    before: dict[int, dict[str, dict[TopicPartition, OffsetAndMetadata]]] = {}
    result = CursorTransfer({}, {})
    records: dict[int, list[tuple[bytes, bytes]]] = {}
    for group, positions in committed().items():
        number = partition_of(group, count)
        if number not in before:
            before[number] = _committed_in([known[number]] if number in known else []).positions
        for tp, position in positions.items():
            if before[number].get(group, {}).get(tp) == position:
                result.left_out[group, tp.topic, tp.partition] = "it is there already"
                continue
            result.positions.setdefault(group, {})[tp] = position
            value = encode_value(Commit(position, _topic_id(paths[tp])))
            records.setdefault(number, []).append((encode_key(group, tp), value))
    if (directory / layout.META_PROPERTIES).exists():
        _refuse_strays(directory, known, set(records))
    if not dry_run and records:
        for number in _to_make(known, set(records), count, make_all=partitions is None):
            known[number] = directory / f"{TOPIC}-{number}"
            LogWriter(known[number], _CONFIG).close()
        for number, pairs in sorted(records.items()):
            with LogWriter(known[number], _CONFIG) as log:
                keys, values = (list(column) for column in zip(*pairs, strict=True))
                log.extend(values, keys)
    return result


def _count_of(directory: Path, known: Collection[int], given: int | None) -> int:
    """How many partitions __consumer_offsets has. A directory may hold only some of a broker's: then it is
    not known. ValueError."""
    least = max(known, default=-1) + 1
    if given is None and 0 < len(known) < least:
        raise ValueError(
            f"{directory} has {len(known)} partitions of {TOPIC}, with numbers up to {least - 1}, so others "
            "are elsewhere: give `partitions` (--offsets-partitions), how many the broker has; "
            f"{PARTITIONS}, if it was not told otherwise"
        )
    if given is not None and given < least:
        raise ValueError(
            f"partitions must be at least {least}, not {given}: {TOPIC}-{least - 1} is in {directory}"
        )
    return given or least or PARTITIONS


def _refuse_strays(directory: Path, known: Mapping[int, Path], needed: set[int]) -> None:
    """ValueError if positions would go into a partition that a broker sets aside as -stray when it starts:
    its controller must have assigned the partition to this directory, and partition.metadata must have the
    topic's id."""
    missing = sorted(needed.difference(known))
    if missing:
        raise ValueError(
            f"{TOPIC}-{missing[0]} is not in {directory}, and a broker sets a partition aside (-stray) that "
            "it did not make itself. If it has several log directories, open the store with all of them "
            f"(--also). If it has no {TOPIC} yet, start it and let any group commit once"
        )
    if read_properties(directory / layout.META_PROPERTIES).get("version") == "0":
        return  # of a broker with ZooKeeper, which needs no ids of topics
    for number in sorted(needed):
        if not (known[number] / layout.METADATA).exists():
            raise ValueError(
                f"{known[number]} has no {layout.METADATA}, so a broker would set it aside (-stray): remove "
                "it, if no broker made it, or restore that file"
            )


def _to_make(known: Collection[int], needed: set[int], count: int, *, make_all: bool) -> list[int]:
    """Which partitions are made, the largest number first: so whenever this ends, the next export does not
    take those that are there by then for all."""
    wanted = set(range(count)) if make_all else needed.union(known)
    if max(wanted) + 1 == len(wanted):
        wanted.add(count - 1)
    return sorted(wanted.difference(known), reverse=True)


def _topic_id(path: str) -> bytes:
    """The id that a broker knows the topic by; b"" if it has none."""
    try:
        return read_topic_id(Path(path, layout.METADATA)).bytes
    except (FileNotFoundError, CorruptCheckpointError):
        return b""


def _checked_groups(names: object) -> set[str] | None:
    """Names of a broker's groups, which may be any text; None for all. TypeError."""
    if names is None:
        return None
    if (
        isinstance(names, str)
        or not isinstance(names, Collection)
        or not all(isinstance(name, str) for name in names)
    ):
        raise TypeError(f"groups must be a list of names of groups, not {names!r}")
    return set(names)


# ---- of a store --------------------------------------------------------------------------------------------


def lag_of(paths: Mapping[TopicPartition, str], group: str) -> dict[TopicPartition, int]:
    """How far a group of cursors is behind in the topics that it reads; see LogStore.lag. CorruptRecordError,
    OSError."""
    committed = committed_here(paths, [checked_group(group)]).get(group, {})
    topics = {tp.topic for tp in committed}
    found = {}
    for tp in sorted(tp for tp in paths if tp.topic in topics):
        try:
            log = PartitionLog(paths[tp])
        except LogNotFoundError:
            continue  # it was deleted meanwhile
        with log:
            found[tp] = lag_behind(log, committed[tp].offset if tp in committed else None)
    return found


def expire_positions(catalog: TopicCatalog, *, dry_run: bool) -> dict[str, list[TopicPartition]]:
    """Removes the positions of groups that have expired; see LogStore.expire_cursors."""
    boolean("dry_run", dry_run)
    found: dict[str, list[TopicPartition]] = {}
    limit = catalog.config.offsets_retention_minutes * 60_000
    for directory in catalog.live():
        place = os.path.realpath(directory.path)
        for group in groups_in(place):
            removed = expire(place, group, limit, catalog.now(), dry_run=dry_run)
            if removed:
                found.setdefault(group, []).extend(removed)
    return found
