"""kstore cursors."""

import argparse
import contextlib
import json
import os
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kstore
from kstore.errors import KstoreError, LogNotFoundError, OffsetOutOfRangeError, visible
from kstore.log.cursors.arguments import checked_group, offset_of
from kstore.log.cursors.expiry import expire
from kstore.log.cursors.group_file import Entry, groups_in, read_positions
from kstore.log.cursors.home import Home
from kstore.log.cursors.offset_commits import Commit, OffsetAndMetadata, lag_behind
from kstore.log.cursors.offset_committer import OffsetCommitter, commit_all
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.follow.position import position_in
from kstore.log.partition import PartitionLog
from kstore.log.recovery.presence import require_partition
from kstore.store.consumer_offsets import TOPIC, export_to, import_from
from kstore.tools.numbers import moment, offset, time_text, whole
from kstore.tools.terminal import aligned, note, say

_HEADS = {
    "group": "GROUP",
    "topic": "TOPIC",
    "partition": "PARTITION",
    "position": "POSITION",
    "new_position": "NEW POSITION",
    "log_end_offset": "END",
    "lag": "LAG",
    "committed": "COMMITTED",
    "metadata": "METADATA",
}
_NUMBERS = ("partition", "position", "new_position", "log_end_offset", "lag")
Row = dict[str, Any]


def place(text: str) -> str | int | datetime:
    """Parse a start: earliest, latest, an offset or a time."""
    if text in ("earliest", "latest"):
        return text
    if text.isdecimal():
        return offset(text)
    try:
        return datetime.fromtimestamp(moment(text) / 1000, UTC)
    except (ArgumentTypeError, OverflowError, ValueError, OSError):
        raise ArgumentTypeError(
            f"{text!r} is neither earliest, latest, an offset nor a time such as 2026-11-21T06:00:00"
        ) from None


def add_cursors_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        metavar="DIR",
        help="log directory, such as data, or one partition, such as data/orders-0",
    )
    parser.add_argument(
        "--also", action="append", default=[], metavar="DIR", help="another directory (may be repeated)"
    )
    parser.add_argument("--group", metavar="NAME", help="only this group")
    parser.add_argument("--topic", metavar="NAME", help="only this topic")
    parser.add_argument(
        "--reset-to",
        type=place,
        metavar="PLACE",
        help="move the group of --group: to earliest, latest, an offset, or a time (ISO 8601), which is the "
        "first record with that timestamp or a later one. Moves all partitions in which the group has a "
        "position, with --topic all partitions of the topic, in one step for each directory. Fails if "
        "the group is reading one of them",
    )
    parser.add_argument(
        "--import",
        dest="source",
        metavar="FROM",
        help="import the positions of a broker's groups, or of --group, from the topic __consumer_offsets in "
        "the log directory FROM. They replace the present positions",
    )
    parser.add_argument(
        "--export",
        dest="target",
        metavar="TO",
        help="export positions to a stopped broker: append them to the topic __consumer_offsets in its log "
        "directory TO; in all directories if DIR or one of --also is TO. Partitions that a broker would "
        "set aside as -stray are refused",
    )
    parser.add_argument(
        "--offsets-partitions",
        type=whole("number of partitions", 1, 2**31 - 1),
        metavar="N",
        help="with --export: the number of partitions of __consumer_offsets. Default: the number in TO, if "
        "none is missing; 50 if there are none",
    )
    parser.add_argument(
        "--expire",
        type=whole("number of minutes", 0, 2**31 - 1),
        metavar="MINUTES",
        help="remove the positions of groups, or of --group, that had no reader for so long",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would change")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each position")


