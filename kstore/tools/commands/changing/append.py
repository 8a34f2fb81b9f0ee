"""kstore append."""

import argparse
import base64
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

from kstore.arguments import MAX_DECOMPRESSED_BYTES
from kstore.engine.record.batch import CODECS
from kstore.engine.record.batch_builder import encode_batch
from kstore.errors import InvalidRecordError, RecordTooLargeError, visible
from kstore.log.writer import LogWriter
from kstore.tools.numbers import byte_count, counted
from kstore.tools.progress import Progress
from kstore.tools.terminal import note
from kstore.tools.writing import add_write_arguments, config_of, open_writer

CHUNK = 4096  # records of one extend()
_MOST_DELTA = 2**31 - 1  # offsets of one batch
READ = 1 << 16  # bytes of one read: a pipe holds as many
FIELDS = ("value", "key", "timestamp", "headers")
_ANY_TIME = f"message.timestamp.after.max.ms={2**63 - 1}"
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|.|$)", re.DOTALL)
_RECORD = re.compile(r"\brecord (\d+)\b")  # the index of a record in an error of extend()
_ESCAPES = {"t": "\t", "\\": "\\"}
PASSED_OVER = (
    "topic",
    "partition",
    "offset",
    "sequence",
    "batch",
)  # fields of the old position of the record


