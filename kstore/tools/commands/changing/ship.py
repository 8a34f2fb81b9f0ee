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
        help="the directory of a partition, or a log directory with the partitions of a store or a broker; "
        "others may write it meanwhile",
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
        help="then delete the segments of DIR whose newest record is older, 0 for all, once their remote "
        "files were read back and are equal. DIR must not be open for writing elsewhere",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def ship(args: argparse.Namespace) -> int:
    """Upload the sealed segments of a partition or a log directory to a URL, each once, with their indexes
    and snapshots of producers. Each segment is read back and compared by SHA-256. URL can be read like a
    directory, and is whole at each moment. Several runs at once do no harm, and an interrupted run is
    continued by the next. Exit code 1 if something is missing there, or a partition failed."""
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
