"""kstore stat."""

import argparse
import contextlib
import json
import os
import sys
from collections import Counter
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from kstore.arguments import MAX64
from kstore.engine.compact.last_offsets import KeyFile
from kstore.engine.record.batch import CODECS
from kstore.engine.scan.batch_reader import BatchReader
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, KstoreError, LogNotFoundError, visible
from kstore.log.cursors.group_file import groups_in, read_positions
from kstore.log.files import layout
from kstore.log.files.log_dir_state import directory_of, is_kept_checkpoint, kept_checkpoints
from kstore.log.files.manifest import read_manifest
from kstore.log.partition import PartitionLog
from kstore.log.read.key_index import key_file_of
from kstore.log.recovery.gaps import is_compacted, is_said_to_delete
from kstore.log.recovery.presence import is_partition
from kstore.store import LogStore
from kstore.store.store_directory import StoreDirectory
from kstore.tools.numbers import counted, time_text
from kstore.tools.opening import HARMLESS, add_open_arguments, open_partition
from kstore.tools.progress import Progress
from kstore.tools.stores import add_also_argument
from kstore.tools.terminal import aligned, note, say

HEADINGS = (
    "base offset",
    "next offset",
    "records",
    "batches",
    "bytes",
    "codecs",
    "first record",
    "largest time",
    "index",
    "time index",
    "keys",
)
_TEXTS = (5, 6, 7)  # columns that are no numbers
TAIL = " bytes at the end hold no whole batch"
FIGURES = (
    "base_offset",
    "next_offset",
    "records",
    "batches",
    "bytes",
    "codecs",
    "first_timestamp",
    "max_timestamp",
    "has_gaps",
    "index_entries",
    "time_index_entries",
    "keys",
    "key_file",
    "path",
)


def add_stat_arguments(parser: argparse.ArgumentParser) -> None:
    add_open_arguments(parser, "; or a log directory, such as data, for all its partitions")
    add_also_argument(parser)
    parser.add_argument(
        "--verify", action="store_true", help="also check the checksum of every batch, and read its records"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, or a list of them for a log directory"
    )


class SegmentStat(NamedTuple):
    """The figures of a segment, its first and last leader epoch, and its problems: those of batches by byte,
    and others."""

    fields: dict[str, Any]
    epochs: tuple[int, int] | None
    damage: dict[int, str]
    wrong: list[str]