class Row(NamedTuple):
    """A record of the input; timestamp None for now."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    line: int = 0  # the number of its line, from 1
    is_transactional: bool = False  # whether it was in a transaction in the old log
    offset: int = -1  # in the old log, and its leader epoch there; -1 if it is not known
    leader_epoch: int = -1


def add_append_arguments(parser: argparse.ArgumentParser) -> None:
    add_write_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("lines", "jsonl"),
        default="lines",
        help="lines: each line is a value; its end, LF or CR LF, is not part of it. jsonl: one object a "
        "line, as `kstore records --format jsonl` prints them: value (required), key and headers (pairs, "
        "or an object), each text, "
        '{"base64": "..."} or null; timestamp (milliseconds; now if it is null or missing). The fields '
        "topic, partition, offset (without --keep-offsets), sequence and batch are ignored; any other field "
        "is an error",
    )
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        help=r"with --format lines: the text before the first TEXT is the key, the rest the value; a line "
        r"without TEXT has no key. \t is a tab, \\ a backslash, \xNN the character of that code",
    )
    parser.add_argument(
        "--base64",
        action="store_true",
        help="with --format jsonl: keys, values and header values are in base64 or null, as `kstore records "
        "--base64` prints them",
    )
    parser.add_argument(
        "--keep-offsets",
        action="store_true",
        help="with --format jsonl: the records keep the offsets in the field offset, which must rise from "
        "the log end offset on and may have gaps, and the leader epoch in batch.leader_epoch if there is one",
    )
    parser.add_argument(
        "--batch-bytes",
        type=byte_count,
        default=16384,
        metavar="BYTES",
        help="largest size of a batch (default 16384)",
    )
    parser.add_argument(
        "--durable",
        action="store_true",
        help="flush at the end: all records are on the disk when the command ends",
    )


def append(args: argparse.Namespace) -> int:
    """Append lines or JSON Lines from standard input to a partition, and print the offsets that the records
    got. After an error, the records before it are in the log, and their offsets are printed."""
    if sys.stdin is None:
        raise OSError("standard input is closed: there is nothing to append")
    if args.base64 and args.format != "jsonl":
        raise ValueError("--base64 needs --format jsonl")
    if args.keep_offsets and args.format != "jsonl":
        raise ValueError("--keep-offsets needs --format jsonl")
    if args.key_separator is not None and args.format != "lines":
        raise ValueError("--key-separator needs --format lines")
    separator = None if args.key_separator is None else unescaped(args.key_separator)
    source = sys.stdin.buffer
    lines = _split(source, _longest_line(args))
    rows = _lines(lines, separator) if args.format == "lines" else _objects(lines, args.base64)
    # read the first line before creating anything, because it may be wrong
    rows = chain([next((row for row in rows if row is not None), None)], rows)
    status = os.fstat(source.fileno())
    total = status.st_size if stat.S_ISREG(status.st_mode) else 0
    with open_writer(args, "a") as log, Progress(total, "append") as progress:
        first = log.log_end_offset
        keeping = _KeepingOffsets(log) if args.keep_offsets else None
        append = partial(_append, log) if keeping is None else keeping.append

        def summary() -> str:
            end = log.log_end_offset
            return _summary(first, end, end - first if keeping is None else keeping.count)

        try:
            transactional = _append_all(append, rows, args.batch_bytes, progress)
            if args.durable:
                log.flush()
        except (Exception, KeyboardInterrupt) as e:
            what = "it was interrupted" if isinstance(e, KeyboardInterrupt) else "this:"
            note(f"{summary()} before {what}")
            raise
        told = summary()
    if transactional:
        note(
            f"{counted(transactional, 'record')} were in transactions, and are outside of any now. They "
            "include those of aborted ones, unless `kstore records --isolation read_committed` left them out"
        )
    _tell(told)
    return 0


def _tell(summary: str) -> None:
    """Print the summary. If stdout fails, its OSError contains the summary, so that the user does not append
    all records again."""
    try:
        print(visible(summary), flush=True)
    except BrokenPipeError:
        raise
    except OSError as e:
        raise OSError(
            f"{summary}. Only this report failed, on standard output: {e.strerror}. The records are in the "
            "log: do not append them again"
        ) from e


def unescaped(text: str) -> bytes:
    r"""The separator of keys, with \t, \\ and \xNN replaced. ValueError."""

    def character(found: re.Match[str]) -> str:
        known = _ESCAPES.get(found[0][1:])
        if known is None and found[1] is None:
            raise ValueError(rf"--key-separator {text!r}: {found[0]} is not one of \t, \\ and \xNN")
        return known or chr(int(found[1], 16))

    separator = _ESCAPE.sub(character, text)
    if not separator:
        raise ValueError("--key-separator is empty")
    if "\n" in separator:
        raise ValueError("--key-separator contains the end of a line, which no line contains")
    return separator.encode("utf-8", "surrogateescape")


def _summary(first: int, end: int, count: int) -> str:
    which = f": offsets {first} to {end - 1}" if end - first == count > 0 else ""
    return f"{counted(count, 'record')} appended" + (which or (f", up to offset {end - 1}" if count else ""))


def _append_all(
    append: Callable[[list[Row], int], None], rows: Iterator[Row | None], batch_bytes: int, progress: Progress
) -> int:
    """Append rows; return how many of them were in transactions. ValueError, InvalidRecordError or
    RecordTooLargeError for a line, after all lines before it were appended."""
    chunk: list[Row] = []
    done = transactional = 0
    wrong: ValueError | None = None
    while True:
        try:
            row = next(rows)
        except StopIteration:
            break
        except ValueError as e:
            wrong = e
            break
        if row is not None:
            chunk.append(row)
            transactional += row.is_transactional
            done += len(row.value or b"") + len(row.key or b"") + 1
        if chunk and (row is None or len(chunk) == CHUNK):
            append(chunk, batch_bytes)
            chunk.clear()
            progress.update(done)
    if chunk:
        append(chunk, batch_bytes)
    if wrong is not None:
        raise wrong
    return transactional


def _longest_line(args: argparse.Namespace) -> int:
    """The largest size of a line. A record of a longer one would be too large to append."""
    config = config_of(args)
    packed = config.compression_type not in ("producer", "uncompressed")
    largest = MAX_DECOMPRESSED_BYTES if packed else config.max_message_bytes
    # in JSON a byte takes up to 6, as \u0000, and the fields of the batch are not appended
    return largest if args.format == "lines" else 6 * largest + READ


def _split(source: BinaryIO, longest: int) -> Iterator[bytes | None]:
    """Yield lines; None when no further line has arrived yet, so that the lines before it are appended.
    RecordTooLargeError, with the number of the line, as soon as a line is longer than `longest`."""
    number = 1
    rest = bytearray()
    while data := os.read(source.fileno(), READ):
        first, *others = data.split(b"\n")
        rest += first
        for other in others:
            yield bytes(rest)
            number += 1
            rest = bytearray(other)
        if len(rest) > longest:
            raise RecordTooLargeError(
                f"line {number} larger than a record of this log may be",
                size=len(rest),
                limit=longest,
            )
        if len(data) < READ:
            yield None
    if rest:
        yield bytes(rest)


def _append(log: LogWriter, rows: list[Row], batch_bytes: int) -> None:
    now = log.clock_ms()
    try:
        log.extend(
            [row.value for row in rows],
            [row.key for row in rows],
            [now if row.timestamp is None else row.timestamp for row in rows],
            [row.headers for row in rows] if any(row.headers for row in rows) else None,
            batch_bytes=batch_bytes,
        )
    except (InvalidRecordError, RecordTooLargeError) as e:
        if found := _RECORD.search(str(e)):
            at = int(found[1])
            if at:
                _append(log, rows[:at], batch_bytes)
            e.args = (str(e).replace(found[0], f"line {rows[at].line}", 1),)
            if "message_timestamp_after_max_ms allows" in str(e):
                e.add_note(f"for a copy of records, which keeps such timestamps: --config {_ANY_TIME}")
        raise


class _KeepingOffsets:
    """Appends rows with the offsets that they have."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self.count = 0  # of the appended rows
        self._least = log.log_end_offset
        self._epoch = log.leader_epoch
        codec = log.config.compression_type
        self._codec = codec if codec in CODECS else "none"

    def append(self, rows: list[Row], batch_bytes: int) -> None:
        """ValueError for a row, after all rows before it were appended."""
        batch: list[Row] = []
        size = 0
        for row in rows:
            try:
                epoch = self._checked(row)
            except ValueError:
                self._write(batch)
                raise
            more = len(row.value or b"") + len(row.key or b"") + 20
            is_far = bool(batch) and row.offset - batch[0].offset > _MOST_DELTA
            if size + more > batch_bytes or epoch != self._epoch or is_far:
                self._write(batch)
                batch, size = [], 0
            self._epoch, self._least = epoch, row.offset + 1
            batch.append(row)
            size += more
        self._write(batch)

    def _checked(self, row: Row) -> int:
        """The leader epoch of a row. ValueError."""
        if row.offset < 0:
            raise ValueError(f"line {row.line}: no offset, which --keep-offsets needs")
        if row.offset < self._least:
            raise ValueError(f"line {row.line}: offset {row.offset} must be at least {self._least}")
        epoch = self._epoch if row.leader_epoch < 0 else row.leader_epoch
        if epoch < self._epoch:
            raise ValueError(f"line {row.line}: leader epoch {epoch} must be at least {self._epoch}")
        return epoch

    def _write(self, rows: list[Row]) -> None:
        if not rows:
            return
        now, base = self._log.clock_ms(), rows[0].offset
        records = [
            (now if row.timestamp is None else row.timestamp, row.key, row.value, row.headers) for row in rows
        ]
        data = encode_batch(
            records,
            base_offset=base,
            codec=self._codec,
            leader_epoch=self._epoch,
            offset_deltas=[row.offset - base for row in rows],
        )
        self._log.append_batches(data, keep_offsets=True)
        self.count += len(rows)


