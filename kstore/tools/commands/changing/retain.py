"""kstore retain."""

import argparse
import time
from pathlib import Path

from kstore.log.recovery.presence import require_partition
from kstore.log.write.given_retention import unsaid_retention
from kstore.log.write.retention import Decision, decide_for
from kstore.tools.terminal import say_each
from kstore.tools.writing import add_write_arguments, config_of, open_dry, open_writer


def add_retain_arguments(parser: argparse.ArgumentParser) -> None:
    add_write_arguments(parser)
    parser.add_argument(
        "--defaults",
        action="store_true",
        help="use Kafka's defaults: retention.ms=604800000 (7 days), retention.bytes=-1, "
        "cleanup.policy=delete. If neither the log nor the store nor the broker has saved retention.ms or "
        "retention.bytes, one of --config, --server-properties and --defaults is needed",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only print, for each segment, whether it would be deleted and why",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object for each segment")


def retain(args: argparse.Namespace) -> int:
    """Delete old segments by size and age (retention.bytes, retention.ms), or print which would be deleted: a
    line for each segment, oldest first."""
    config = config_of(args)  # first, because it checks names
    require_partition(Path(args.directory))
    if args.defaults:
        config = config.replace(retention_ms=config.retention_ms, cleanup_policy=config.cleanup_policy)
    given = config.given_options()
    if "retention_ms" not in given and given.get("retention_bytes", -1) >= 0:
        config = config.replace(retention_ms=-1)  # a size alone disables the limit of age
    elif "retention_ms" not in given:
        raise ValueError(
            "retain needs to know how long records are kept, and the retention.ms of this log is not known: "
            "give --config (as in --config retention.ms=86400000), --server-properties, or --defaults, which "
            "deletes what is older than 7 days"
        )
    if args.dry_run:  # writes nothing, takes no lock
        with open_dry(args) as log:
            decisions = decide_for(log.snapshot, config, time.time_ns() // 1_000_000)
            refusal = unsaid_retention(log.path, config, decisions)
            if refusal is not None:
                raise refusal
    else:
        with open_writer(args, "r+", config=config) as log:
            decisions = log.retain()
    say_each(decisions, _text, as_json=args.json)
    return 0


def _text(decision: Decision) -> str:
    what = f"delete ({decision.rule})" if decision.delete else "keep"
    return f"{decision.base_offset:>12}  {what:<21} {decision.reason}"
