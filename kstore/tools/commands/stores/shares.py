"""kstore shares."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import kstore
from kstore.errors import LogNotFoundError, visible
from kstore.log.cursors.arguments import checked_group
from kstore.log.files.layout import TopicPartition
from kstore.log.recovery.presence import require_partition
from kstore.store import LogStore
from kstore.tools.terminal import aligned, say

_HEADS = {
    "group": "GROUP",
    "topic": "TOPIC",
    "partition": "PARTITION",
    "start_offset": "START",
    "end_offset": "END",
    "acquired": "ACQUIRED",
    "available": "AVAILABLE",
    "lag": "LAG",
}


def add_shares_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        metavar="DIR",
        help="log directory, such as data, or one partition, such as data/orders-0",
    )
    parser.add_argument("--group", metavar="NAME", help="only this group")
    parser.add_argument(
        "--forget",
        action="store_true",
        help="delete the state of the group of --group, which begins anew then. Fails if the group has a "
        "worker",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object for each partition")


def shares(args: argparse.Namespace) -> int:
    """Print the state of share groups, or delete that of a group. A line for each group and partition has:
    START, the offset of the first record that is not done; END, the offset of the first record that was not
    delivered; ACQUIRED, the number of records that a worker has; AVAILABLE, the number of records that are to
    be delivered again; LAG, the number of records that are not done. With --forget the lines have the deleted
    states."""
    if args.group is not None:
        checked_group(args.group)
    if args.forget and args.group is None:
        raise ValueError("--forget needs --group: it is done for one group")
    try:
        require_partition(Path(args.directory))
    except LogNotFoundError:
        found = _in_store(args)
    else:
        found = _in_partition(args)
    if not found and args.group is not None:
        print(visible(f"no share group {args.group!r} in {args.directory}"), file=sys.stderr)
        return 1
    if args.json:
        for row in found:
            say(json.dumps(row))
    elif found:
        lines = [list(_HEADS.values()), *([str(row[name]) for name in _HEADS] for row in found)]
        say(*aligned(lines, (0, 1)))
    return 0


def _in_store(args: argparse.Namespace) -> list[dict[str, Any]]:
    store = LogStore(args.directory)
    found = [
        {"group": group, **tp._asdict(), **state._asdict()}
        for group, states in store.share_groups().items()
        for tp, state in states.items()
        if args.group in (None, group)
    ]
    if args.forget and found:
        store.share_group(args.group, sorted({row["topic"] for row in found})).forget()
    return found


def _in_partition(args: argparse.Namespace) -> list[dict[str, Any]]:
    with kstore.open(args.directory) as log:
        tp = log.topic_partition or TopicPartition(Path(args.directory).name, 0)
        found = [
            {"group": group, **tp._asdict(), **state._asdict()}
            for group, state in log.share_groups().items()
            if args.group in (None, group)
        ]
        if args.forget and found:
            log.share_group(args.group).forget()
    return found
