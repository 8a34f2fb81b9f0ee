"""kstore check."""

import argparse
import contextlib
import json
import os
import threading
from collections.abc import Callable
from functools import partial

from kstore.arguments import checked_url
from kstore.checking.check import check_parts
from kstore.checking.finding import SEVERITIES
from kstore.checking.resume import CheckState
from kstore.checking.segment_facts import SegmentFacts, read_segment
from kstore.engine.segment.segment import Segment
from kstore.errors import LogNotFoundError
from kstore.tools.progress import Progress
from kstore.tools.terminal import note, say


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        metavar="DIR",
        nargs="+",
        help="partition directory or its URL, .log file, or all log directories of one store or broker",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--problems",
        action="store_true",
        help="print only findings that are not notes, and nothing if there is none",
    )
    parser.add_argument(
        "--severity",
        choices=SEVERITIES,
        default="suspicious",
        help="the exit code is 1 if there is a finding of this severity or a worse one (default %(default)s)",
    )
    parser.add_argument(
        "--manifest",
        metavar="FILE",
        help="also compare all files of DIR with the checksums in the kstore-copy.jsonl of a kstore copy",
    )
    parser.add_argument(
        "--remote",
        metavar="URL",
        help="the URL to which kstore ship has uploaded DIR: also check its segments, and that both are one "
        "log",
    )
    parser.add_argument(
        "--resume",
        metavar="FILE",
        help="write undamaged segments into FILE, and do not read them in later checks while their files are "
        "unchanged",
    )


def check(args: argparse.Namespace) -> int:
    """Check every byte of partitions and log directories, and print the findings. Nothing is written or
    locked, and a process may be writing the logs. The exit codes are 0 (no finding of --severity or worse), 1
    (findings), 2 (wrong usage, or nothing is at the path)."""
    if args.manifest is not None and not os.path.lexists(args.manifest):
        note(f"nothing is at {args.manifest}")
        return 2
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(Progress(0, "checking", of_bytes=True))
        lock = threading.Lock()
        done = 0

        def advanced(size: int) -> None:
            nonlocal done
            with lock:
                done += size
                bar.update(done)

        def listed(paths: list[str]) -> None:
            bar.total += sum(map(_log_bytes, paths)) if bar.enabled else 0

        read: Callable[[Segment], SegmentFacts] = partial(read_segment, advanced=advanced)
        if args.resume is not None:
            state = stack.enter_context(contextlib.closing(CheckState(args.resume)))
            read = state.reader(read)
        try:
            url = None if args.remote is None else checked_url("--remote", args.remote)
            report = check_parts(args.paths, args.manifest, url, read=read, listed=listed)
        except LogNotFoundError as e:
            bar.clear()
            note(e)
            return 2
    if args.problems:
        report = report._replace(findings=tuple(report.problems()))
    if args.json:
        print(json.dumps(report.as_dict()))
    elif report.findings or not args.problems:
        say(*str(report).splitlines())
    return 1 if report.problems(args.severity) else 0


def _log_bytes(path: str) -> int:
    """The bytes of the .log files of a partition."""
    try:
        if os.path.isfile(path):
            return os.stat(path).st_size
        with os.scandir(path) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))
    except OSError:
        return 0
