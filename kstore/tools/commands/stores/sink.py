"""kstore sink."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from kstore.tools.numbers import counted, seconds
from kstore.tools.terminal import note, say


def add_sink_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="log directory, such as data")
    parser.add_argument("--staging", metavar="DIR", help="the writers' stagingPath (default: beside DIR)")
    parser.add_argument(
        "--older-than",
        type=seconds,
        default=7 * 86_400.0,
        metavar="SECONDS",
        help="sweep staging files that no task has written for so long (default 7 days)",
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--recover", action="store_true", help="finish the pending transaction")
    ways.add_argument(
        "--forget",
        action="store_true",
        help="abandon the pending transaction; its records that are in the logs stay there",
    )
    ways.add_argument("--sweep", action="store_true", help="remove old staging files")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="with --recover, --forget or --sweep: only print what would be done",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: the sink as it is then")


def sink(args: argparse.Namespace) -> int:
    """Print the pending transaction and the staging files of Spark's writers beside a log directory; or
    finish, abandon or sweep them."""
    from kstore.spark.writing.sink import Sink

    sink = Sink(args.directory, staging=args.staging)
    found = sink.status(args.older_than)  # the directory exists
    if args.dry_run and not (args.recover or args.forget or args.sweep):
        raise ValueError("--dry-run goes with --recover, --forget or --sweep")
    said: list[str] = []
    if args.recover or args.forget:
        said += _end(sink, found, args)
    if args.sweep:
        would = "would be swept" if args.dry_run else "swept"
        swept = sink.sweep(args.older_than, dry_run=args.dry_run)
        said += [f"{would}: {job.name}, {counted(job.size, 'byte')}, {job.reason}" for job in swept]
    if args.json:
        print(json.dumps(sink.status(args.older_than).as_dict()))
        return 0
    for line in said:
        say(line)
    if not args.dry_run:
        lines = list(_lines(sink.status(args.older_than)))
        for line in lines:
            say(line)
        if not lines and not said:
            note("nothing is pending, staged or published there")
    return 0


def _end(sink: Any, found: Any, args: argparse.Namespace) -> list[str]:
    """Finish or abandon the pending transaction, or describe what that would do."""
    if found.pending is None:
        note(f"there was no transaction to {'finish' if args.recover else 'give up'}")
        return []
    done = {True: ("would be finished", "would be given up"), False: ("finished", "given up")}[args.dry_run]
    what = f"{done[args.forget]}: {found.pending}, {counted(found.record_count, 'record')}"
    there = ", ".join(f"{'an unknown number' if n is None else n} in {tp}" for tp, n in found.in_logs.items())
    more = f"{what}, of which are in the logs already: {there}"
    if not args.dry_run:
        _ = sink.recover() if args.recover else sink.forget()
    return [more]


def _lines(found: Any) -> Iterator[str]:
    if found.pending is not None:
        yield f"pending: {found.pending}, {counted(found.record_count, 'record')}"
        for tp, count in found.in_logs.items():
            yield f"  in {tp} already: {'unknown' if count is None else count}"
        for path in found.not_staged:
            yield f"  not in staging: {path}"
    for job in found.jobs:
        would = "would be swept" if job.fate == "swept" else "kept"
        yield f"staged: {job.name}, {counted(job.size, 'byte')}, {would}: {job.reason}"
    for query, last in found.queries.items():
        span = f" ({last.source.range})" if last.source is not None and last.source.range else ""
        yield f"published: micro-batch {last.number} of query {query}{span}"
    if found.job_count:
        yield f"published: {counted(found.job_count, 'batch job')}"
