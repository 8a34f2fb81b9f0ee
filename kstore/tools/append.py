"""kstore append: append lines or JSON Lines from standard input to a partition."""

import argparse
import base64
import json
import os
import stat
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from kstore.log.writer import LogWriter
from kstore.tools.progress import Progress
from kstore.tools.writing import add_write_arguments, open_writer

CHUNK = 4096  # records of one extend()


class Row(NamedTuple):
    """A record as it is read; timestamp None for now."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_write_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("lines", "jsonl"),
        default="lines",
        help="lines: each line is a value; jsonl: objects with key, value (base64 or null), timestamp, headers, as "
        "`kstore records --format jsonl` prints them",
    )
    parser.add_argument(
        "--key-separator", metavar="TEXT", help="with lines: what comes before this is the key"
    )
    parser.add_argument(
        "--text", action="store_true", help="with jsonl: key, value and headers are text, not base64"
    )
    parser.add_argument(
        "--batch-bytes", type=int, default=16384, metavar="BYTES", help="size of a batch (default 16384)"
    )
    parser.add_argument(
        "--durable", action="store_true", help="flush at the end, and say so only when all is on the disk"
    )


def run(args: argparse.Namespace) -> int:
    """Appends what comes, and prints the offsets that it got."""
    source = sys.stdin.buffer
    rows = _lines(source, args.key_separator) if args.format == "lines" else _objects(source, args.text)
    status = os.fstat(source.fileno())
    total = status.st_size if stat.S_ISREG(status.st_mode) else 0
    with open_writer(args, "a") as log, Progress(total, "append") as progress:
        first = end = log.log_end_offset
        chunk: list[Row] = []
        done = 0
        for row in rows:
            chunk.append(row)
            done += len(row.value or b"") + len(row.key or b"") + 1
            if len(chunk) == CHUNK:
                end = _append(log, chunk, args.batch_bytes)
                chunk.clear()
                progress.update(done)
        if chunk:
            end = _append(log, chunk, args.batch_bytes)
        if args.durable:
            log.flush()
    print(f"{end - first} records appended" + (f": offsets {first} to {end - 1}" if end > first else ""))
    return 0


def _append(log: LogWriter, rows: list[Row], batch_bytes: int) -> int:
    now = log.clock_ms()
    return log.extend(
        [row.value for row in rows],
        [row.key for row in rows],
        [now if row.timestamp is None else row.timestamp for row in rows],
        [row.headers for row in rows] if any(row.headers for row in rows) else None,
        batch_bytes=batch_bytes,
    ).stop


def _lines(source: BinaryIO, separator: str | None) -> Iterator[Row]:
    mark = separator.encode() if separator else None
    for line in source:
        value = line.removesuffix(b"\n")
        if mark is None:
            yield Row(value)
        else:
            key, found, rest = value.partition(mark)
            yield Row(rest, key) if found else Row(value)


def _objects(source: BinaryIO, text: bool) -> Iterator[Row]:
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        try:
            yield _row(json.loads(line), text)
        except (ValueError, TypeError, KeyError) as e:
            raise ValueError(f"line {number}: {e}") from None


def _row(fields: Any, text: bool) -> Row:
    def data(value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise TypeError(f"{value!r} is neither text nor null")
        return value.encode() if text else base64.b64decode(value, validate=True)

    if not isinstance(fields, dict):
        raise TypeError("not an object")
    headers = tuple((str(name), data(value)) for name, value in fields.get("headers") or ())
    timestamp = fields.get("timestamp")
    if timestamp is not None and (isinstance(timestamp, bool) or not isinstance(timestamp, int)):
        raise TypeError(f"timestamp {timestamp!r} is not a number of ms")
    return Row(data(fields.get("value")), data(fields.get("key")), timestamp, headers)
