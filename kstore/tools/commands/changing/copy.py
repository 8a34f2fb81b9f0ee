"""kstore copy."""

import argparse
import json

import kstore
from kstore.arguments import ON_ERROR
from kstore.engine.record.batch import CODECS
from kstore.tools.numbers import TIMES_HELP, counted, moment, offset
from kstore.tools.progress import Progress
from kstore.tools.terminal import note, say


def add_copy_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SRC",
        help="partition directory, or log directory of a store or a broker, or its URL; others may write it "
        "meanwhile",
    )
    parser.add_argument(
        "--remote",
        metavar="URL",
        help="the URL to which kstore ship has uploaded SRC: also copy the segments that SRC no longer has",
    )
    parser.add_argument(
        "destination",
        metavar="DST",
        help="a new directory, or an earlier copy: its sealed segments are not copied again, and the command "
        "fails if it has partitions that this run does not copy. The name is DST.copying until the copy is "
        "complete; the next run continues an interrupted copy",
    )
    parser.add_argument(
        "--topic",
        action="append",
        metavar="NAME",
        help="copy only this topic of a log directory (may be repeated)",
    )
    parser.add_argument(
        "--start", type=offset, metavar="OFFSET", help="first offset of each partition (default: log start)"
    )
    parser.add_argument(
        "--stop", type=offset, metavar="OFFSET", help="offset to stop before (default: log end)"
    )
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help=f"begin with the first record with this timestamp or a later one. {TIMES_HELP}",
    )
    parser.add_argument(
        "--until",
        type=moment,
        metavar="TIME",
        help="stop before the first record with this timestamp or a later one",
    )
    parser.add_argument(
        "--renumber",
        action="store_true",
        help="give the records offsets from 0 on. Only committed records are copied, without transactions "
        "and producers, and no positions of groups",
    )
    parser.add_argument("--compression", choices=CODECS, help="compress all batches with this codec")
    parser.add_argument(
        "--on-error",
        choices=ON_ERROR,
        default="raise",
        help="raise: stop at damage (default). skip: leave out damaged batches, and partitions and files "
        "that cannot be opened, and print what was left out on stderr",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def copy(args: argparse.Namespace) -> int:
    """Copy a partition, a topic, a store or a broker's log directory into a new directory. The copy has equal
    offsets, timestamps, leader epochs, log start offsets, topic ids and options, and for a log directory the
    positions of groups. It needs no recovery. kstore-copy.jsonl in it has a checksum for each file. The exit
    code is 1 if something is missing in the copy."""
    with Progress(0, "copy") as progress:
        report = kstore.copy(
            args.source,
            args.destination,
            topic=args.topic,
            start=args.start,
            stop=args.stop,
            since=args.since,
            until=args.until,
            renumber=args.renumber,
            compression=args.compression,
            on_error=args.on_error,
            remote=args.remote,
            progress=progress.share,
        )
    for gap in report.gaps:
        note(gap)
    for name, reason in report.left_out.items():
        note(f"{name} was not copied: {reason}")
    if args.json:
        partitions = {name: each._asdict() for name, each in report.partitions.items()}
        say(json.dumps({**report._asdict(), "partitions": partitions}, default=str))
    else:
        for name, each in report.partitions.items():
            say(f"{name}: offsets {each.start} to {each.end} (exclusive)")
        before = f", and {report.reused_bytes:,} bytes before" if report.reused_bytes else ""
        say(
            f"{counted(len(report.partitions), 'partition')} in {report.destination}: "
            f"{report.copied_bytes:,} bytes copied{before}. Checksums: {report.manifest}"
        )
    return 0 if report.is_complete else 1
