"""kstore find."""

import argparse
import json

from kstore.tools.numbers import TIMES_HELP, moment, offset, time_text
from kstore.tools.opening import add_open_arguments, add_remote_argument, open_partition
from kstore.tools.terminal import say


def add_find_arguments(parser: argparse.ArgumentParser) -> None:
    add_open_arguments(parser)
    add_remote_argument(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--offset", type=offset, help="the record at this offset, or the first one after it")
    what.add_argument(
        "--timestamp",
        type=moment,
        metavar="TIME",
        help=f"the first record with this timestamp or a later one. {TIMES_HELP}",
    )
    what.add_argument("--earliest", action="store_true", help="the log start offset")
    what.add_argument("--latest", action="store_true", help="the log end offset")
    what.add_argument(
        "--max-timestamp", action="store_true", help="the first record with the largest timestamp"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def find(args: argparse.Namespace) -> int:
    """Find a record by offset or by time, and print the file that contains it. The exit code is 1 if there is
    no such record."""
    with open_partition(args) as log:
        if args.offset is not None:
            found = log.find(offset=args.offset)
        elif args.timestamp is not None:
            if args.timestamp < 0:
                raise ValueError(f"--timestamp {args.timestamp} must not be negative")
            found = log.find(timestamp=args.timestamp)
        else:
            found = log.find(timestamp="earliest" if args.earliest else "latest" if args.latest else "max")
        located = None if found is None else log.translate(found.offset)
        segment = log.segments[log.floor_segment(found.offset)] if found is not None and located else None
    if args.json:
        answer = (
            {"offset": None, "timestamp": None, "leader_epoch": None} if found is None else found._asdict()
        )
        if segment is not None and located is not None:
            answer |= {"segment": segment.base_offset, "position": located.position}
        print(json.dumps(answer))
    elif found is None:
        say("no such record")
    else:
        text = f"offset {found.offset}"
        if found.timestamp >= 0:
            text += f", timestamp {found.timestamp} ({time_text(found.timestamp)})"
        if found.leader_epoch is not None:
            text += f", leader epoch {found.leader_epoch}"
        if segment is not None and located is not None:
            text += f", in {segment.path} at byte {located.position}"
        say(text)
    return int(found is None)
