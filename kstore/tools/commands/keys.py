"""kstore keys: make a .keys file beside each sealed segment, with which the last record of a key is found at
once."""

import argparse
import json

from kstore.log.compact.key_files import KeyFileReport
from kstore.tools.numbers import counted
from kstore.tools.terminal import say
from kstore.tools.writing import add_write_arguments, open_writer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_write_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object for each segment")


def run(args: argparse.Namespace) -> int:
    """Prints a line for each sealed segment, oldest first; 1 if one of them got no file."""
    with open_writer(args, "r+") as log:
        made = log.make_key_files()
    for each in made:
        say(json.dumps(each._asdict()) if args.json else _text(each))
    if not (made or args.json):
        say("nothing to do: there is no sealed segment")
    return int(any(each.keys < 0 for each in made))


def _text(made: KeyFileReport) -> str:
    if made.keys < 0:
        return f"{made.base_offset:>12}  no file: {made.reason}"
    state = "made" if made.made else "was there"
    return f"{made.base_offset:>12}  {counted(made.keys, 'key'):<16} {made.size} bytes, {state}"
