"""kstore ship."""

import argparse
import json

import kstore
from kstore.log.files.layout import is_partition_name
from kstore.tools.numbers import counted, whole
from kstore.tools.progress import Progress
from kstore.tools.terminal import note, say


def add_ship_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="DIR",
        help="partition directory, or log directory of a store or a broker; others may write it meanwhile",
    )
    parser.add_argument(
        "url",
        metavar="URL",
        help="a directory in an object store or another remote file system, such as s3://bucket/logs",
    )
    parser.add_argument(
        "--local-retention-ms",
        type=whole("a number of milliseconds", 0, 2**63 - 1),
        metavar="MS",
        help="then delete segments of DIR whose newest record is older than this, 0 for all shipped ones, if "
        "their remote files are equal. No other process may have DIR open for writing",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def ship(args: argparse.Namespace) -> int:
    """Upload the sealed segments of a partition or a log directory to a URL, each once, with their indexes
    and snapshots of producers. Each segment is read back and compared by SHA-256. Other commands can read the
    URL at any time. Several runs may run at once, and the next run continues an interrupted one. The exit
    code is 1 if records are missing at the URL, or a partition failed."""
    with Progress(0, "ship") as progress:
        report = kstore.ship(
            args.source, args.url, local_retention_ms=args.local_retention_ms, progress=progress.share
        )
    for gap in report.gaps:
        note(gap)
    for name, reason in [*report.left_out.items(), *report.failed.items()]:
        if is_partition_name(name):
            note(f"{name} was not shipped: {reason}")
    code = 1 if report.gaps or report.failed else 0
    if args.json:
        partitions = {name: each._asdict() for name, each in report.partitions.items()}
        say(json.dumps({**report._asdict(), "partitions": partitions}, default=str))
        return code
    for name, each in report.partitions.items():
        there = (
            f"offsets {each.start} to {each.end} (exclusive)" if each.end >= 0 else "nothing is sealed yet"
        )
        gone = f", {counted(each.deleted_segments, 'local segment')} deleted" if each.deleted_segments else ""
        say(f"{name}: {there}, {each.shipped_bytes:,} bytes shipped{gone}")
    return code
