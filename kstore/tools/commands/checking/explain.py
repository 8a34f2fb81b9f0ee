"""kstore explain."""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import kstore
from kstore import explain as explaining
from kstore.broker.topic_options import TopicOptions, directories_of_broker, topic_options
from kstore.config import LogConfig
from kstore.errors import KstoreError
from kstore.explain.kept_segments import explained
from kstore.log.files.log_dir_state import kept_options
from kstore.properties import read_properties
from kstore.tools.numbers import counted, moment, offset, time_text
from kstore.tools.selection import add_selection_arguments, selected
from kstore.tools.terminal import aligned, note, say
from kstore.tools.writing import (
    add_config_argument,
    add_server_properties_argument,
    metadata_in,
    settings_of,
)

_OF_OPTIONS = ("retention", "compaction")
_SAVED_BY = {
    "log": "saved in the log",
    "store": "saved in the store",
    "broker": "from the broker's metadata",
    "given": "given",
    "server.properties": "from server.properties",
}
_SHOWN_BATCHES = 5


def add_explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        choices=tuple(_TEXTS),
        help="retention: why each segment is kept, and the earliest time of its deletion. lookup: the "
        "segment, the index entry and the batches that a lookup of --offset or --timestamp reads. opening: "
        "what an opening for writing, or a broker's start, would do. compaction: why records are not "
        "compacted yet. sizes: the bytes of keys, values and so on, and what other codecs would save",
    )
    parser.add_argument(
        "directory", metavar="DIR", help="partition directory; or a log directory, for all its partitions"
    )
    parser.add_argument("--offset", type=offset, help="for lookup: the offset to look up")
    parser.add_argument("--timestamp", type=moment, metavar="TIME", help="for lookup: the time to look up")
    parser.add_argument(
        "--keep-for",
        action="append",
        default=[],
        metavar="GROUP",
        help="for retention: keep the segments that this group has not read (may be repeated)",
    )
    parser.add_argument(
        "--at",
        type=moment,
        metavar="TIME",
        help="for retention and compaction: explain this time (default: now)",
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="for opening: assume that no batch was flushed, so that all are checked",
    )
    add_config_argument(parser)
    add_server_properties_argument(parser)
    add_selection_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object for each partition")


def explain(args: argparse.Namespace) -> int:
    """Explain retention, lookups, openings, compaction or sizes of a partition. Nothing is changed and
    nothing is locked. The saved options of the topic apply."""
    _check(args)
    partitions, _ = selected(args)
    code = 0
    for at, (path, found) in enumerate(_explanations(args, [each.path for each in partitions])):
        if isinstance(found, Exception):
            note(f"{path}: {found}")
            code = 1
        elif args.json:
            say(json.dumps(_plain(found)))
        else:
            say(*([""] if at else []), *_TEXTS[args.what](found))
    return code


def _check(args: argparse.Namespace) -> None:
    """ValueError for an option of another kind of explanation."""
    own = {
        "offset": ("lookup",),
        "timestamp": ("lookup",),
        "keep_for": ("retention",),
        "at": _OF_OPTIONS,
        "whole": ("opening",),
        "config": _OF_OPTIONS,
        "server_properties": _OF_OPTIONS,
    }
    for name, kinds in own.items():
        if getattr(args, name) not in (None, False, []) and args.what not in kinds:
            raise ValueError(f"--{name.replace('_', '-')} is for explain {' and explain '.join(kinds)}")
    if args.what == "lookup" and (args.offset is None) == (args.timestamp is None):
        both = "" if args.offset is None else ", not both"
        raise ValueError(f"explain lookup needs --offset or --timestamp{both}")


def _explanations(args: argparse.Namespace, paths: list[str]) -> Iterator[tuple[str, Any]]:
    """For each partition its explanation, or the error; an error of the only one is raised."""
    changes = settings_of(args.config)
    properties = read_properties(args.server_properties) if args.server_properties else {}
    metadata = metadata_in([*directories_of_broker(paths[0], properties), args.directory, *args.also])
    for path in paths:
        try:
            yield path, _explanation(args, path, changes, properties, metadata)
        except (KstoreError, OSError) as e:
            if len(paths) == 1:
                raise
            yield path, e


