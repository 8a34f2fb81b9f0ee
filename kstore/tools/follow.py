"""kstore follow: the records of a partition as they are appended, until Ctrl-C or --timeout."""

import argparse
import csv
import sys

from kstore.engine.batch import RecordBatch
from kstore.log.follower import Follower
from kstore.tools.opening import add_open_arguments, open_partition
from kstore.tools.records import COLUMNS, as_json, as_line, as_row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_open_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("jsonl", "csv", "text"),
        default="text",
        help="jsonl: base64, with the fields of the batch; csv and text: UTF-8",
    )
    parser.add_argument(
        "--start", type=int, metavar="OFFSET", help="first offset (default: what is appended from now on)"
    )
    parser.add_argument("--from-start", action="store_true", help="begin with what is there already")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="end when nothing was appended for so long"
    )
    parser.add_argument("--count", type=int, metavar="N", help="end after so many records")
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed: no records of aborted transactions, and of open ones only once they are committed",
    )
    parser.add_argument("--control", action="store_true", help="transaction markers too")
    parser.add_argument(
        "--redact", action="store_true", help="hashes and lengths instead of keys, values and header values"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the records, each as soon as it is there."""
    with open_partition(args) as log:
        start = log.log_start_offset if args.from_start and args.start is None else args.start
        with log.follow(start, timeout=args.timeout, isolation=args.isolation, records=False) as batches:
            if args.format == "csv":
                csv.writer(sys.stdout).writerow(COLUMNS)
            _print(batches, start or 0, args)
    return 0


def _print(batches: Follower[RecordBatch], start: int, args: argparse.Namespace) -> None:
    left = sys.maxsize if args.count is None else args.count
    out = csv.writer(sys.stdout)
    for batch in batches if left > 0 else ():
        if batch.is_control and not args.control:
            continue
        for record in batch.records(verify=False):
            if record.offset < start:
                continue
            if args.format == "jsonl":
                print(as_json(batch, record, args.redact))
            elif args.format == "csv":
                out.writerow(as_row(record, args.redact))
            else:
                print(as_line(batch, record, args.redact))
            left -= 1
            if left == 0:
                return
        sys.stdout.flush()  # whoever reads this waits for it
