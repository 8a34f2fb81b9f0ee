"""How the subcommands about topics open a store: they share these options."""

import argparse
from typing import Any

from kstore.log.files.topic_file import in_python
from kstore.store import LogStore
from kstore.tools.numbers import whole
from kstore.tools.settings import settings_of
from kstore.tools.writing import add_wait_argument

partition_count = whole("a number of partitions", 1, 1 << 20)


def add_store_arguments(parser: argparse.ArgumentParser, *, topic: bool = True) -> None:
    """The log directory, others of the same store, and the topic."""
    parser.add_argument("directory", metavar="DIR", help="log directory, such as data, with partitions in it")
    if topic:
        parser.add_argument("topic", metavar="TOPIC", help="name of the topic")
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="DIR",
        help="another log directory of the same store (may be repeated)",
    )


def add_changing_arguments(parser: argparse.ArgumentParser) -> None:
    """The same for what changes a topic."""
    add_store_arguments(parser)
    add_wait_argument(parser)


def options_of(settings: list[str]) -> dict[str, Any]:
    """What --config says, as options of LogConfig. InvalidConfigError, ValueError."""
    return in_python(settings_of(settings))


def open_reader(args: argparse.Namespace) -> LogStore:
    """The store that these options name, for reading."""
    return LogStore(args.directory, *args.also)


def open_store(
    args: argparse.Namespace, *, make: bool = False, background: bool = False, **options: Any
) -> LogStore:
    """The store that these options name, for writing. Unless `make`, its directories must be there."""
    if not make:
        open_reader(args)
    return LogStore(args.directory, *args.also, mode="a", background=background, wait=args.wait, **options)