def segment_stat(segment: Segment, *, verify: bool) -> SegmentStat:
    """The figures of a segment from its headers, up to a damaged one. `verify`: check the checksums, too."""
    damage: dict[int, str] = {}
    wrong = []
    size = segment.size
    try:
        headers = segment.read_headers()
    except CorruptFileError as e:
        good = segment.recovery_walk(verify=False).valid_bytes
        damage[good] = _without_path(e)
        segment.limit_to(good)
        headers = segment.read_headers()
    counts = headers["records_count"]
    known = headers["magic"] == 2
    codecs = Counter((headers["attributes"] & 7).tolist())
    records = int(counts[known].sum())
    for position in headers["position"][
        ~known
    ].tolist():  # a message of magic 0 or 1 has no number of records
        records += len(segment.batch_at(position).messages())
    times = headers["max_timestamp"]
    stamped = times[times >= 0]
    end = int(headers["position"][-1] + headers["size"][-1]) if len(headers) else 0
    keys, key_file = keys_of(segment)
    fields = {
        "base_offset": segment.base_offset,
        "next_offset": int(headers["last_offset"][-1]) + 1 if len(headers) else segment.base_offset,
        "records": records,
        "batches": len(headers),
        "bytes": size,
        "codecs": {
            CODECS[codec] if codec < len(CODECS) else f"unknown {codec}": n for codec, n in codecs.items()
        },
        "first_timestamp": _first_timestamp(segment, headers),
        "max_timestamp": int(stamped.max()) if len(stamped) else -1,
        "has_gaps": bool(
            (headers["base_offset"][1:] > headers["last_offset"][:-1] + 1).any()
            or (counts[known] <= headers["last_offset_delta"][known]).any()
        ),
        "index_entries": len(segment.offset_index),
        "time_index_entries": len(segment.time_index),
        "keys": keys,
        "key_file": key_file,
        "path": segment.path,
    }
    if end < segment.size:
        damage[end] = f"{segment.size - end}{TAIL}"
    falls = (headers["base_offset"][1:] <= headers["last_offset"][:-1]).nonzero()[0].tolist()
    if falls:
        at = headers["position"][falls[0]].item()
        damage[at] = f"offsets do not rise from batch to batch, the first time behind byte {at}"
    numbered = headers[known & (headers["leader_epoch"] >= 0)]
    epochs = numbered["leader_epoch"].tolist()
    wrong += [
        f"{segment.path}: at byte {numbered['position'][at + 1]}: {_epoch_text(*pair)}"
        for at, pair in enumerate(pairwise(epochs))
        if pair[1] < pair[0]
    ]
    notes = [f"index rebuilt in memory: {note}" for note in segment.notes]
    if not notes and len(stamped) and segment.max_timestamp_so_far.timestamp != fields["max_timestamp"]:
        wrong.append(
            f"{segment.path}: the time index ends at {segment.max_timestamp_so_far.timestamp}, "
            f"the log at {fields['max_timestamp']}: lookups by time will miss records; "
            f"kstore recover {segment.directory} --all makes the indexes anew"
        )
    if verify:
        found = segment.recovery_walk()
        if found.error is not None:
            at = found.valid_bytes
            if not damage.get(at, "").endswith(TAIL):
                damage[at] = _without_path(found.error)
            behind = BatchReader((segment,), 0, MAX64, first_position=at, on_error="skip")
            for _ in behind:
                pass
            for skipped in behind.skipped:
                damage.setdefault(skipped.position, str(skipped.error).removeprefix(f"{segment.path}: "))
    return SegmentStat(fields, (epochs[0], epochs[-1]) if epochs else None, damage, wrong + notes)


def keys_of(segment: Segment) -> tuple[int | None, str]:
    """The number of keys in the .keys file of a segment, and its state: "fits", "stale" if it was made for
    another state of the .log, "damaged", or "none"."""
    path = segment.path_of(layout.KEYS)
    if not os.path.lexists(path):
        return None, "none"
    try:
        keys = KeyFile(path).count()
    except (OSError, CorruptFileError):
        keys = -1
    if keys < 0:
        return None, "damaged"
    return (keys, "fits") if key_file_of(segment) is not None else (None, "stale")


def _without_path(error: CorruptFileError) -> str:
    return str(error).removeprefix(f"{error.file}: ")


def unread_stat(segment: Segment) -> dict[str, Any]:
    """The figures of a segment that cannot be read: only its size, if that is known."""
    known: dict[str, Any] = {"base_offset": segment.base_offset, "codecs": {}, "path": segment.path}
    with contextlib.suppress(OSError):
        known["bytes"] = segment.size
    return {**dict.fromkeys(FIGURES), **known}


def _epoch_text(before: int, after: int) -> str:
    return (
        f"the leader epoch falls from {before} to {after}: one of them was changed on the disk, "
        "and no checksum covers it"
    )


def _first_timestamp(segment: Segment, headers: Any) -> int:
    """The timestamp of the first record, or -1. The smallest timestamp is not in the headers."""
    for position in headers["position"][headers["records_count"] != 0].tolist():
        for record in segment.batch_at(position).records(verify=False):
            return record.timestamp
    return -1


def gaps_between(segments: list[dict[str, Any]], log: PartitionLog) -> list[str]:
    """Gaps between one segment and the next, as sentences: a file may be missing.

    Compaction leaves gaps, too, also within segments. A log with gaps is therefore not reported if it is
    known to be compacted, or if segments have gaps inside and its options do not exclude compaction. An empty
    segment before a gap is the mark of a truncation inside a batch by an older version of kstore.
    """
    path = Path(log.path)
    if is_compacted(path) or (
        any(segment["has_gaps"] for segment in segments) and not is_said_to_delete(path)
    ):
        return []
    return [
        f"{after['path']}: offsets {before['next_offset']} to {after['base_offset'] - 1} are in no segment: "
        "a file is missing, unless the topic was compacted"
        for before, after in pairwise(segments)
        if before["bytes"]
        and before["next_offset"] < after["base_offset"]
        and after["base_offset"] > log.log_start_offset
    ]


