"""kstore alter: change a topic's own configuration, or give it more partitions."""

import argparse
from typing import Any

from kstore.tools.settings import add_config_argument
from kstore.tools.stores import add_changing_arguments, open_store, options_of, partition_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_changing_arguments(parser)
    parser.add_argument(
        "--partitions",
        type=partition_count,
        metavar="N",
        help="give the topic more partitions, so that it has N in all",
    )
    add_config_argument(parser)
    parser.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="NAME",
        help="let an option have its default again (may be repeated)",
    )


def run(args: argparse.Namespace) -> int:
    """Changes the topic."""
    changes: dict[str, Any] = options_of(args.config)
    for name in args.delete_config:
        changes[name.replace(".", "_")] = None
    if not changes and args.partitions is None:
        raise ValueError("alter needs --partitions, --config or --delete-config")
    with open_store(args) as store:
        if changes:
            store.alter_topic(args.topic, **changes)
        if args.partitions is not None:
            store.add_partitions(args.topic, args.partitions)
    return 0
