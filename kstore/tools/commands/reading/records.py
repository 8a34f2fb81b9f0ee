"""kstore records."""

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from kstore.arguments import MAX_OFFSET, ON_ERROR, warn_of_seconds
from kstore.engine.record.batch import Record, RecordBatch
from kstore.engine.scan.batch_reader import Skipped
from kstore.errors import KstoreError
from kstore.log.partition import PartitionLog
from kstore.log.recovery.presence import is_partition
from kstore.tools.arrow_table import ArrowTable
from kstore.tools.numbers import TIMES_HELP, moment, offset
from kstore.tools.opening import (
    UNREAD,
    add_isolation_argument,
    add_open_arguments,
    add_remote_argument,
    open_partition,
)
from kstore.tools.output import check_output, open_output
from kstore.tools.printing import FORMS_HELP, Printer, add_form_arguments, check_form
from kstore.tools.progress import Progress
from kstore.tools.selection import Selected, add_selection_arguments, selected
from kstore.tools.terminal import note

FORMATS = ("arrow", "parquet")  # binary formats, written by pyarrow
ENDINGS = ("jsonl", "csv", *FORMATS)  # endings of names that are formats
TEXT = ("", "txt", "text", "tsv", "log")  # endings of names for the format text
_LEFT_AT_END = ("tail_left", "wrong_name", "file_tail")  # codes of findings


def add_records_arguments(parser: argparse.ArgumentParser) -> None:
    add_open_arguments(
        parser,
        "; or a log directory, such as data: the records of all partitions, one partition after the other by "
        "topic and number, each with its topic and partition. Topics whose names begin with __ need --topic",
    )
    add_selection_arguments(parser)
    add_remote_argument(parser)
    parser.add_argument(
        "--format",
        choices=("jsonl", "csv", "text", "log", *FORMATS),
        help=f"{FORMS_HELP}. arrow (an IPC stream) and parquet need pyarrow; timestamps are of the type "
        "timestamp[ms, UTC], and null where a record has none. Default: the ending of the name "
        "of --output, such as .parquet; text without --output, and for names that end with .txt, .tsv, "
        ".log or without an ending",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="a file to write instead of standard output. It is replaced when all records are written, and "
        "unchanged after an error. It must not be inside a partition directory. (arrow and parquet are "
        "not written to a terminal)",
    )
    parser.add_argument(
        "--columns",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="columns for arrow and parquet (default: offset, timestamp, timestamp_type, key, value, "
        "headers)",
    )
    parser.add_argument(
        "--bom",
        action="store_true",
        help="with --format csv: begin with a byte order mark, so that Excel reads UTF-8",
    )
    parser.add_argument("--offset", type=offset, help="only the record at this offset")
    parser.add_argument("--start", type=offset, metavar="OFFSET", help="first offset (default: log start)")
    parser.add_argument(
        "--stop", type=offset, metavar="OFFSET", help="offset to stop before (default: log end)"
    )
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help=f"leave out records with an earlier timestamp. {TIMES_HELP}",
    )
    parser.add_argument(
        "--until", type=moment, metavar="TIME", help="leave out records with this timestamp or a later one"
    )
    add_isolation_argument(parser, "leave out records of aborted and of open transactions")
    parser.add_argument(
        "--on-error",
        choices=ON_ERROR,
        default="raise",
        help="raise: stop at damage (default). skip: continue at the next undamaged batch, and report the "
        "damage on stderr. After a damaged batch header in the last segment this needs --as-is",
    )
    parser.add_argument(
        "--control", action="store_true", help="also print transaction markers and batches without records"
    )
    parser.add_argument(
        "--below-start",
        action="store_true",
        help="also print records below the log start offset that are still in the files",
    )
    add_form_arguments(parser, "; with --offset and without --format: print only the bytes of the value")


def note_range(log: PartitionLog, args: argparse.Namespace) -> None:
    """Note on stderr why a requested range is empty or begins later."""
    first, end = log.log_start_offset, log.log_end_offset
    start = "--start" if args.offset is None else "--offset"
    text = ""
    if args.start is not None and args.start > end:
        text = f"{start} {args.start} is beyond the log, which holds {first} to {end} (exclusive)"
    elif args.start is not None and args.stop is not None and args.stop <= args.start:
        text = f"--stop {args.stop} is not after --start {args.start}, so no offset is between them"
    elif args.stop is not None and args.stop <= first:
        text = f"no offset is before --stop {args.stop}: the log begins at {first}"
    elif args.start is not None and args.start < first:
        text = f"{start} {args.start} is below the log start offset: records begin at {first}"
    elif args.since is not None and args.until is not None and args.since == args.until:
        text = "no time is between --since and --until: --since must be earlier"
    if text:
        note(text)


def chosen(log: PartitionLog, args: argparse.Namespace) -> Iterator[tuple[int, RecordBatch, Record | None]]:
    """The selected records, as (base offset of the segment, batch, record); record None for an empty
    batch."""
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
            records, error = batch.sound_records()
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
    _note_left_out(log, batches.skipped, is_as_is=args.as_is)


def _note_left_out(log: PartitionLog, left_out: Iterable[Skipped], *, is_as_is: bool) -> None:
    """Report skipped bytes on stderr, with those behind the last batch of files that are read as they are."""
    told = set()
    for skipped in left_out:
        told.add(skipped.file)
        note(f"left out {skipped.size} bytes: {skipped.error}")
    for finding in log.recovery.findings if is_as_is else ():
        if finding.code in _LEFT_AT_END and finding.file not in told:
            note(f"left out: {finding.file}: {finding.text}")


