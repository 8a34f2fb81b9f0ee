"""kstore records: print the records of a partition as JSON Lines, CSV, text, Arrow or Parquet."""

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TextIO

from kstore.arguments import warn_of_seconds
from kstore.engine.record.batch import Record, RecordBatch
from kstore.engine.scan.batch_reader import Skipped
from kstore.errors import visible
from kstore.log.partition import PartitionLog
from kstore.tools.cells import guarded
from kstore.tools.columns import FORMATS, write_columns
from kstore.tools.fields import Form, batch_fields, encoded, hidden, plain, record_fields, redacted
from kstore.tools.numbers import moment, offset
from kstore.tools.opening import UNREAD, add_isolation_argument, add_open_arguments, open_partition
from kstore.tools.output import check_output, open_output
from kstore.tools.progress import Progress
from kstore.tools.terminal import for_terminal, note
from kstore.tools.times import time_text

ENDINGS = ("jsonl", "csv", *FORMATS)  # of names, and formats
TEXT = ("", "txt", "text", "tsv", "log")  # endings, too
_LEFT_AT_END = ("tail_left", "wrong_name", "file_tail")  # codes of findings
COLUMNS = ("offset", "timestamp", "key", "value", "headers")
FORMS_HELP = (
    'jsonl: one JSON object a line. Keys, values and header values are text, {"base64": "..."} if they are not UTF-8, or '
    "null. The fields of the batch are in it too. `kstore append --format jsonl` reads it. "
    "csv: in UTF-8. A cell that a spreadsheet would take for a formula, because it begins with = + - @, a tab or the end "
    "of a line (or with ' and then one of these) and is not a number, gets a ' in front; control characters are written "
    "as \\r and \\xNN, but a tab and the end of a line stay; --raw switches both off. Null and empty are both an empty cell, and bytes that are not UTF-8 are \\xNN, too. "
    "text: for people. Control characters are written as \\n, \\t, \\xNN"
)


def add_form_arguments(parser: argparse.ArgumentParser) -> None:
    """How records are printed."""
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
        help="with --format csv: print cells as they are, formulas and control characters too",
    )


def check_form(args: argparse.Namespace) -> None:
    """Refuses options of one format for another: passed over, they would mislead. ValueError."""
    if args.base64 and args.format != "jsonl":
        raise ValueError("--base64 needs --format jsonl")
    if args.base64 and args.redact:
        raise ValueError("--base64 and --redact cannot be used together")
    if args.raw and args.format != "csv":
        raise ValueError("--raw needs --format csv")


def form_of(args: argparse.Namespace) -> Form:
    """How keys, values and header values are put into JSON."""
    return hidden if args.redact else encoded if args.base64 else plain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_open_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("jsonl", "csv", "text", *FORMATS),
        help=f"{FORMS_HELP}. arrow (an IPC stream) and parquet need pyarrow. Default: what the name of --output ends with, "
        "such as .parquet; text without --output, and for names that end with .txt, .tsv, .log or nothing",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="a file to write instead of standard output. It is replaced when all records are written; after an error it "
        "is what it was before. Not inside a partition directory (arrow and parquet do not go to a terminal)",
    )
    parser.add_argument(
        "--columns",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="columns for arrow and parquet (default: offset, timestamp, timestamp_type, key, value, headers)",
    )
    parser.add_argument("--start", type=offset, metavar="OFFSET", help="first offset (default: log start)")
    parser.add_argument(
        "--stop", type=offset, metavar="OFFSET", help="offset to stop before (default: log end)"
    )
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="leave out records with an earlier timestamp. TIME is milliseconds since 1970, or ISO 8601 such as 2026-11-21T06:00:00 (UTC if no zone is given)",
    )
    parser.add_argument(
        "--until", type=moment, metavar="TIME", help="leave out records with this timestamp or a later one"
    )
    add_isolation_argument(parser, "leave out records of aborted and of open transactions")
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="raise: stop at damage (default). skip: go on at the next undamaged batch, and say on stderr what was left out",
    )
    parser.add_argument(
        "--control", action="store_true", help="print transaction markers and batches without records too"
    )
    parser.add_argument(
        "--below-start",
        action="store_true",
        help="print records below the log start offset too, if they are still in the files",
    )
    add_form_arguments(parser)


def note_range(log: PartitionLog, args: argparse.Namespace) -> None:
    """Says on stderr, in one line, why a range that was asked for is empty, or begins later."""
    first, end = log.log_start_offset, log.log_end_offset
    text = ""
    if args.start is not None and args.start > end:
        text = f"--start {args.start} is beyond the log, which holds {first} to {end} (exclusive)"
    elif args.start is not None and args.stop is not None and args.stop <= args.start:
        text = f"--stop {args.stop} is not after --start {args.start}, so no offset is between them"
    elif args.stop is not None and args.stop <= first:
        text = f"no offset is before --stop {args.stop}: the log begins at {first}"
    elif args.start is not None and args.start < first:
        text = f"--start {args.start} is below the log start offset: records begin at {first}"
    elif args.since is not None and args.until is not None and args.since >= args.until:
        text = "no time is between --since and --until: --since must be earlier"
    if text:
        note(text)


