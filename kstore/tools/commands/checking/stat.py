"""kstore stat."""

import argparse
import contextlib
import json
import os
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

from kstore.engine.compact.last_offsets import KeyFile
from kstore.engine.record.batch import CODECS
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, KstoreError, LogNotFoundError, visible
from kstore.log.files import layout
from kstore.log.partition import PartitionLog
from kstore.log.read.key_index import key_file_of
from kstore.log.recovery.presence import is_partition
from kstore.store.store_directory import StoreDirectory
from kstore.tools.numbers import counted, time_text
from kstore.tools.opening import add_open_arguments, open_partition
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
        "--json", action="store_true", help="print one JSON object, or a list of them for a log directory"
    )


def segment_stat(segment: Segment) -> dict[str, Any]:
    """The figures of a segment from its headers, up to a damaged one. CorruptFileError, OSError."""
    size = segment.size
    try:
        headers = segment.read_headers()
    except CorruptFileError:
        segment.limit_to(segment.recovery_walk(verify=False).valid_bytes)
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
    keys, key_file = keys_of(segment)
    return {
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


def unread_stat(segment: Segment) -> dict[str, Any]:
    """The figures of a segment that cannot be read: only its size, if that is known."""
    known: dict[str, Any] = {"base_offset": segment.base_offset, "codecs": {}, "path": segment.path}
    with contextlib.suppress(OSError):
        known["bytes"] = segment.size
    return {**dict.fromkeys(FIGURES), **known}


def _first_timestamp(segment: Segment, headers: Any) -> int:
    """The timestamp of the first record, or -1. The smallest timestamp is not in the headers."""
    for position in headers["position"][headers["records_count"] != 0].tolist():
        for record in segment.batch_at(position).records(verify=False):
            return record.timestamp
    return -1


def partition_stat(log: PartitionLog) -> dict[str, Any]:
    """The figures of a partition and of its segments."""
    segments = []
    with Progress(len(log.segments), "reading") as progress:
        for done, segment in enumerate(log.segments):
            progress.update(done)
            try:
                segments.append(segment_stat(segment))
            except (CorruptFileError, OSError):
                segments.append(unread_stat(segment))
    try:
        topic_id = log.topic_id()
    except CorruptFileError:
        topic_id = None
    findings = log.recovery.findings
    return {
        "directory": log.path,
        "topic_id": None if topic_id is None else str(topic_id),
        "clean": log.recovery.clean,
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "leader_epochs": log.leader_epochs,
        "segments": segments,
        "leftovers": [f.file for f in findings if f.kind == "leftover"],
        "remote": [f.text for f in findings if f.kind == "remote"],
        "open_transactions": open_transactions(log),
    }


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
    """Print segments, sizes and ranges of time of a partition, or of all partitions of a log directory. The
    number of records includes transaction markers and records below the log start offset. A segment or a
    partition that cannot be read has a "?" or its error; kstore check has details."""
    path = Path(args.directory)
    if not path.exists():
        raise LogNotFoundError(f"no partition and no log directory at {path}")
    if is_partition(str(path)):
        if args.also:
            raise ValueError("--also is for a log directory, and this is a partition")
        stats = [partition_stat(open_partition(args, lists=True))]
        others: list[str] = []
    else:
        stats, others = _directory_stats(args)
    if args.json:
        print(json.dumps(stats[0] if len(stats) == 1 else stats))
    else:
        print("\n\n".join(map(_text, stats)))
    for text in others:
        note(text) if args.json else say(text)
    return 0


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
            path = Path(directory.path_of(tp))
            one = argparse.Namespace(**{**vars(args), "directory": str(path)})
            try:
                stats.append(partition_stat(open_partition(one, lists=True)))
            except (KstoreError, OSError) as e:
                stats.append(_unread(path, f"cannot be read: {e}"))
        others += directory.others
    if not stats:
        raise KstoreError(f"{args.directory} is neither a partition nor a log directory that holds any")
    return stats, _others(others)


def _text(stat: dict[str, Any]) -> str:
    return visible(f"{stat['directory']}: {stat['error']}") if "error" in stat else partition_text(stat)


def _unread(path: Path, error: str) -> dict[str, Any]:
    return {"directory": str(path), "error": error}


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
