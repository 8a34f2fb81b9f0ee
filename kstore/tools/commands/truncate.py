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
        help="the first offset to remove; the next record that is appended gets it. A batch is removed as a "
        "whole: see --whole-batches",
    )
    parser.add_argument(
        "--whole-batches",
        action="store_true",
        help="if OFFSET is inside a batch, remove the whole batch, the records before OFFSET too",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")


def truncate(args: argparse.Namespace) -> int:
    """Remove the records of a partition from an offset to the end, and print how many. Damaged batches are
    not counted."""
    with open_dry(args) if args.dry_run else kstore.open(args.directory) as log:
        end = log.log_end_offset
        batches = list(log.batches(args.to, on_error="skip")) if args.to < end else []
        records = sum(batch.records_count for batch in batches)
        first = batches[0].base_offset if batches else args.to
    if first < args.to and not args.whole_batches:
        raise ValueError(
            f"--to {args.to} is inside the batch of offsets {first} to {batches[0].last_offset}, which can "
            f"only be removed whole: give --whole-batches, or --to {first} or {batches[0].last_offset + 1}"
        )
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
    say(
        f"{counted(records, 'record')} in {counted(len(batches), 'batch')} {verb}"
        + (f", from offset {first} on" if batches else "")
    )
    return 0