def chosen(log: PartitionLog, args: argparse.Namespace) -> Iterator[tuple[int, RecordBatch, Record | None]]:
    """(segment's base offset, batch, record) of what was asked for; record None for a batch without any."""
    batches = log.batches(args.start, args.stop, isolation=args.isolation, on_error=args.on_error)
    size = sum(segment.size for segment in log.segments)
    start = max(log.log_start_offset, args.start or 0)
    stop = log.log_end_offset if args.stop is None else args.stop
    done = 0
    with Progress(size, "reading") as progress:
        for batch in batches:
            done += batch.size
            progress.update(done)
            if batch.is_control and not args.control:
                continue
            base = log.segments[log.floor_segment(batch.last_offset)].base_offset
            records, error = batch._readable()
            if error is not None:
                if args.on_error == "raise":
                    raise error
                note(f"left out records of {batch.size} bytes: {error}")
            if not records and args.control:
                yield base, batch, None
            for record in records:
                if (
                    start <= record.offset < stop
                    and (args.since is None or record.timestamp >= args.since)
                    and (args.until is None or record.timestamp < args.until)
                ):
                    yield base, batch, record
    _tell_left_out(log, batches.skipped)


def _tell_left_out(log: PartitionLog, left_out: Iterable[Skipped]) -> None:
    """Says on stderr what was left out, also behind the last batch of files that are read as they are."""
    told = set()
    for skipped in left_out:
        told.add(skipped.file)
        note(f"left out {skipped.size} bytes: {skipped.error}")
    for finding in () if log._options.recover else log.recovery.findings:
        if finding.code in _LEFT_AT_END and finding.file not in told:
            note(f"left out: {finding.file}: {finding.text}")


def run(args: argparse.Namespace) -> int:
    """Prints the records."""
    if args.output is not None:
        check_output(args.output)
    if args.format is None:
        args.format = _format_of(args.output or "")
    check_form(args)
    if args.columns is not None and args.format not in FORMATS:
        raise ValueError("--columns needs --format arrow or parquet")
    with open_partition(args) as log:
        if args.below_start:
            log = log.from_file_start()
        note_range(log, args)
        if args.format in FORMATS:
            return run_columns(log, args)
        for name, ms in (("--since", args.since), ("--until", args.until)):
            if ms is not None:
                warn_of_seconds(name, ms)
        with _output(args.output, text=True) as out:
            _print(log, args, out)
    return _code(log)


def _code(log: PartitionLog) -> int:
    """1 if a single file ends in damage, or if segments of a directory are packed."""
    return int(any(finding.code in UNREAD for finding in log.recovery.findings))


def _format_of(path: str) -> str:
    """What the name of a file says. ValueError if it says something else than text, and none that there
    is."""
    file = Path(path)
    suffix = file.suffix.removeprefix(".").lower()
    if suffix in ENDINGS:
        return suffix
    if suffix in TEXT or (file.exists() and not file.is_file()):  # a pipe or a device
        return "text"
    raise ValueError(f"--output {path}: no format is known by the ending .{suffix}: give one with --format")


def _output(path: str | None, *, text: bool) -> AbstractContextManager[Any]:
    if path is not None:
        return open_output(path, text=text)
    return nullcontext(sys.stdout if text else sys.stdout.buffer)


def _print(log: PartitionLog, args: argparse.Namespace, out: TextIO) -> None:
    if args.format == "jsonl":
        form = form_of(args)
        last: RecordBatch | None = None
        about: dict[str, Any] = {}
        for base, batch, record in chosen(log, args):
            if batch is not last:
                last, about = batch, {"segment": base, **batch_fields(batch)}
                if about.pop("valid") is False:
                    about["valid"] = False
            fields = {"offset": None} if record is None else record_fields(batch, record, form)
            print(json.dumps({**fields, "batch": about}, separators=(",", ":")), file=out)
    elif args.format == "csv":
        rows = csv.writer(out)
        rows.writerow(COLUMNS)
        for _, _, record in chosen(log, args):
            if record is not None:
                rows.writerow(as_row(record, args.redact, args.raw))
    else:
        for _, batch, record in chosen(log, args):
            if record is not None:
                print(as_line(batch, record, args.redact), file=out)


def run_columns(log: PartitionLog, args: argparse.Namespace) -> int:
    """Writes the records as columns."""
    if args.redact or args.control:
        raise ValueError("--redact and --control cannot be used with --format arrow or parquet")
    if args.output is None and sys.stdout.isatty():
        raise ValueError(
            "--format arrow and parquet write no text: name a file with --output, or redirect the output"
        )
    scan = log.scan(
        args.columns,
        since=args.since,
        until=args.until,
        start=args.start,
        stop=args.stop,
        isolation=args.isolation,
        on_error=args.on_error,
    )
    with _output(args.output, text=False) as out:
        write_columns(scan, args.format, out)
    _tell_left_out(log, scan.skipped)
    return _code(log)


def _text(data: bytes | None, redact: bool) -> str | None:
    if data is None:
        return None
    return redacted(data) if redact else data.decode("utf-8", "backslashreplace")


def as_row(record: Record, redact: bool, raw: bool = False) -> tuple[object, ...]:
    """A record as the fields of a CSV row, named in COLUMNS; unless `raw`, no cell is a formula to a
    spreadsheet."""
    pairs = [(name, _text(value, redact)) for name, value in record.headers]
    named = dict(pairs)
    headers = (
        json.dumps(named if len(named) == len(pairs) else pairs) if pairs else ""
    )  # a name may come twice
    cells = [_text(record.key, redact), _text(record.value, redact), headers]
    if not raw:
        cells = [None if cell is None else guarded(for_terminal(cell)) for cell in cells]
    return record.offset, record.timestamp, *cells


def as_json(batch: RecordBatch, record: Record, form: Form = plain) -> str:
    """A record as a line of JSON, with the fields of its batch."""
    about = batch_fields(batch)
    if about.pop("valid") is False:
        about["valid"] = False
    return json.dumps({**record_fields(batch, record, form), "batch": about}, separators=(",", ":"))


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
