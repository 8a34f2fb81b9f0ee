"""kstore erase: remove the records of a key for good, or say which would go."""

import argparse
import json
from typing import Literal

from kstore.log.compact.preview import preview_erasure
from kstore.tools.commands.get import add_key_arguments, key_of
from kstore.tools.writing import add_write_arguments, open_dry, open_writer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_write_arguments(parser)
    add_key_arguments(parser)
    parser.add_argument(
        "--values", action="store_true", help="leave the keys: remove values and headers only"
    )
    parser.add_argument(
        "--cut-files", action="store_true", help="remove the .cut files of recoveries too, whatever they hold"
    )
    parser.add_argument("--reason", default="kstore erase", metavar="TEXT", help="what the report says of it")
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each file")


def run(args: argparse.Namespace) -> int:
    """Prints a line for each file that was changed or removed, and one for all; 1 if there was nothing to do."""
    keys = [key_of(args)]
    what: Literal["records", "values"] = "values" if args.values else "records"
    if args.dry_run:  # writes nothing, takes no lock
        with open_dry(args) as log:
            done = preview_erasure(log, keys, what, args.reason, cut_files=args.cut_files)
    else:
        with open_writer(args, "r+") as log:
            done = log.erase(keys=keys, reason=args.reason, what=what, cut_files=args.cut_files)
    more = {"reason": done.reason, "time_ms": done.time_ms}
    for each in done.segments:
        if args.json:
            print(json.dumps(each._asdict() | more))
            continue
        print(f"{each.path}: {each.bytes_before} -> {each.bytes_after} bytes")
        print(f"  offsets {', '.join(map(str, each.offsets))}")
        print(f"  SHA-256 {each.sha256_before} -> {each.sha256_after or '?'}")
    for path in done.cut_files:
        print(json.dumps({"path": path} | more) if args.json else f"{path}: removed")
    if not args.json:
        verb = "would be erased" if done.dry_run else "erased"
        print(f"{done.records_erased} records {verb}: {done.reason}")
    return int(not done.segments and not done.cut_files)
