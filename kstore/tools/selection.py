"""The partitions that a subcommand works on: one, or those of topics in log directories."""

import argparse
import os
from pathlib import Path
from typing import NamedTuple

from kstore.arguments import local_path
from kstore.errors import LogNotFoundError
from kstore.log.files import layout
from kstore.log.recovery.presence import is_partition
from kstore.tools.numbers import whole
from kstore.tools.stores import add_also_argument, open_reader

_number = whole("the number of a partition", 0, 2**31 - 1)


class Selected(NamedTuple):
    """A partition: its topic and number, None if its directory has no such name, and its directory or
    file."""

    topic: str | None
    partition: int | None
    path: str


def add_selection_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that select partitions of a log directory."""
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME",
        help="if DIR is a log directory: only this topic (may be repeated)",
    )
    parser.add_argument(
        "--partition",
        action="append",
        default=[],
        type=_number,
        metavar="N",
        help="if DIR is a log directory: only the partition with this number (may be repeated)",
    )
    add_also_argument(parser)


def selected(args: argparse.Namespace, *, internal: bool = True) -> tuple[list[Selected], bool]:
    """The partitions, by topic and number, and whether DIR is a log directory. internal: with the topics
    whose names begin with "__". __cluster_metadata is only selected by its name. LogNotFoundError if there is
    none."""
    path = Path(local_path("DIR", args.directory))
    if not path.exists():
        raise LogNotFoundError(f"no partition and no log directory at {path}")
    if is_partition(args.directory):
        if args.topic or args.partition or args.also:
            raise ValueError(
                f"--topic, --partition and --also are for a log directory, and {path} is a partition"
            )
        named = layout.parse_directory(Path(os.path.realpath(path)).name)
        topic, number = (None, None) if named is None else named
        return [Selected(topic, number, str(path))], False
    store = open_reader(args)
    topics = args.topic or [
        name
        for name in store.topics
        if name != layout.CLUSTER_METADATA and (internal or not name.startswith("__"))
    ]
    found = [
        Selected(topic, number, str(where))
        for topic in topics
        for number, where in sorted(store.describe(topic).partitions.items())
        if not args.partition or number in args.partition
    ]
    if not found:
        words = [f"--topic {name}" for name in args.topic] + [f"--partition {n}" for n in args.partition]
        wanted = f" with {' '.join(words)}" if words else ""
        raise LogNotFoundError(f"no partition is in {path}{wanted}")
    return found, True