def _explanation(
    args: argparse.Namespace,
    path: str,
    changes: Mapping[str, str],
    properties: Mapping[str, str],
    metadata: Any,
) -> Any:
    if args.what == "opening":
        return explaining.opening(path, whole=args.whole)
    with kstore.open(path) as log:
        if args.what == "lookup":
            return explaining.lookup(log, offset=args.offset, timestamp=args.timestamp)
        if args.what == "sizes":
            return explaining.sizes(log)
        known = topic_options(path, metadata)
        config = known.config(changes, properties)
        if args.server_properties:
            config = config.replace(retention_ms=config.retention_ms)  # also if it is the default
        if args.what == "retention":
            now_ms = time.time_ns() // 1_000_000 if args.at is None else args.at
            found: Any = explained(log, config, known.source, now_ms, args.keep_for)
        else:
            found = explaining.compaction(log, config=config, now_ms=args.at)
        sources = [_source_of(name, path, changes, known) for name in found.options] or [known.source]
        return found._replace(source=sources[0] if len(set(sources)) == 1 else ", ".join(sources))


def _source_of(name: str, path: str, changes: Mapping[str, str], known: TopicOptions) -> str:
    """Where the option `name` of a topic has its value from, if it has one."""
    if name in changes:
        return "given"
    if known.source == "broker" and name in kept_options(path).options:
        return "log"
    brokers = LogConfig.from_server_properties(known.broker_options).given_options()
    if name in known.options or name.replace(".", "_") in brokers:
        return known.source
    return "server.properties"


def _plain(value: Any) -> Any:
    """Named tuples as JSON objects."""
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    return [_plain(each) for each in value] if isinstance(value, (tuple, list)) else value


def _head(found: Any) -> str:
    settings = [f"{name}={value}" for name, value in found.options.items()]
    sources = [_SAVED_BY[source] for source in found.source.split(", ")]
    if len(sources) > 1:  # one for each option
        settings = [f"{setting} ({source})" for setting, source in zip(settings, sources, strict=True)]
    elif settings:
        settings[-1] += f" ({sources[0]})"
    return (
        f"{found.path}: offsets {found.log_start_offset} to {found.log_end_offset} (exclusive), "
        f"{', '.join(settings) or 'no options were set'}"
    )


def _retention(found: explaining.Retention) -> list[str]:
    rows = [("base offset", "bytes", "newest record", "deleted at the earliest", "why")]
    for each in found.segments:
        when = "never"
        if each.deletable_at_ms is not None:
            when = "now" if each.deletable_at_ms <= found.now_ms else time_text(each.deletable_at_ms)
            when += f" ({each.deletable_by})"
        newest = time_text(each.largest_timestamp) + (" (of the file)" if each.timestamp_is_mtime else "")
        rows.append((str(each.base_offset), str(each.size), newest, when, each.reason))
    return [_head(found), *aligned(rows, (2, 3, 4)), *found.notes]


def _lookup(found: explaining.Lookup) -> list[str]:
    lines = [f"{found.path}: {found.reason}"]
    for each in found.segments:
        lines.append(f"segment {each.base_offset} ({each.path}): {each.reason}")
        if found.timestamp is not None:
            entry = each.time_index_entry
            text = "no entry" if entry is None else f"entry ({entry.timestamp}, offset {entry.offset})"
            lines.append(f"  time index: {text}")
        place = each.offset_index_entry
        text = (
            "no entry, from byte 0 on"
            if place is None
            else f"entry (offset {place.offset}, byte {place.position})"
        )
        lines.append(f"  offset index: {text}")
        lines += [f"  an index was rebuilt in memory: {note}" for note in each.notes]
        left_out = len(each.batches) - _SHOWN_BATCHES
        for at, batch in enumerate(each.batches):
            if left_out > 0 and at == _SHOWN_BATCHES - 1:
                lines.append(f"  {counted(left_out, 'more batch')} read")
            if left_out <= 0 or at < _SHOWN_BATCHES - 1 or at == len(each.batches) - 1:
                lines.append(
                    f"  batch at byte {batch.position}: offsets {batch.base_offset} to {batch.last_offset}, "
                    f"{batch.size} bytes, largest timestamp {batch.max_timestamp}"
                )
    if found.found is not None:
        time = time_text(found.found.timestamp)
        lines.append(f"found: offset {found.found.offset}, timestamp {found.found.timestamp} ({time})")
    return lines


