"""Opening a partition for subcommands that read, with their common options."""

import argparse
import re
import warnings

import kstore
from kstore.arguments import INDEX_INTERVAL_BYTES, ISOLATION, MAX_DECOMPRESSED_BYTES, checked_url
from kstore.errors import visible
from kstore.log.partition import PartitionLog
from kstore.log.recovery.report import DataLossWarning
from kstore.remote.urls import readable
from kstore.tools.numbers import byte_count, int32_bytes
from kstore.tools.terminal import note

# normal states: files to be deleted, preallocated bytes, and records that a broker has moved elsewhere
HARMLESS = ("leftover", "preallocated", "remote")
# bytes that Kafka's recovery would remove
LEFT_OUT = ("torn_tail", "corrupt_batch", "beyond")
# problems that recovery does not repair: a damaged or compressed file
UNREAD = ("file_tail", "not_read")


def add_open_arguments(parser: argparse.ArgumentParser, also: str = "") -> None:
    """Add the argument of the directory, and the options for reading it. `also`: what else it may be."""
    parser.add_argument(
        "directory",
        metavar="DIR",
        type=readable,
        help=f"partition directory, such as data/orders-0, its URL, or a .log or .cut file{also}",
    )
    parser.add_argument(
        "--as-is",
        action="store_true",
        help="after an unclean stop, also show what recovery would remove",
    )
    parser.add_argument(
        "--index-interval-bytes",
        type=int32_bytes,
        default=INDEX_INTERVAL_BYTES,
        metavar="BYTES",
        help="the topic's index.interval.bytes, used if an index must be rebuilt (default %(default)s)",
    )
    parser.add_argument(
        "--max-decompressed-bytes",
        type=byte_count,
        default=MAX_DECOMPRESSED_BYTES,
        metavar="BYTES",
        help="largest size of a decompressed batch (default 256 MiB)",
    )


def add_remote_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option --remote."""
    parser.add_argument(
        "--remote",
        metavar="URL",
        help="the URL to which kstore ship has uploaded DIR: also read the segments that DIR no longer has",
    )


def add_isolation_argument(parser: argparse.ArgumentParser, committed: str) -> None:
    """Add the option --isolation; `committed` explains read_committed."""
    parser.add_argument(
        "--isolation",
        choices=ISOLATION,
        default="read_uncommitted",
        help=f"read_committed: {committed} (default read_uncommitted)",
    )


def open_partition(args: argparse.Namespace, *, lists: bool = False) -> PartitionLog:
    """Open the log that these options select, and report on stderr what it does not show. `lists`: the caller
    lists other findings."""
    remote = getattr(args, "remote", None)
    log = kstore.open(
        args.directory,
        remote=None if remote is None else checked_url("--remote", remote),
        recover=not args.as_is,
        index_interval_bytes=args.index_interval_bytes,
        max_decompressed_bytes=args.max_decompressed_bytes,
    )
    if not args.as_is:
        report_findings(log, lists=lists)
    return log


def report_findings(log: PartitionLog, *, lists: bool = False) -> None:
    """Report on stderr, in one line, that the log differs from the state after a clean shutdown; bytes that
    are left out first."""
    found = [f for f in log.recovery.findings if f.kind not in HARMLESS]
    left_out = [f for f in found if f.kind in LEFT_OUT and f.size > 0]
    if left_out:
        # the note below replaces the warning of the first read
        warnings.filterwarnings("ignore", re.escape(f"{visible(log.path)}: "), DataLossWarning)
        first = min(left_out, key=lambda finding: (finding.file, finding.position))
        size = sum(f.size for f in left_out)
        files = len({f.file for f in left_out})
        if log.path == first.file:  # a single file, which recovery does not apply to
            note(f"{log.path}: left out, from byte {first.position} on: {first.text}")
            return
        note(
            f"{log.path} ends at offset {log.log_end_offset} here, as Kafka's recovery would leave it: "
            f"{size} bytes in {files} file{'s' if files > 1 else ''} are left out, from byte "
            f"{first.position} of {first.file} on ({first.text}). To read them: kstore records --as-is "
            "--on-error skip (in Python recover=False)"
        )
    # a warning reports these
    elif found and not lists and not log.recovery.losses and not log.recovery.missing:
        count = "one thing is" if len(found) == 1 else f"{len(found)} things are"
        what = f"{count} not as a clean shutdown leaves it"
        if early := [finding.text for finding in found if finding.code == "ends_early"]:
            what = f"records are lost: {early[0]}"
        note(f"{log.path}: {what}; kstore check {log.path} lists what is wrong")
