"""kstore recover."""

import argparse
import json

from kstore.tools.terminal import say
from kstore.tools.writing import add_write_arguments, open_writer, plan_of


def add_recover_arguments(parser: argparse.ArgumentParser) -> None:
    add_write_arguments(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="only print what recovery would do, without writing or locking"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="check every batch, even after a clean stop and below the recovery point. As in Kafka, the log "
        "then ends at the first damaged batch: undamaged batches after it are moved to .cut files",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def recover(args: argparse.Namespace) -> int:
    """Repair a partition after an unclean stop, as a broker does, and print the findings."""
    if args.dry_run:
        recovery, start, end = plan_of(args, whole=args.all)
    else:
        with open_writer(args, "r+", whole=args.all) as log:
            recovery, start, end = log.recovery, log.log_start_offset, log.log_end_offset
    if args.json:
        report = {
            "clean": recovery.clean,
            "written": recovery.written,
            "recovery_point": recovery.recovery_point,
            "truncated_bytes": recovery.truncated_bytes,
            "recovered_segments": recovery.recovered_segments,
            "findings": [finding._asdict() for finding in recovery.findings],
            "losses": [*recovery.losses, *recovery.missing],
            "log_start_offset": start,
            "log_end_offset": end,
        }
        print(json.dumps(report))
    else:
        print(recovery)
        verb = "would hold" if args.dry_run else "holds"
        say(f"the log {verb} offsets {start} to {end} (exclusive)")
        verify = f"as in Kafka: kstore check {args.directory}"
        if recovery.clean:
            say(f"it was closed cleanly, so no checksums were checked, {verify}")
        elif recovery.recovery_point > start:
            say(f"no checksums were checked before offset {recovery.recovery_point}, {verify}")
    return 0
