"""kstore get: print the last record of a key, or all of them."""

import argparse
import base64

from kstore.tools.commands.records import as_json, as_line
from kstore.tools.opening import add_isolation_argument, add_open_arguments, open_partition
from kstore.tools.progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_open_arguments(parser)
    add_key_arguments(parser)
    parser.add_argument(
        "--history", action="store_true", help="print all records of the key, the oldest first"
    )
    add_isolation_argument(parser, "pass over records of aborted and of open transactions")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each record")


def add_key_arguments(parser: argparse.ArgumentParser) -> None:
    """Which key."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--key", metavar="TEXT", help="the key, as UTF-8")
    what.add_argument("--key-base64", metavar="BASE64", help="the key in base64")


def run(args: argparse.Namespace) -> int:
    """Prints the records; 1 if there is none. A record without a value says that the key was deleted."""
    key = key_of(args)
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
        print("no such record")
    return int(not found)


def key_of(args: argparse.Namespace) -> bytes:
    """The key. ValueError."""
    if args.key is not None:
        text: str = args.key
        return text.encode("utf-8", "surrogateescape")  # what the shell gave
    try:
        return base64.b64decode(args.key_base64, validate=True)
    except ValueError as e:
        raise ValueError(f"--key-base64 {args.key_base64!r}: {e}") from None