def partition_stat(log: PartitionLog, *, verify: bool) -> dict[str, Any]:
    """The figures of a partition and of its segments, and everything that looks wrong."""
    findings = log.recovery.findings
    wrong = [f"{f.kind}: {f.file}: {f.text}" for f in findings if f.kind not in HARMLESS]
    named = {(f.file, f.position): f"{f.kind}: {f.file}: {f.text}" for f in findings if f.size > 0}
    segments = []
    epoch = -1
    is_whole = True
    with Progress(len(log.segments), "reading") as progress:
        for done, segment in enumerate(log.segments):
            progress.update(done)
            try:
                here = segment_stat(segment, verify=verify)
            except CorruptFileError as e:
                here = SegmentStat(unread_stat(segment), None, {e.position: _without_path(e)}, [])
            except OSError as e:
                here = SegmentStat(unread_stat(segment), None, {}, [str(e)])
            segments.append(here.fields)
            for at, text in sorted(here.damage.items()):
                line = named.get((segment.path, at))
                if line is None:
                    wrong.append(f"{segment.path}: {text}")
                elif not text.endswith(TAIL):  # one line for each damage
                    wrong[wrong.index(line)] = f"{line}: {text}"
            is_whole = is_whole and not here.damage and here.fields["records"] is not None
            if here.epochs is not None:
                if here.epochs[0] < epoch:
                    wrong.append(f"{segment.path}: {_epoch_text(epoch, here.epochs[0])}")
                epoch = here.epochs[1]
            wrong += here.wrong
    if verify and is_whole:
        wrong += unreadable(log)
    told = any(f.kind == "gap" for f in log.recovery.findings)
    if is_whole and not told:  # else it is named already
        wrong += gaps_between(segments, log)
    wrong += [
        f"{file}: a recovery has cut this off; kstore records {file} reads it. Remove the file if its "
        "records are not needed"
        for file in sorted(Path(log.path).glob("*.cut"))
        if not is_kept_checkpoint(file.name)
    ]
    wrong += checkpoints_kept(Path(log.path))
    try:
        topic_id = log.topic_id()
    except CorruptFileError as e:
        topic_id = None
        wrong.append(str(e))
    if (path := Path(log.path)).is_dir():
        wrong += damaged_positions(path)  # a log directory has those of the partitions in it
        try:
            read_manifest(log.path)
        except (KstoreError, OSError) as e:
            if not any(f.file == f"{log.path}/{layout.MANIFEST}" for f in findings):
                wrong.append(str(e))
    return {
        "directory": log.path,
        "topic_id": None if topic_id is None else str(topic_id),
        "clean": log.recovery.clean,
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "leader_epochs": log.leader_epochs,
        "segments": segments,
        "checksums_checked": verify,
        "leftovers": [
            f.file for f in findings if f.kind == "leftover"
        ],  # except those of deletions, which are not wrong
        "remote": [f.text for f in findings if f.kind == "remote"],
        "open_transactions": open_transactions(log),
        "wrong": wrong,
    }


def checkpoints_kept(directory: str | Path) -> list[str]:
    """Sentences about the copies of damaged checkpoints in a directory, and their consequences."""
    starts = (
        "deleted records of partitions whose lines were lost may be readable again: delete_records() deletes "
        "them anew"
    )
    policy = (
        "retention deletes nothing by age or size of topics that no later compaction names, unless "
        "cleanup.policy is given"
    )
    return [
        f"{file}: a copy of a checkpoint that was damaged, so "
        f"{starts if Path(file).name.startswith(layout.LOG_STARTS) else policy}. Remove the file if it "
        "is not needed"
        for file in kept_checkpoints(directory)
    ]


