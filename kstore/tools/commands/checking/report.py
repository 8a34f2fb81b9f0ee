"""kstore report."""

import argparse
import os

import kstore
from kstore.errors import visible
from kstore.log.recovery.presence import is_partition
from kstore.store import LogStore
from kstore.tools.output import check_output
from kstore.tools.stores import add_also_argument
from kstore.tools.terminal import note


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        metavar="DIR",
        help="log directory, such as data, for all its partitions; or a partition, or a .log file",
    )
    add_also_argument(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="report.html", help="file to write (default %(default)s)"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="also run kstore check, and show its findings. The exit code is 1 if something is lost, damaged "
        "or suspicious",
    )


def report(args: argparse.Namespace) -> int:
    """Write an HTML page about a partition, or all partitions of a log directory: sizes, segments with
    their states, the rate of appends, batches and codecs, producers and open transactions, groups and their
    lag, the page cache, and findings. The page is one file, which loads nothing from elsewhere. It has names,
    offsets, sizes and times, and no keys or values."""
    if args.also and is_partition(args.directory):
        raise ValueError("--also is for a log directory, and this is a partition")
    check_output(args.output)
    checked = kstore.check(args.directory, *args.also) if args.check else None
    subject = LogStore(args.directory, *args.also) if args.also else args.directory
    kstore.report(subject, checked=checked).save(args.output)
    note(f"the page is {visible(os.path.abspath(args.output))}")
    return 0 if checked is None or checked.is_whole else 1
