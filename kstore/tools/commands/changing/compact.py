"""kstore compact."""

import argparse
import time
from pathlib import Path

from kstore.log.compact.preview import preview
from kstore.log.compact.report import CompactedSegment
from kstore.log.recovery.presence import not_found, require_partition
from kstore.tools.progress import Progress
from kstore.tools.terminal import say, say_each
from kstore.tools.writing import add_write_arguments, config_of, open_dry, open_writer


def add_compact_arguments(parser: argparse.ArgumentParser) -> None:
    add_write_arguments(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="only print, for each segment, what would be removed and why"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object for each segment")


def compact(args: argparse.Namespace) -> int:
    """Keep the last record of each key, as Kafka's log cleaner does, or print which records would be removed:
    a line for each segment, oldest first, and one for all of them."""
    config = config_of(args)
    path = Path(args.directory)
    if not path.is_dir():
        raise not_found(path)
    require_partition(path)
    if "cleanup_policy" not in config.given_options():
        raise ValueError(
            "compact removes all but the last record of each key, and the cleanup.policy of this log is not "
            "known: give --config cleanup.policy=compact, or --server-properties"
        )
    if args.dry_run:  # writes nothing, takes no lock
        with open_dry(args) as log, Progress(0, "looking") as progress:
            done = preview(log, config, time.time_ns() // 1_000_000, progress.share)
    else:
        with open_writer(args, "r+") as log, Progress(0, "compacting") as progress:
            done = log.compact(progress=progress.share)
    say_each(done.segments, _text, as_json=args.json)
    if not args.json:
        if done.segments:
            verb = "would go" if done.dry_run else "went"
            say(f"{done.records_removed} records, {done.bytes_gained} bytes {verb}: {done.reason}")
        else:
            say(f"nothing to do: {done.reason}")
    return 0


def _text(segment: CompactedSegment) -> str:
    counts = f"{segment.records_before} -> {segment.records_after} records"
    sizes = f"{segment.bytes_before} -> {segment.bytes_after} bytes"
    return f"{segment.base_offset:>12}  {counts:<24} {sizes:<28} {segment.reason}"
