"""kstore follow."""

import argparse
import sys

from kstore.arguments import ON_ERROR
from kstore.engine.record.batch import Record, RecordBatch
from kstore.errors import CorruptRecordError, RecordTooLargeError
from kstore.log.follow.follower import Follower
from kstore.tools.numbers import count, offset, seconds
from kstore.tools.opening import add_isolation_argument, add_open_arguments, open_partition
from kstore.tools.printing import FORMS_HELP, Printer, add_form_arguments, check_form
from kstore.tools.terminal import note


def add_follow_arguments(parser: argparse.ArgumentParser) -> None:
    add_open_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("jsonl", "csv", "text", "log"),
        default="text",
        help=f"{FORMS_HELP}. Default: text",
    )
    first = parser.add_mutually_exclusive_group()
    first.add_argument(
        "--start",
        type=offset,
        metavar="OFFSET",
        help="first offset (default: the log end, so only what is appended from now on)",
    )
    first.add_argument("--from-start", action="store_true", help="begin with the existing records")
    parser.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="end when no record was appended for this long"
    )
    parser.add_argument("--count", type=count, metavar="N", help="end after this many records")
    add_isolation_argument(
        parser, "leave out records of aborted transactions, and wait for the commit of open ones"
    )
    parser.add_argument(
        "--on-error",
        choices=ON_ERROR,
        default="raise",
        help="raise: stop at damage (default). skip: continue after it, and report it on stderr",
    )
    parser.add_argument("--control", action="store_true", help="print transaction markers too")
    add_form_arguments(parser)


def follow(args: argparse.Namespace) -> int:
    """Print the records of a partition as they are appended, until Ctrl-C or --timeout."""
    check_form(args)
    with open_partition(args) as log:
        start = log.log_start_offset if args.from_start else args.start
        with log.follow(
            start, timeout=args.timeout, isolation=args.isolation, on_error=args.on_error, records=False
        ) as batches:
            _print(batches, start or 0, args)
    return 0


def _print(batches: Follower[RecordBatch], start: int, args: argparse.Namespace) -> None:
    left = sys.maxsize if args.count is None else args.count
    printer = Printer(args, sys.stdout)
    reported = 0
    for batch in batches if left > 0 else ():
        reported = _report_skipped(batches, reported)
        if batch.is_control and not args.control:
            continue
        for record in _records_of(batch, args.on_error):
            if record.offset < start:
                continue
            printer.print(batch, record)
            left -= 1
            if left == 0:
                return
        sys.stdout.flush()  # a reader of the pipe waits for the line
    _report_skipped(batches, reported)


def _report_skipped(batches: Follower[RecordBatch], reported: int) -> int:
    """Report skipped damage on stderr, after the first `reported` ones. Returns the new number."""
    skipped = batches.skipped
    for each in skipped[reported:]:
        note(f"left out {each.size} bytes: {each.error}")
    return len(skipped)


def _records_of(batch: RecordBatch, on_error: str) -> list[Record]:
    try:
        return batch.records(verify=False)
    except (CorruptRecordError, RecordTooLargeError) as e:
        if on_error == "raise":
            raise
        note(f"left out {batch.size} bytes: {e}")
        return []