def unreadable(log: PartitionLog) -> list[str]:
    """Sentences about batches with a right checksum whose records cannot be read or found by time."""
    batches = log.scan(["timestamp", "max_timestamp", "base_offset"], on_error="skip")
    late: dict[int, int] = {}  # base offset -> the largest timestamp in the header
    try:
        for batch in batches:
            largest = batch.column("max_timestamp").values
            is_late = batch.column("timestamp").values > largest
            late.update(
                zip(
                    batch.column("base_offset").values[is_late].tolist(),
                    largest[is_late].tolist(),
                    strict=True,
                )
            )
    except (CorruptFileError, OSError) as e:
        return [str(e)]
    return [str(skipped.error) for skipped in batches.skipped] + [
        f"{log.path}: batch at offset {base}: it has a record later than {largest}, the largest timestamp "
        "in its header: lookups by time do not find it"
        for base, largest in late.items()
    ]


def open_transactions(log: PartitionLog) -> list[dict[str, int]]:
    """The open transactions, before which readers of committed records wait."""
    try:
        states = log.producers()
    except (CorruptFileError, OSError):  # reported already
        return []
    found = [
        {"first_offset": first, "producer_id": producer, "last_timestamp": state.last_timestamp}
        for producer, state in states.items()
        if (first := state.current_txn_first_offset) is not None
    ]
    return sorted(found, key=itemgetter("first_offset"))


def _row(segment: dict[str, Any]) -> tuple[str, ...]:
    if segment["records"] is None:
        size = "?" if segment["bytes"] is None else str(segment["bytes"])
        return str(segment["base_offset"]), "?", "?", "?", size, *"?" * (len(HEADINGS) - 5)
    return (
        str(segment["base_offset"]),
        str(segment["next_offset"]),
        str(segment["records"]),
        str(segment["batches"]),
        str(segment["bytes"]),
        ",".join(segment["codecs"]) or "-",
        time_text(segment["first_timestamp"]),
        time_text(segment["max_timestamp"]),
        str(segment["index_entries"]),
        str(segment["time_index_entries"]),
        {"none": "-", "fits": str(segment["keys"])}.get(segment["key_file"], segment["key_file"]),
    )


def partition_text(stat: dict[str, Any]) -> str:
    """The figures of a partition as text."""
    segments = stat["segments"]
    head = (
        f"{stat['directory']}: offsets {stat['log_start_offset']} to {stat['log_end_offset']} (exclusive), "
        f"{counted(len(segments), 'segment')}, "
        f"{counted(sum(s['records'] or 0 for s in segments), 'record')}, "
        f"{counted(sum(s['bytes'] or 0 for s in segments), 'byte')}, "
        f"{'closed cleanly' if stat['clean'] else 'not closed cleanly'}"
    )
    lines = [head, *aligned([HEADINGS, *map(_row, segments)], _TEXTS)]
    unchecked = "" if stat["checksums_checked"] else " (checksums not checked: --verify does that)"
    wrong = f"{_things(stat['wrong'])} wrong" if stat["wrong"] else "nothing looks wrong"
    lines.append(wrong + unchecked + (":" if stat["wrong"] else ""))
    lines += [f"  {text}" for text in stat["wrong"]]
    lines += stat["remote"]
    lines += [
        f"a transaction of producer {found['producer_id']} is open since offset {found['first_offset']}, its "
        f"last record is of {time_text(found['last_timestamp'])}: readers of committed records, and "
        "store.table, wait for its end"
        for found in stat["open_transactions"]
    ]
    if left := len(stat["leftovers"]):
        lines.append(
            "1 file waits for its deletion" if left == 1 else f"{left} files wait for their deletion"
        )
    return "\n".join(map(visible, lines))


