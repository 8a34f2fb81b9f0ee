"""Opening a store for subcommands about topics, with their common options."""

import argparse
from pathlib import Path
from typing import Any

from kstore.config import in_python
from kstore.store import LogStore
from kstore.tools.numbers import whole
from kstore.tools.terminal import note
from kstore.tools.writing import add_wait_argument, note_open, settings_of

partition_count = whole("a number of partitions", 1, 1 << 20)


def add_store_arguments(
    parser: argparse.ArgumentParser, *, topic: bool = True, or_partition: bool = False
) -> None:
    """Add the arguments of the log directories and the topic. `or_partition`: a partition may replace
    them."""
    one = "; without TOPIC: the directory of a partition" if or_partition else ""
    parser.add_argument(
        "directory", metavar="DIR", help=f"log directory, such as data, with partitions in it{one}"
    )
    if topic:
        parser.add_argument(
            "topic", metavar="TOPIC", help="name of the topic", nargs="?" if or_partition else None
        )
    add_also_argument(parser)


def add_also_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option of further log directories."""
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="DIR",
        help="another log directory of the store (may be repeated)",
    )


def add_changing_arguments(parser: argparse.ArgumentParser, *, or_partition: bool = False) -> None:
    """Add the arguments of commands that change a topic."""
    add_store_arguments(parser, or_partition=or_partition)
    add_wait_argument(parser)


def options_of(settings: list[str]) -> dict[str, Any]:
    """The options in --config, as those of LogConfig. InvalidConfigError, ValueError."""
    return in_python(settings_of(settings))


def open_reader(args: argparse.Namespace) -> LogStore:
    """Open the store that these options select, for reading."""
    return _reported(LogStore(args.directory, *args.also))


def open_dry_store(args: argparse.Namespace) -> LogStore:
    """Open the store for a dry run, without a lock. A note reports a locked directory, for which the real
    command would have to wait."""
    for directory in map(Path, (args.directory, *args.also)):
        note_open(directory, directory)
    return open_reader(args)


def _reported(store: LogStore) -> LogStore:
    """Report on stderr what of a store is out of use; return the store."""
    health = store.health()
    for path, reason in health.directories.items():
        note(f"log directory {path} is out of use: {reason}")
    for tp in health.missing:
        note(f"partition {tp} is in none of the directories")
    if health.unfinished:
        note(f"a change of topics is not finished: {health.unfinished}")
    return store


def open_store(
    args: argparse.Namespace, *, make: bool = False, background: bool = False, **options: Any
) -> LogStore:
    """Open the store that these options select, for writing. Unless `make`, its directories must exist."""
    if not make:
        LogStore(args.directory, *args.also)
    return _reported(
        LogStore(args.directory, *args.also, mode="a", background=background, wait=args.wait, **options)
    )
