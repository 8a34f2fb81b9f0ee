"""kstore records: the records of a partition as JSON Lines, CSV, text, Arrow or Parquet."""

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from kstore.engine.batch import Record, RecordBatch
from kstore.errors import CorruptRecordError, RecordTooLargeError
from kstore.log.partition import PartitionLog
from kstore.tools.columns import FORMATS, write_columns
from kstore.tools.fields import batch_fields, record_fields, redacted
from kstore.tools.opening import add_open_arguments, open_partition
from kstore.tools.progress import Progress
from kstore.tools.times import parse_time, time_text

COLUMNS = ("offset", "timestamp", "key", "value", "headers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_open_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("jsonl", "csv", "text", *FORMATS),
        default="text",
        help="jsonl: base64, with the fields of the batch; csv and text: UTF-8; arrow (an IPC stream) and parquet "
        "need pyarrow",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="where arrow and parquet go (default: stdout, unless that is a terminal)",
    )
    parser.add_argument(
        "--columns",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="columns for arrow and parquet (default: offset, timestamp, timestamp_type, key, value, headers)",
    )
    parser.add_argument("--start", type=int, metavar="OFFSET", help="first offset (default: log start)")
    parser.add_argument("--stop", type=int, metavar="OFFSET", help="offset to stop before (default: log end)")
    parser.add_argument(
        "--since",
        type=parse_time,
        metavar="TIME",
        help="leave out records with an earlier timestamp (ms or ISO 8601)",
    )
    parser.add_argument(
        "--until", type=parse_time, metavar="TIME", help="leave out records with this or a later timestamp"
    )
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed: no records of aborted transactions",
    )
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="skip: go on at the next good batch, and say on stderr what was left out",
    )
    parser.add_argument(
        "--control", action="store_true", help="transaction markers and batches without records too"
    )
    parser.add_argument(
        "--below-start",
        action="store_true",
        help="records below the log start offset that are still in the file too",
    )
    parser.add_argument(
        "--redact", action="store_true", help="hashes and lengths instead of keys, values and header values"
    )


def chosen(log: PartitionLog, args: argparse.Namespace) -> Iterator[tuple[int, RecordBatch, Record | None]]:
    """(segment's base offset, batch, record) of what was asked for; record None for a batch without any."""
    start = 0 if args.below_start and args.start is None else args.start
    if args.below_start:
        log = log.from_file_start()
    batches = log.batches(start, args.stop, isolation=args.isolation, on_error=args.on_error)
    size = sum(segment.size for segment in log.segments)
    start = max(log.log_start_offset, start or 0)
    stop = log.log_end_offset if args.stop is None else args.stop
    done = 0
    with Progress(size, "reading") as progress:
        for batch in batches:
            done += batch.size
            progress.update(done)
            if batch.is_control and not args.control:
                continue
            base = log.segments[log.floor_segment(batch.last_offset)].base_offset
            try:
                records = batch.records(verify=False)
            except (CorruptRecordError, RecordTooLargeError) as e:
                if args.on_error == "raise":
                    raise
                print(f"kstore: left out {batch.size} bytes: {e}", file=sys.stderr)
                continue
            if not records and args.control:
                yield base, batch, None
            for record in records:
                if (
                    start <= record.offset < stop
                    and (args.since is None or record.timestamp >= args.since)
                    and (args.until is None or record.timestamp < args.until)
                ):
                    yield base, batch, record
    for skipped in batches.skipped:
        print(f"kstore: left out {skipped.size} bytes: {skipped.error}", file=sys.stderr)


def run(args: argparse.Namespace) -> int:
    """Prints the records."""
    with open_partition(args) as log:
        if args.format in FORMATS:
            return run_columns(log, args)
        if args.format == "jsonl":
            last: RecordBatch | None = None
            about: dict[str, Any] = {}
            for base, batch, record in chosen(log, args):
                if batch is not last:
                    last, about = batch, {"segment": base, **batch_fields(batch)}
                    if about.pop("valid") is False:
                        about["valid"] = False
                fields = (
                    {"offset": None} if record is None else record_fields(batch, record, redact=args.redact)
                )
                print(json.dumps({**fields, "batch": about}, separators=(",", ":")))
        elif args.format == "csv":
            out = csv.writer(sys.stdout)
            out.writerow(COLUMNS)
            for _, _, record in chosen(log, args):
                if record is not None:
                    out.writerow(as_row(record, args.redact))
        else:
            for _, batch, record in chosen(log, args):
                if record is not None:
                    print(as_line(batch, record, args.redact))
        return 0


def run_columns(log: PartitionLog, args: argparse.Namespace) -> int:
    """Writes the records as columns."""
    if args.redact or args.control:
        sys.exit("kstore: --redact and --control do not go with --format arrow or parquet")
    if args.below_start:
        log = log.from_file_start()
    if args.output is None and sys.stdout.isatty():
        sys.exit("kstore: binary output to a terminal: name a file with --output, or redirect")
    try:
        scan = log.scan(
            args.columns,
            since=args.since,
            until=args.until,
            start=args.start,
            stop=args.stop,
            isolation=args.isolation,
            on_error=args.on_error,
        )
    except ValueError as e:
        sys.exit(f"kstore: {e}")
    with open(args.output, "wb") if args.output else nullcontext(sys.stdout.buffer) as out:  # noqa: PTH123
        write_columns(scan, args.format, out)
    for skipped in scan.skipped:
        print(f"kstore: left out {skipped.size} bytes: {skipped.error}", file=sys.stderr)
    return 0


def _text(data: bytes | None, redact: bool) -> str | None:
    if data is None:
        return None
    return redacted(data) if redact else data.decode("utf-8", "backslashreplace")


def as_row(record: Record, redact: bool) -> tuple[object, ...]:
    """A record as the fields of a CSV row, named in COLUMNS."""
    headers = json.dumps({n: _text(v, redact) for n, v in record.headers})
    return (
        record.offset,
        record.timestamp,
        _text(record.key, redact),
        _text(record.value, redact),
        headers if record.headers else "",
    )


def as_json(batch: RecordBatch, record: Record, redact: bool) -> str:
    """A record as a line of JSON, with the fields of its batch."""
    about = batch_fields(batch)
    if about.pop("valid") is False:
        about["valid"] = False
    return json.dumps({**record_fields(batch, record, redact=redact), "batch": about}, separators=(",", ":"))


def as_line(batch: RecordBatch, record: Record, redact: bool) -> str:
    """A record as a line of text."""
    key = _text(record.key, redact)
    value = _text(record.value, redact)
    line = f"{record.offset}\t{time_text(record.timestamp)}\t{'<null>' if key is None else key}"
    if batch.is_control:
        kind = record_fields(batch, record)["control_type"]
        return f"{record.offset}\t{time_text(record.timestamp)}\t<{kind} producer {batch.producer_id}>"
    line += f"\t{'<null>' if value is None else value}"
    for name, data in record.headers:
        line += f"\t{name}={_text(data, redact)}"
    return line.replace("\n", "\\n")