def records(args: argparse.Namespace) -> int:
    """Print the records of a partition, or of the topics in a log directory, as JSON Lines, CSV, text, Arrow
    or Parquet; or the bytes of one value."""
    if args.output is not None:
        check_output(args.output)
    only_value = args.raw and args.offset is not None and args.format is None
    if only_value:
        args.format = "value"
    elif args.format is None:
        args.format = _format_of(args.output or "")
    _check(args, only_value=only_value)
    if args.offset is not None:
        args.start, args.stop = args.offset, min(args.offset + 1, MAX_OFFSET)
    partitions, has_places = selected(args, internal=False)
    if only_value:
        if len(partitions) > 1:
            raise ValueError("--raw with --offset is for one partition: give --topic and --partition")
        return _print_value(_of_one(args, partitions[0]))
    if args.format in FORMATS:
        return run_columns(args, partitions, has_places=has_places)
    for name, ms in (("--since", args.since), ("--until", args.until)):
        if ms is not None:
            warn_of_seconds(name, ms)
    code = 0
    with _output(args.output, text=True) as out:
        out.write("\ufeff" if args.bom else "")
        printer = Printer(args, out, places=has_places)
        for one, log in _logs(args, partitions):
            if log is None:
                code = 1
                continue
            if has_places:
                printer.place = str(one.topic), one.partition or 0
            for base, batch, record in chosen(log, args):
                printer.print(batch, record, segment=base)
            code = max(code, _code(log))
    return code


def _check(args: argparse.Namespace, *, only_value: bool) -> None:
    """ValueError for options that do not fit together."""
    if only_value and args.redact:
        raise ValueError("--raw and --redact cannot be used together")
    if not only_value:
        check_form(args)
    if args.bom and args.format != "csv":
        raise ValueError("--bom needs --format csv")
    if args.columns is not None and args.format not in FORMATS:
        raise ValueError("--columns needs --format arrow or parquet")
    if args.since is not None and args.until is not None and args.since > args.until:
        raise ValueError("no time is between --since and --until: --since must be earlier")
    if args.offset is not None and (args.start is not None or args.stop is not None):
        raise ValueError("--offset is one record: give it without --start and --stop")


def _of_one(args: argparse.Namespace, one: Selected) -> argparse.Namespace:
    remote = args.remote
    if remote is not None and not is_partition(args.directory):  # a log directory was shipped as a whole
        remote = f"{remote.rstrip('/')}/{Path(one.path).name}"
    return argparse.Namespace(**{**vars(args), "directory": one.path, "remote": remote})


def _logs(
    args: argparse.Namespace, partitions: Sequence[Selected]
) -> Iterator[tuple[Selected, PartitionLog | None]]:
    """The partitions, each opened in its turn and closed before the next one. None for one that cannot be
    opened, with --on-error skip and others."""
    for one in partitions:
        try:
            opened = open_partition(_of_one(args, one))
        except (KstoreError, OSError) as e:
            if args.on_error == "raise" or len(partitions) == 1:
                raise
            note(f"{one.path}: {e}")
            yield one, None
            continue
        with opened as log:
            view = log.from_file_start() if args.below_start else log
            note_range(view, args)
            yield one, view


def _print_value(args: argparse.Namespace) -> int:
    """Print the bytes of the value at --offset. 1 if it is null, or if there is no such record."""
    with open_partition(args) as log:
        record = (log.from_file_start() if args.below_start else log).get(args.offset)
    if record.offset != args.offset or record.value is None:
        is_null = record.offset == args.offset
        note(
            f"the value at offset {args.offset} is null" if is_null else f"no record has offset {args.offset}"
        )
        return 1
    if args.output is None and sys.stdout.isatty():  # which escapes control characters
        sys.stdout.write(record.value.decode("utf-8", "backslashreplace"))
        return 0
    with _output(args.output, text=False) as out:
        out.write(record.value)
    return 0


def _code(log: PartitionLog) -> int:
    """The exit code: 1 if a single file ends with damage, or if segments of a directory are compressed."""
    return int(any(finding.code in UNREAD for finding in log.recovery.findings))


def _format_of(path: str) -> str:
    """The format for the ending of a file name. ValueError for an unknown ending."""
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


def run_columns(args: argparse.Namespace, partitions: Sequence[Selected], *, has_places: bool) -> int:
    """Write the records as columns; with `has_places`, topic and partition are the first ones."""
    if args.redact or args.control:
        raise ValueError("--redact and --control cannot be used with --format arrow or parquet")
    if args.output is None and sys.stdout.isatty():
        raise ValueError(
            "--format arrow and parquet write no text: name a file with --output, or redirect the output"
        )
    code, table = 0, None
    with contextlib.ExitStack() as stack:
        for one, log in _logs(args, partitions):
            if log is None:
                code = 1
                continue
            scan = log.scan(
                args.columns,
                since=args.since,
                until=args.until,
                start=args.start,
                stop=args.stop,
                isolation=args.isolation,
                on_error=args.on_error,
            )
            if table is None:  # not before the options were checked
                out = stack.enter_context(_output(args.output, text=False))
                table = stack.enter_context(ArrowTable(scan, args.format, out, has_places=has_places))
            table.write(scan, one.topic, one.partition)
            _note_left_out(log, scan.skipped, is_as_is=args.as_is)
            code = max(code, _code(log))
    return code