class Unread(list[str]):
    """Errors of what could not be read, and is left out."""

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Suppress an error that ends the block, and add it."""
        try:
            yield
        except (KstoreError, OSError) as e:
            self.extend((str(e), *getattr(e, "__notes__", ())))

    def report(self) -> None:
        """Print the errors on stderr, each once."""
        for text in dict.fromkeys(self):
            note(text)


def cursors(args: argparse.Namespace) -> int:
    """Print the positions and the lag of cursor groups, move a group, exchange positions with a broker, or
    remove old positions. A group has a line for each partition of the topics in which it has a position. The
    exit code is 1 if a group, a topic or a file of positions is missing or cannot be read; stderr names
    it."""
    if args.group is not None:
        checked_group(args.group)
    actions = {
        "--reset-to": args.reset_to,
        "--import": args.source,
        "--export": args.target,
        "--expire": args.expire,
    }
    chosen = [name for name, value in actions.items() if value is not None]
    if len(chosen) > 1:
        raise ValueError(f"{' and '.join(chosen)} are done one after the other")
    if args.offsets_partitions is not None and chosen != ["--export"]:
        raise ValueError("--offsets-partitions needs --export")
    code, unread = 0, Unread()
    if not chosen:
        if args.dry_run:
            raise ValueError("--dry-run needs --reset-to, --import, --export or --expire")
        rows = _rows(args, unread)
        _show(args, ("log_end_offset", "lag", "committed", "metadata"), rows)
        if not rows and not unread:
            code = _nothing(args)
            _point_to_broker(args)
    elif args.reset_to is not None:
        if args.group is None:
            raise ValueError("--reset-to needs --group: it is done for one group")
        _reset(args, unread)
    elif args.expire is not None:
        if _rows(args, unread):
            _expire(args, unread)
        elif not unread:
            code = _nothing(args)
    else:
        _transfer(args, unread)
    sys.stdout.flush()
    unread.report()
    return 1 if unread else code


def _nothing(args: argparse.Namespace) -> int:
    """Report on stderr what was named and does not exist. Returns 1, or 0 if nothing was named."""
    if args.group is None and args.topic is None:
        return 0
    whose = "no group has a" if args.group is None else f"group {args.group!r} has no"
    of = "" if args.topic is None else f" in topic {args.topic}"
    print(visible(f"{whose} position{of} in {args.directory}"), file=sys.stderr)
    return 1


def _point_to_broker(args: argparse.Namespace) -> None:
    """Note on stderr that a broker has positions in one of the directories, in which kstore has none."""
    for directory in (args.directory, *args.also):
        has_topic = any(path.is_dir() for path in Path(directory).glob(f"{TOPIC}-*"))
        if has_topic and not groups_in(directory):
            note(
                f"a broker keeps the positions of its groups in {directory} in the topic {TOPIC}: "
                f"kstore cursors {directory} --import {directory} --dry-run shows them"
            )


def _transfer(args: argparse.Namespace, unread: Unread) -> None:
    paths = {home.tp: home.partition for home in _partitions(args, unread)}
    groups = None if args.group is None else [args.group]
    if args.source is not None:
        done = import_from(paths, args.source, groups, dry_run=args.dry_run)
    else:
        beside = (args.directory, *args.also)
        done = export_to(paths, args.target, groups, args.offsets_partitions, beside, dry_run=args.dry_run)
    logs: dict[TopicPartition, PartitionLog | None] = {}
    rows: list[Row] = []
    for group, positions in done.positions.items():
        for tp, position in sorted(positions.items()):
            if tp not in logs:
                logs[tp] = None
                with unread.noted():
                    logs[tp] = kstore.open(paths[tp])
            rows.append(_row(group, tp, position, logs[tp]))
    _show(args, ("log_end_offset", "lag", "committed", "metadata"), rows)
    for (group, topic, partition), reason in done.left_out.items():
        print(visible(f"{topic}-{partition} of group {group}: left out, {reason}"), file=sys.stderr)
    for text in done.unreadable:
        print(visible(text), file=sys.stderr)


def _expire(args: argparse.Namespace, unread: Unread) -> None:
    now = time.time_ns() // 1_000_000
    rows: list[Row] = []
    for directory in sorted({home.directory for home in _partitions(args, unread)}):
        for group in groups_in(directory) if args.group is None else [args.group]:
            gone, entries = [], {}
            with unread.noted():
                entries = read_positions(directory, group)
                gone = expire(directory, group, args.expire * 60_000, now, dry_run=args.dry_run)
            for tp in gone:
                position = entries[tp].commit.position
                rows.append(
                    {
                        "group": group,
                        "topic": tp.topic,
                        "partition": tp.partition,
                        "position": position.offset,
                        "committed": position.timestamp,
                        "metadata": position.metadata,
                    }
                )
    _show(args, ("committed", "metadata"), rows)


def _partitions(args: argparse.Namespace, unread: Unread) -> Iterator[Home]:
    """The selected partitions, directory by directory."""
    for directory in (args.directory, *args.also):
        with contextlib.suppress(LogNotFoundError):
            require_partition(Path(directory))
            yield Home.of(directory)
            continue
        with os.scandir(directory) as entries:
            named = sorted(entry.name for entry in entries if layout.is_partition_name(entry.name))
        names, lost = [], Unread()
        for path in (Path(directory, name) for name in named):
            with lost.noted():
                if path.is_dir():
                    names.append(path.name)
                elif path.is_symlink():
                    lost.append(f"{path}: a symbolic link to nowhere")
        unread.extend(lost)
        if not names and not lost:
            raise LogNotFoundError(f"{directory} is neither a log directory with partitions nor a partition")
        found = [Home.of(f"{directory}/{name}") for name in names]
        yield from sorted(
            (home for home in found if args.topic in (None, home.tp.topic)), key=lambda home: home.tp
        )


class Positions:
    """The positions of groups by directory. Each file is read once. A file that cannot be read is left out
    and its error added to `unread`."""

    def __init__(self, group: str | None, unread: Unread) -> None:
        self._group = group
        self._unread = unread
        self._known: dict[str, dict[str, dict[TopicPartition, Entry]]] = {}

    def of(self, directory: str) -> dict[str, dict[TopicPartition, Entry]]:
        """The positions in one directory, by group."""
        known = self._known.get(directory)
        if known is None:
            groups = [self._group] if self._group else groups_in(directory)
            known = self._known[directory] = {}
            for group in groups:
                with self._unread.noted():
                    known[group] = read_positions(directory, group)
        return known


def _rows(args: argparse.Namespace, unread: Unread) -> list[Row]:
    """The positions, and rows for partitions of their topics without a position of the group."""
    entries = Positions(args.group, unread)
    homes = list(_partitions(args, unread))
    groups = {group for home in homes for group in entries.of(home.directory)}
    rows = []
    positions: dict[tuple[str, Home], OffsetAndMetadata | None] = {}
    for home in homes:
        theirs = entries.of(home.directory)
        with unread.noted():
            positions |= {(group, home): home.position_in(theirs.get(group, {})) for group in groups}
    read = {(group, home.tp.topic) for (group, home), position in positions.items() if position is not None}
    logs: dict[Home, PartitionLog | None] = {}
    for (group, home), position in positions.items():
        if (group, home.tp.topic) in read:
            if home not in logs:
                logs[home] = None
                with unread.noted():
                    logs[home] = kstore.open(home.partition)
            log = logs[home]
            if log is not None:
                rows.append(_row(group, home.tp, position, log))
    return sorted(rows, key=lambda row: (row["group"], row["topic"], row["partition"]))


def _row(group: str, tp: TopicPartition, position: OffsetAndMetadata | None, log: PartitionLog | None) -> Row:
    offset, epoch, metadata, committed = (None,) * 4 if position is None else position
    end, lag = None, None
    if log is not None:
        end = log.log_end_offset
        lag = lag_behind(log, offset)
    return {
        "group": group,
        "topic": tp.topic,
        "partition": tp.partition,
        "position": offset,
        "log_end_offset": end,
        "lag": lag,
        "leader_epoch": epoch,
        "committed": committed,
        "metadata": metadata,
    }


def _reset(args: argparse.Namespace, unread: Unread) -> None:
    homes = list(_partitions(args, unread))
    entries = {
        directory: read_positions(directory, args.group) for directory in {home.directory for home in homes}
    }
    positions = {home: home.position_in(entries[home.directory]) for home in homes}
    if args.topic is None:
        moved = [home for home in homes if positions[home] is not None]
        if moved:
            _note_left(homes, moved)
        homes = moved
    if not homes:
        if args.topic is not None:
            raise LogNotFoundError(f"no topic {args.topic} in {args.directory}")
        hint = "" if args.reset_to is None else ": --topic gives it one in each partition of a topic"
        raise LogNotFoundError(f"group {args.group!r} has no position in {args.directory}{hint}")
    rows = []
    with contextlib.ExitStack() as stack:
        commits: list[tuple[OffsetCommitter, Commit]] = []
        for home in homes:
            log = kstore.open(home.partition)
            try:
                if not args.dry_run:
                    committer = OffsetCommitter(home.partition, args.group)
                    stack.callback(committer.close)
                    committer.open()
                    log.refresh()
                new = offset_of(log, args.reset_to, "read_uncommitted")
                if not args.dry_run:
                    committer.floor = new
                    commits.append((committer, committer.commit_of(position_in(log.snapshot, new), "")))
                    positions[home] = committer.committed
            except OffsetOutOfRangeError as e:
                e.add_note(f"in {home.partition}; no position was changed")
                raise
            rows.append(_row(args.group, home.tp, positions[home], log) | {"new_position": new})
        commit_all(commits, durable=True)
    _show(args, ("new_position",), rows)


def _note_left(homes: list[Home], moved: list[Home]) -> None:
    """Note on stderr which partitions of the group's topics are not moved, as it has no position in them."""
    topics = {home.tp.topic for home in moved}
    left = [home.tp for home in homes if home.tp.topic in topics and home not in moved]
    for topic in sorted({tp.topic for tp in left}):
        names = ", ".join(str(tp.partition) for tp in sorted(left) if tp.topic == topic)
        note(
            f"not moved, because the group has no position there: partitions {names} of {topic}. Its next "
            f"reader begins there at its start. To move all partitions: --topic {topic}"
        )


def _show(args: argparse.Namespace, columns: tuple[str, ...], rows: list[Row]) -> None:
    if args.json:
        for row in rows:
            print(json.dumps(row))
        return
    columns = ("group", "topic", "partition", "position", *columns)
    lines = [[_HEADS[name] for name in columns], *([_cell(name, row) for name in columns] for row in rows)]
    say(*aligned(lines, [at for at, name in enumerate(columns) if name not in _NUMBERS]))


def _cell(name: str, row: Row) -> str:
    value = row[name]
    if value is None:
        return "-" if name in _NUMBERS else ""
    return time_text(value) if name == "committed" else visible(value)