def _opening(found: explaining.Opening) -> list[str]:
    how = (
        "closed cleanly"
        if found.clean
        else f"not closed cleanly, recovery begins at offset {found.recovery_point}"
    )
    if found.is_open:
        how = "open for writing now, so there is nothing to recover"
    left = f"offsets {found.log_start_offset} to {found.log_end_offset} (exclusive)"
    to_read = counted(found.bytes_to_read, "byte")
    lines = [f"{found.path}: {how}; {to_read} to read; the log would have {left}"]
    lines += [f"  {step.action or 'report'}: {step.file}: {step.text}" for step in found.steps]
    lines += [f"  lost: {loss}" for loss in found.losses]
    return lines if len(lines) > 1 else [*lines, "  nothing to repair"]


def _compaction(found: explaining.CompactionState) -> list[str]:
    cleanable = f"to offset {found.first_uncleanable_offset} (exclusive), {found.cleanable_bytes} bytes"
    lines = [
        _head(found),
        f"compacted: below offset {found.first_dirty_offset}, {found.clean_bytes} bytes",
        f"can be compacted: {cleanable}, dirty ratio {found.dirty_ratio:.3g}",
        f"cannot be compacted yet: {found.uncleanable_bytes} bytes",
        f"{'due' if found.is_due else 'not due'}: {found.reason}",
    ]
    if found.due_at_ms is not None and not found.is_due:
        lines.append(f"due at the earliest, if nothing is appended: {time_text(found.due_at_ms)}")
    for wait in found.waits:
        until = "" if wait.until_ms is None else f", until {time_text(wait.until_ms)}"
        lines.append(f"  {wait.kind}: {wait.text}{until}")
    return lines


def _sizes(found: explaining.Sizes) -> list[str]:
    names = {
        "values": "values",
        "keys": "keys",
        "headers": "headers",
        "record_overhead": "lengths, offsets, timestamps",
        "compressed_records": "compressed records",
        "batch_headers": "batch headers",
        "control_batches": "transaction markers",
        "unread": "in no sound batch",
        "indexes": "indexes",
        "other_files": "other files",
    }
    rows = [("bytes", "share", "what")]
    for name, text in names.items():
        if size := getattr(found, name):
            rows.append((str(size), f"{size / found.total:.1%}", text))
    rows.append((str(found.total), "100.0%" if found.total else "-", "all files"))
    lines = [
        f"{found.path}: {counted(found.record_count, 'record')}, {counted(found.batch_count, 'batch')}",
        *aligned(rows, (2,)),
    ]
    if found.compressed_records:
        content = found.decompressed_values, found.decompressed_keys, found.decompressed_headers
        texts = [
            f"{size} of {what}" for size, what in zip(content, ("values", "keys", "headers"), strict=True)
        ]
        lines.append(f"decompressed, the compressed records have {sum(content)} bytes: {', '.join(texts)}")
    for each in found.codecs:
        sample = f"{counted(each.sample_batches, 'batch')}, {each.sample_bytes} bytes"
        sizes = f"about {each.log_bytes} bytes of batches ({each.bytes} in a sample of {sample})"
        lines.append(f"with codec {each.codec}: {sizes}")
    return lines


_TEXTS: dict[str, Callable[[Any], list[str]]] = {
    "retention": _retention,
    "lookup": _lookup,
    "opening": _opening,
    "compaction": _compaction,
    "sizes": _sizes,
}
