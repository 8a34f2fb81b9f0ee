"""kstore alter: change a topic's own configuration, or give it more partitions; or change what is kept of one
log."""

import argparse
from pathlib import Path
from typing import Any

from kstore.log.files.log_dir_state import kept_options
from kstore.log.writer import KeptConfig
from kstore.opening import open_writer
from kstore.tools.settings import add_config_argument
from kstore.tools.stores import add_changing_arguments, open_store, options_of, partition_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_changing_arguments(parser, or_partition=True)
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
    """Changes the topic, or the log."""
    changes: dict[str, Any] = options_of(args.config)
    for name in args.delete_config:
        own = name.replace(".", "_")
        if own in changes:
            raise ValueError(f"{name} is given by --config and by --delete-config: which one is meant?")
        changes[own] = None
    if not changes and args.partitions is None:
        raise ValueError("alter needs --partitions, --config or --delete-config")
    if args.topic is None:
        return _alter_log(args, changes)
    with open_store(args) as store:
        if changes:
            store.alter_topic(args.topic, **changes)
        if args.partitions is not None:
            store.add_partitions(args.topic, args.partitions)
    return 0


def _alter_log(args: argparse.Namespace, changes: dict[str, Any]) -> int:
    if args.partitions is not None or args.also:
        raise ValueError("--partitions and --also are for a topic: give the log directory, and TOPIC")
    if kept_options(Path(args.directory)).of_store:
        path = Path(args.directory).absolute()
        raise ValueError(
            f"a store keeps the configuration of {path.name}: kstore alter {path.parent} {path.name.rpartition('-')[0]}"
        )
    open_writer(args.directory, KeptConfig(changes, keeps=True), create=False, wait=args.wait).close()
    return 0
