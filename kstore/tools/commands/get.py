"""kstore get: print the last record of a key, or all of them."""

import argparse
import base64

from kstore.tools.commands.records import as_json, as_line
from kstore.tools.opening import add_isolation_argument, add_open_arguments, open_partition
from kstore.tools.progress import Progress
from kstore.tools.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_open_arguments(parser)
    add_key_arguments(parser)
    parser.add_argument(
        "--history", action="store_true", help="print all records of the key, the oldest first"
    )
    add_isolation_argument(parser, "pass over records of aborted and of open transactions")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each record")


def add_key_arguments(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Which keys: each of these options adds one to args.keys, as bytes."""
    for name, metavar, kind, text in (
        ("--key", "TEXT", _encoded, "the key, as UTF-8"),
        ("--key-base64", "BASE64", _decoded, "the key in base64"),
    ):
        parser.add_argument(
            name, dest="keys", action="append", default=[], type=kind, metavar=metavar, help=text + more
        )


def run(args: argparse.Namespace) -> int:
    """Prints the records; 1 if there is none. A record without a value says that the key was deleted."""
    if len(args.keys) != 1:
        raise ValueError("get prints the records of one key: give --key or --key-base64, once")
    (key,) = args.keys
    with open_partition(args) as log, Progress(0, "looking") as progress:
        if args.history:
            records = log.history(key, isolation=args.isolation, progress=progress.share)
        else:
            records = filter(None, [log.last(key, isolation=args.isolation, progress=progress.share)])
        found = False
        for record in records:
            progress.clear()
            found = True
            batch = next(log.batches(record.offset))
            print(as_json(batch, record) if args.json else as_line(batch, record, redact=False))
    if not found:
        say("no such record")
    return int(not found)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")  # what the shell gave


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"{text!r}: {e}") from None
