"""kstore truncate."""

import argparse

import kstore
from kstore.tools.numbers import counted, offset
from kstore.tools.terminal import say
from kstore.tools.writing import add_write_arguments, open_dry, open_writer


def add_truncate_arguments(parser: argparse.ArgumentParser) -> None:
    add_write_arguments(parser)
    parser.add_argument(
        "--to",
        type=offset,
        required=True,
        metavar="OFFSET",
        help="the first offset to remove, and the offset of the next record",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")


def truncate(args: argparse.Namespace) -> int:
    """Remove the records of a partition from an offset to the end, and print how many. Damaged batches are
    not counted."""
    with open_dry(args) if args.dry_run else kstore.open(args.directory) as log:
        end = log.log_end_offset
        found = log.records(args.to, on_error="skip", control=True) if args.to < end else ()
        records = sum(1 for _ in found)
    verb = "would be removed" if args.dry_run else "removed"
    if not args.dry_run:
        with open_writer(args, "r+") as writer:
            writer.truncate_to(args.to)
    if args.to >= end:
        say(
            f"nothing to remove: the log ends at offset {end}"
            + (f", below --to {args.to}" if args.to > end else "")
        )
        return 0
    say(f"{counted(records, 'record')} {verb}, from offset {args.to} on")
    return 0
