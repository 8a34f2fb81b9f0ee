"""kstore delete: delete a topic of a log directory, with all its records."""

import argparse

from kstore.tools.stores import add_changing_arguments, open_dry_store, open_store
from kstore.tools.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_changing_arguments(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="only say what would go: writes nothing, takes no lock"
    )


def run(args: argparse.Namespace) -> int:
    """Deletes the topic, or prints a line for each partition that would go."""
    if args.dry_run:
        reader = open_dry_store(args)
        for number in reader.describe(args.topic).partitions:
            with reader.open(args.topic, number) as log:
                say(
                    f"{log.path}: offsets {log.log_start_offset} to {log.log_end_offset} (exclusive) would be deleted"
                )
        return 0
    with open_store(args) as store:
        store.delete_topic(args.topic)
    return 0