def stat(args: argparse.Namespace) -> int:
    """Describe a partition, or all partitions of a log directory, and what looks wrong with them. The number
    of records includes transaction markers and records below the log start. The exit code is 1 if something
    looks wrong."""
    path = Path(args.directory)
    if not path.exists():
        raise LogNotFoundError(f"no partition and no log directory at {path}")
    if is_partition(str(path)):
        if args.also:
            raise ValueError("--also is for a log directory, and this is a partition")
        stats = [partition_stat(open_partition(args, lists=True), verify=args.verify)]
        around = directory_of(path)
        if path.is_dir() and around != str(path.absolute()):
            stats[0]["wrong"] += checkpoints_kept(around)
        others: list[str] = []
    else:
        stats, others = _directory_stats(args)
    if args.json:
        print(json.dumps(stats[0] if len(stats) == 1 else stats))
    else:
        print("\n\n".join(map(_text, stats)))
    for text in others:
        note(text) if args.json else say(text)
    code = 0
    for stat in stats:
        if wrong := stat["wrong"]:
            sys.stdout.flush()
            note(f"{stat['directory']}: {stat.get('error') or f'{_things(wrong)} wrong'}")
            code = 1
    return code


def _directory_stats(args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """The figures of all partitions in log directories, with an error for each that cannot be read, and
    sentences about other content. KstoreError if there is no partition."""
    stats: list[dict[str, Any]] = []
    others: list[str] = []
    directories = [StoreDirectory(Path(path)) for path in (args.directory, *args.also)]
    for directory in directories:
        directory.open(writing=False)
    for directory in directories:
        if directory.failure:
            stats.append(_unread(directory.path, f"the log directory cannot be read: {directory.failure}"))
            continue
        for tp in sorted(directory.partitions):
            path = directory.path_of(tp)
            one = argparse.Namespace(**{**vars(args), "directory": str(path)})
            try:
                stats.append(partition_stat(open_partition(one, lists=True), verify=args.verify))
            except (KstoreError, OSError) as e:
                stats.append(_unread(path, f"cannot be read: {e}"))
        stats += [
            _unread(path, "a symbolic link to nowhere")
            for path in sorted(directory.path.iterdir())
            if path.is_symlink() and not path.exists() and layout.is_partition_name(path.name)
        ]
        stats += [_unread(directory.path, text) for text in checkpoints_kept(directory.path)]
        stats += [_unread(directory.path, text) for text in damaged_positions(directory.path)]
        try:
            read_manifest(directory.path)
        except (KstoreError, OSError) as e:  # LogStore skips it with a warning
            text = "; ".join((str(e), *getattr(e, "__notes__", ())))
            stats.append(_unread(directory.path, f"its topics cannot be read: {text}"))
        others += directory.others
    if not stats:
        raise KstoreError(f"{args.directory} is neither a partition nor a log directory that holds any")
    try:
        lost = LogStore(args.directory, *args.also).health().missing
    except (KstoreError, OSError) as e:
        stats.append(_unread(Path(args.directory), f"its topics cannot be read: {e}"))
    else:
        hint = "name with --also the log directory that has it" if not args.also else "it may be lost"
        stats += [_unread(Path(args.directory) / str(tp), f"in no log directory: {hint}") for tp in lost]
    return stats, _others(others)


def damaged_positions(directory: Path) -> list[str]:
    """Sentences about damaged files of positions in a directory."""
    wrong = []
    for group in groups_in(str(directory)):
        try:
            read_positions(str(directory), group)
        except (KstoreError, OSError) as e:
            wrong.append(f"the positions of group {group!r} cannot be read: {e}")
    return wrong


def _text(stat: dict[str, Any]) -> str:
    return visible(f"{stat['directory']}: {stat['error']}") if "error" in stat else partition_text(stat)


def _unread(path: Path, error: str) -> dict[str, Any]:
    return {"directory": str(path), "error": error, "wrong": [error]}


def _others(names: list[str]) -> list[str]:
    """Sentences about directories that are not partitions in use."""
    kinds = {
        "-delete": "partitions that wait for their deletion",
        "-future": "partitions that a broker was moving here from another log directory",
        "-stray": "partitions that a broker has set aside, because the cluster does not have them here",
    }
    found: dict[str, list[str]] = {}
    for name in names:
        ending = next(
            (end for end in kinds if name.endswith(end) and layout.parse_directory(name) is not None), ""
        )
        found.setdefault(kinds.get(ending, "directories that are not partitions"), []).append(name)
    return [f"{what}: {', '.join(found[what])}" for what in sorted(found)]


def _things(wrong: list[str]) -> str:
    return "1 thing looks" if len(wrong) == 1 else f"{len(wrong)} things look"
