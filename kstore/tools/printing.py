"""Records as text: as JSON Lines, as rows of CSV, as lines for people."""

import argparse
import base64
import contextlib
import csv
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any, TextIO

from kstore.engine.record.batch import CONTROL_TYPES, Record, RecordBatch, control_type
from kstore.errors import visible
from kstore.tools.numbers import time_text
from kstore.tools.terminal import for_terminal

Fields = dict[str, Any]
Form = Callable[[bytes | None], object]  # the JSON form of keys, values and header values
COLUMNS = ("offset", "timestamp", "key", "value", "headers")  # of CSV
PLACE = ("topic", "partition")  # before these, if there are several partitions
FORMS_HELP = (
    'jsonl: one JSON object a line. Keys, values and header values are text, {"base64": "..."} if they are '
    "not UTF-8, or null. The object has the fields of the batch, too. `kstore append --format jsonl` reads "
    "it. csv: UTF-8. A ' is put before a cell that a spreadsheet would take for a formula, because it is not "
    "a number and begins with = + - @, a tab or a line end (or with ' and then one of these). Control "
    "characters except tabs and line ends are written as \\r and \\xNN. --raw switches both off. Null and "
    "empty are both an empty cell, and bytes that are not UTF-8 are \\xNN. text: for people. Control "
    "characters are written as \\n, \\t, \\xNN. log: for records of kstore.logging.LogHandler: time, level, "
    "logger, process, message and other fields; further lines of a message, such as a traceback, are indented"
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# the characters that OWASP names, their full-width forms, and either of these after quotes
_FORMULA = re.compile("'*[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]")


def add_form_arguments(parser: argparse.ArgumentParser, raw: str = "") -> None:
    """Add the options for the output of records. `raw`: what else --raw does."""
    parser.add_argument(
        "--redact",
        action="store_true",
        help="print hashes and lengths instead of keys, values and header values",
    )
    parser.add_argument(
        "--base64",
        action="store_true",
        help="with --format jsonl: print all keys, values and header values in base64, or as null",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help=f"with --format csv: print cells unchanged, with formulas and control characters{raw}",
    )


def check_form(args: argparse.Namespace) -> None:
    """Refuse options of another format, because ignoring them would mislead. ValueError."""
    if args.base64 and args.format != "jsonl":
        raise ValueError("--base64 needs --format jsonl")
    if args.base64 and args.redact:
        raise ValueError("--base64 and --redact cannot be used together")
    if args.redact and args.format == "log":
        raise ValueError("--redact cannot be used with --format log")
    if args.raw and args.format != "csv":
        one = " (or, in kstore records, --offset without --format)" if "offset" in args else ""
        raise ValueError(f"--raw needs --format csv{one}")


def batch_fields(batch: RecordBatch) -> Fields:
    """The header of a batch."""
    fields: Fields = {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "position": batch.position,
        "size": batch.size,
        "magic": batch.magic,
        "codec": batch.codec,
        "timestamp_type": batch.timestamp_type,
        "max_timestamp": batch.max_timestamp,
        "crc": batch.crc,
        "valid": batch.is_valid,
    }
    if batch.magic == 2:
        fields |= {
            "count": batch.records_count,
            "pid": batch.producer_id,
            "epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "last_sequence": batch.last_sequence,
            "transactional": batch.is_transactional,
            "control": batch.is_control,
            "leader_epoch": batch.leader_epoch,
            "delete_horizon": batch.delete_horizon_ms,
        }
    return fields


def plain(data: bytes | None) -> object:
    """UTF-8 as text, other bytes as {"base64": "..."}, None for null. `kstore append` reads them."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": encoded(data)}


def encoded(data: bytes | None) -> str | None:
    """Base64, or None for null."""
    return None if data is None else base64.b64encode(data).decode()


def hidden(data: bytes | None) -> object:
    """The text of `redacted`, marked so that no program takes it for the data."""
    return None if data is None else {"redacted": redacted(data)}


def redacted(data: bytes | None) -> str | None:
    """A short hash and the length. Equal data has equal text, and the text does not reveal the data."""
    return None if data is None else f"{hashlib.sha256(data).hexdigest()[:12]}:{len(data)}"


def record_fields(batch: RecordBatch, record: Record, form: Form = plain) -> Fields:
    """The fields of a record, without those of its batch."""
    if batch.is_control and form is hidden:
        form = plain  # a marker has no data
    fields: Fields = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": form(record.key),
        "value": form(record.value),
        "headers": [[name, form(value)] for name, value in record.headers],
    }
    sequence = batch.sequence_of(record)
    if sequence >= 0:
        fields["sequence"] = sequence
    if batch.is_control:
        kind = control_type(record.key, batch.file, batch.position)
        fields["control_type"] = CONTROL_TYPES[kind] if kind >= 0 else "UNKNOWN"
        if kind in (0, 1) and record.value is not None and len(record.value) >= 6:
            fields["coordinator_epoch"] = int.from_bytes(record.value[2:6], "big", signed=True)
    return fields


def _text(data: bytes | None, redact: bool) -> str | None:
    if data is None:
        return None
    return redacted(data) if redact else data.decode("utf-8", "backslashreplace")


def as_row(record: Record, redact: bool, raw: bool = False) -> tuple[object, ...]:
    """A record as the fields of a CSV row, named in COLUMNS. Unless `raw`, no spreadsheet takes a cell for a
    formula."""
    pairs = [(name, _text(value, redact)) for name, value in record.headers]
    named = dict(pairs)
    # header names may repeat
    headers = json.dumps(named if len(named) == len(pairs) else pairs) if pairs else ""
    cells = [_text(record.key, redact), _text(record.value, redact), headers]
    if not raw:
        cells = [None if cell is None else guarded(for_terminal(cell)) for cell in cells]
    return record.offset, record.timestamp, *cells


def as_json(
    batch: RecordBatch,
    record: Record | None,
    form: Form = plain,
    about: Fields | None = None,
    place: Fields | None = None,
) -> str:
    """A record as a line of JSON, with the fields of its batch unless `about` has them, and those of `place`.
    record None: an empty batch."""
    fields = {"offset": None} if record is None else record_fields(batch, record, form)
    return json.dumps(
        {**(place or {}), **fields, "batch": about or about_batch(batch)}, separators=(",", ":")
    )


def about_batch(batch: RecordBatch) -> Fields:
    """The header of a batch for `as_json`, with `is_valid` only if it is false."""
    fields = batch_fields(batch)
    if fields["valid"]:
        del fields["valid"]
    return fields


def as_line(batch: RecordBatch, record: Record, redact: bool) -> str:
    """A record as a line of text, in columns with tabs between them."""
    head = [str(record.offset), time_text(record.timestamp)]
    if batch.is_control:
        kind = record_fields(batch, record)["control_type"]
        return "\t".join([*head, f"<{kind} producer {batch.producer_id}>"])
    cells = [
        "<null>" if data is None else data
        for data in (_text(record.key, redact), _text(record.value, redact))
    ]
    cells += [f"{name}={'<null>' if data is None else _text(data, redact)}" for name, data in record.headers]
    return "\t".join([*head, *map(visible, cells)])


_OF_A_LINE = ("level", "logger", "process", "message")
_LEFT_OUT = ("thread", "source")


def as_log(record: Record) -> str:
    """A record of kstore.logging.LogHandler as a line: a line end in it cannot look like another record."""
    value = _text(record.value, False) or ""
    fields: Fields = {}
    for name, data in record.headers:
        fields.setdefault(name, _text(data, False))
    if not fields and value.startswith("{"):  # of a handler with as_json
        with contextlib.suppress(ValueError):
            found = json.loads(value)
            fields = found if "message" in found else {}
    fields = {
        "level": "-",
        "logger": _text(record.key, False) or "-",
        "process": "-",
        "message": value,
    } | fields
    level, logger, process, message = (str(fields[name]) for name in _OF_A_LINE)
    more = [
        f"{name}={each if isinstance(each, str) else json.dumps(each)}"
        for name, each in fields.items()
        if name not in (*_OF_A_LINE, *_LEFT_OUT)
    ]
    first, *others = message.splitlines() or [""]
    head = " ".join([time_text(record.timestamp), level.ljust(8), f"{logger}[{process}]:", first, *more])
    return "\n    ".join(map(visible, [head, *others]))


def guarded(text: str) -> str:
    """A cell that no spreadsheet takes for a formula: ' is put before a formula, unless it is a number.

    To undo it, remove one ' from a cell that begins with any number of ' and one of these characters.
    """
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return "'" + text
    return text


class Printer:
    """A printer of records in the form of --format, --redact, --base64 and --raw. `places`: each record is
    printed with its topic and partition, those of `place`."""

    def __init__(self, args: argparse.Namespace, out: TextIO, *, places: bool = False) -> None:
        self.place: tuple[str, int] | None = None
        self._format, self._redact, self._raw = args.format, args.redact, args.raw
        self._form = hidden if args.redact else encoded if args.base64 else plain
        self._out = out
        self._rows = csv.writer(out)
        self._batch: RecordBatch | None = None
        self._about: Fields = {}
        if args.format == "csv":
            self._rows.writerow((*PLACE, *COLUMNS) if places else COLUMNS)

    def print(self, batch: RecordBatch, record: Record | None, **about: object) -> None:
        """Print a record, or an empty batch, which only JSON shows. `about`: more fields of the batch."""
        if self._format == "jsonl":
            if batch is not self._batch:
                self._batch, self._about = batch, about | about_batch(batch)
            place = dict(zip(PLACE, self.place or (), strict=False))
            print(as_json(batch, record, self._form, self._about, place), file=self._out)
        elif record is None:
            return
        elif self._format == "csv":
            self._rows.writerow((*(self.place or ()), *as_row(record, self._redact, self._raw)))
        elif self._format == "log":
            if not batch.is_control:
                print(self._prefix(" ") + as_log(record), file=self._out)
        else:
            print(self._prefix("\t") + as_line(batch, record, self._redact), file=self._out)

    def _prefix(self, separator: str) -> str:
        return "" if self.place is None else separator.join((*map(str, self.place), ""))
