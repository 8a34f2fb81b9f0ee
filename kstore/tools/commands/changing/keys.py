"""The commands about keys: kstore get, keys and erase."""

import argparse
import base64
import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Literal

from kstore.log.compact.key_files import KeyFileReport
from kstore.log.compact.preview import preview_erasure
from kstore.log.compact.report import Erasure
from kstore.log.read.progress import ProgressCallback
from kstore.tools.numbers import counted
from kstore.tools.opening import add_isolation_argument, add_open_arguments, open_partition
from kstore.tools.printing import as_json, as_line
from kstore.tools.progress import Progress
from kstore.tools.stores import add_also_argument, open_dry_store, open_store
from kstore.tools.terminal import note, say, say_each
from kstore.tools.writing import add_write_arguments, open_dry, open_writer

_MOST_RANGES = 50  # of offsets, on one line


def add_get_arguments(parser: argparse.ArgumentParser) -> None:
    add_open_arguments(parser)
    add_key_arguments(parser)
    parser.add_argument("--history", action="store_true", help="print all records of the key, oldest first")
    add_isolation_argument(parser, "skip records of aborted and of open transactions")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each record")


def add_key_arguments(parser: argparse.ArgumentParser, more: str = "") -> None:
    """The options for keys. Each adds one to args.keys, as bytes."""
    for name, metavar, kind, text in (
        ("--key", "TEXT", _encoded, "the key, as UTF-8"),
        ("--key-base64", "BASE64", _decoded, "the key in base64"),
    ):
        parser.add_argument(
            name, dest="keys", action="append", default=[], type=kind, metavar=metavar, help=text + more
        )


def get(args: argparse.Namespace) -> int:
    """Print the last record of a key, or all of them. The exit code is 1 if there is none. A record without a
    value means that the key was deleted."""
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
        note("no such record")
    return int(not found)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")  # the bytes of the command line


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"{text!r}: {e}") from None


def add_keys_arguments(parser: argparse.ArgumentParser) -> None:
    add_write_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object for each segment")


def keys(args: argparse.Namespace) -> int:
    """Make a .keys file for each sealed segment, for fast lookups of the last record of a key. Prints a line
    for each sealed segment, oldest first. The exit code is 1 if a segment got no file."""
    with open_writer(args, "r+") as log:
        made = log.make_key_files()
    say_each(made, _text, as_json=args.json)
    if not (made or args.json):
        say("nothing to do: there is no sealed segment")
    return int(any(each.keys < 0 for each in made))


def _text(made: KeyFileReport) -> str:
    if made.keys < 0:
        return f"{made.base_offset:>12}  no file: {made.reason}"
    state = "made" if made.made else "was there"
    return f"{made.base_offset:>12}  {counted(made.keys, 'key'):<16} {made.size} bytes, {state}"


def add_erase_arguments(parser: argparse.ArgumentParser) -> None:
    add_write_arguments(parser)
    parser.add_argument(
        "topic",
        metavar="TOPIC",
        nargs="?",
        help="erase in all partitions of this topic; DIR is a log directory",
    )
    add_also_argument(parser)
    add_key_arguments(parser, " (may be repeated, also beside the other)")
    parser.add_argument("--values", action="store_true", help="keep the keys: remove only values and headers")
    parser.add_argument(
        "--cut-files", action="store_true", help="also remove all .cut files of recoveries, with any content"
    )
    parser.add_argument("--reason", metavar="TEXT", help="a reason, for the report")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each file")


def erase(args: argparse.Namespace) -> int:
    """Remove the records of keys for good, or print which would be removed: a line for each file, and one for
    all of them. The exit code is 1 if there is nothing to do."""
    if not args.keys:
        raise ValueError("erase needs --key or --key-base64")
    erased, changed = 0, False
    left: list[str] = []
    with Progress(0, "looking" if args.dry_run else "erasing") as progress:
        for done in _erased(args, args.keys, args.reason or "kstore erase", progress.share):
            progress.clear()
            erased += done.records_erased
            changed = changed or bool(done.segments or done.cut_files)
            left += done.cut_files_left
            _tell(done, args)
    if not args.json:
        verb = "would be erased" if args.dry_run else "erased"
        say(f"{counted(erased, 'record')} {verb}" + (f": {args.reason}" if args.reason else ""))
    if left:
        files = "1 .cut file" if len(left) == 1 else f"{len(left)} .cut files"
        note(
            f"{files} of recoveries may hold such records, too: {left[0]}"
            + (" first" if len(left) > 1 else "")
            + "; --cut-files removes them"
        )
    return int(not changed)


def _erased(
    args: argparse.Namespace, keys: list[bytes], reason: str, progress: ProgressCallback
) -> Iterator[Erasure]:
    """Erase in the partition, or in each partition of the topic, and yield the results."""
    what: Literal["records", "values"] = "values" if args.values else "records"
    if args.topic is not None:
        if args.config or args.server_properties or args.keep_cut:
            raise ValueError(
                "--config, --server-properties and --keep-cut are for one partition: a store knows its topics"
            )
        if not args.dry_run:
            with open_store(args) as store:
                yield from store.erase(
                    args.topic,
                    keys=keys,
                    reason=reason,
                    what=what,
                    cut_files=args.cut_files,
                    progress=progress,
                ).values()
            return
        reader = open_dry_store(args)
        for number in reader.describe(args.topic).partitions:
            with reader.open(args.topic, number) as log:
                yield preview_erasure(log, keys, what, reason, cut_files=args.cut_files, progress=progress)
    elif args.also:
        raise ValueError("--also needs a TOPIC")
    elif args.dry_run:  # writes nothing, takes no lock
        with open_dry(args) as log:
            yield preview_erasure(log, keys, what, reason, cut_files=args.cut_files, progress=progress)
    else:
        with open_writer(args, "r+") as log:
            yield log.erase(keys=keys, reason=reason, what=what, cut_files=args.cut_files, progress=progress)


def _tell(done: Erasure, args: argparse.Namespace) -> None:
    more = {"reason": done.reason, "time_ms": done.time_ms}
    for each in done.segments:
        if args.json:
            print(json.dumps(each._asdict() | more))
            continue
        say(f"{each.path}: {each.bytes_before} -> {each.bytes_after} bytes")
        say(f"  offsets {_in_words(each.offsets)}")
        say(f"  SHA-256 {each.sha256_before} -> {each.sha256_after or '?'}")
    verb = "would be removed" if done.dry_run else "removed"
    for path in done.cut_files:
        say(json.dumps({"path": path} | more) if args.json else f"{path}: {verb}")


def _in_words(offsets: Iterable[int]) -> str:
    """Offsets as ranges in words; only the first ranges if there are many."""
    rows = [list(row) for _, row in groupby(enumerate(offsets), lambda pair: pair[1] - pair[0])]
    words = [
        f"{row[0][1]}" if len(row) == 1 else f"{row[0][1]} to {row[-1][1]}" for row in rows[:_MOST_RANGES]
    ]
    left = sum(map(len, rows[_MOST_RANGES:]))
    return ", ".join(words) + f" and {counted(left, 'other')}, which --json lists" * (left > 0)
