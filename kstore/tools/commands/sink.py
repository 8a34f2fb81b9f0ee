"""kstore sink: what Spark's writers have under way and in staging beside a log directory, and the ways out."""

import argparse
import json
import sys
import time

from kstore.tools.numbers import counted, seconds
from kstore.tools.terminal import one_line
from kstore.tools.times import time_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    parser.add_argument("directory", metavar="DIR", help="log directory, such as data")
    parser.add_argument("--staging", metavar="DIR", help="the writers' stagingPath (default: beside DIR)")
    parser.add_argument(
        "--older-than",
        type=seconds,
        default=7 * 86_400.0,
        metavar="SECONDS",
        help="sweep what no task has written for so long (default 7 days)",
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--recover", action="store_true", help="finish the transaction that was begun")
    ways.add_argument(
        "--forget",
        action="store_true",
        help="give up the transaction that was begun; what of it is in the logs stays there",
    )
    ways.add_argument("--sweep", action="store_true", help="remove what would be swept")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Does what is asked, then prints a line for each thing."""
    from kstore.spark.publish import Sink

    sink = Sink(args.directory, staging=args.staging)
    sink.status()  # the directory is there
    if args.recover and not sink.recover():
        print("kstore: there was no transaction to finish", file=sys.stderr)
    if args.forget and not sink.forget():
        print("kstore: there was no transaction to give up", file=sys.stderr)
    if args.sweep:
        sink.sweep(args.older_than)
    found = sink.status(args.older_than)
    if args.json:
        print(json.dumps(found._asdict() | {"jobs": [job._asdict() for job in found.jobs]}))
        return 0
    if found.pending is not None:
        name, number = found.pending
        what = f"job {name}" if number is None else f"micro-batch {number} of query {name}"
        print(one_line(f"pending: {what}, {counted(found.record_count, 'record')}"))
        for path in found.not_staged:
            print(one_line(f"  not in staging: {path}"))
    for job in found.jobs:
        why = {
            "pending": "kept: the pending transaction needs it",
            "swept": f"would be swept: not written for {time.time() - job.written:.0f} s",
        }.get(job.fate, f"kept: written at {time_text(int(job.written * 1000))}")
        print(one_line(f"staged: {job.name}, {counted(job.size, 'byte')}, {why}"))
    for query, last in found.queries.items():
        print(one_line(f"published: micro-batch {last} of query {query}"))
    return 0