def _lines(lines: Iterable[bytes | None], separator: bytes | None) -> Iterator[Row | None]:
    number = 0
    for line in lines:
        if line is None:
            yield None
            continue
        number += 1
        value = line.removesuffix(b"\r")  # as in Kafka's console producer
        if separator is None:
            yield Row(value, line=number)
        else:
            key, found, rest = value.partition(separator)
            yield Row(rest, key, line=number) if found else Row(value, line=number)


def _objects(lines: Iterable[bytes | None], is_base64: bool) -> Iterator[Row | None]:
    number = 0
    for line in lines:
        if line is None:
            yield None
            continue
        number += 1
        if not line.strip():
            continue
        try:
            yield _row(json.loads(line, object_pairs_hook=_names_once), is_base64)._replace(line=number)
        except json.JSONDecodeError as e:
            raise ValueError(f"line {number}: no JSON: {e.msg}, at character {e.colno}") from None
        except (ValueError, TypeError, RecursionError) as e:
            raise ValueError(f"line {number}: {e}") from None


def _names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of a JSON object. ValueError for a duplicate name, of which json would keep the last
    value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is twice in an object; headers of one name can be given as pairs")
    return found


def _row(fields: Any, is_base64: bool) -> Row:
    if not isinstance(fields, dict):
        raise TypeError("not an object")
    for name in fields:
        if name == "control_type":
            raise ValueError("a transaction marker, which cannot be appended as a record")
        if name not in FIELDS and name not in PASSED_OVER:
            raise ValueError(f"unknown field {name!r}: the fields are {', '.join(FIELDS)}")
    if "value" not in fields:
        raise ValueError("no value: give null for a record without one")
    given = fields.get("headers") or ()
    pairs = given.items() if isinstance(given, dict) else given
    headers = tuple(_header(pair, is_base64) for pair in pairs)
    timestamp = fields.get("timestamp")
    if timestamp is not None and (isinstance(timestamp, bool) or not isinstance(timestamp, int)):
        raise TypeError(f"timestamp {timestamp!r} is not a number of ms")
    batch = fields.get("batch")
    return Row(
        _data("value", fields["value"], is_base64),
        _data("key", fields.get("key"), is_base64),
        timestamp,
        headers,
        is_transactional=isinstance(batch, dict) and batch.get("transactional") is True,
        offset=_whole("offset", fields.get("offset")),
        leader_epoch=_whole("leader_epoch", batch.get("leader_epoch")) if isinstance(batch, dict) else -1,
    )


def _whole(name: str, value: object) -> int:
    """A number from 0 on, or -1 for none. TypeError."""
    if value is None or value == -1:
        return -1
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise TypeError(f"{name} {value!r:.80} is not a number from 0 on")
    return value


def _header(pair: Any, is_base64: bool) -> tuple[str, bytes | None]:
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
        raise TypeError(f"headers are pairs of a name and a value, not {pair!r:.80}")
    pair[0].encode()  # otherwise extend() would refuse the earlier lines, too, for a lone surrogate
    return pair[0], _data(f"header {pair[0]!r}", pair[1], is_base64)


def _data(what: str, value: object, is_base64: bool) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _unpacked(what, value) if is_base64 else value.encode()
    if (
        isinstance(value, dict)
        and value.keys() == {"base64"}
        and isinstance(value["base64"], str)
        and not is_base64
    ):
        return _unpacked(what, value["base64"])
    if isinstance(value, dict) and "redacted" in value:
        raise ValueError(f"the {what} was redacted: the data is not here")
    allowed = "base64" if is_base64 else 'text, {"base64": "..."}'
    raise TypeError(f"the {what} is {allowed} or null, not {value!r:.80}")


def _unpacked(what: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"the {what} is not base64: {text!r:.80}") from None
