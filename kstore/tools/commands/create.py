"""kstore create: make a topic in a log directory, which is made if it does not exist."""

import argparse

from kstore.store.topic import checked_name
from kstore.tools.settings import add_config_argument
from kstore.tools.stores import add_changing_arguments, open_store, options_of, partition_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_changing_arguments(parser)
    parser.add_argument(
        "--partitions",
        type=partition_count,
        default=1,
        metavar="N",
        help="number of partitions (default %(default)s)",
    )
    add_config_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Makes the topic."""
    options = options_of(args.config)
    checked_name(args.topic)  # before any directory is made
    with open_store(args, make=True) as store:
        store.create_topic(args.topic, args.partitions, **options)
    return 0
