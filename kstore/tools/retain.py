"""kstore retain: delete the segments that retention lets go, or say what it would."""

import argparse
import json
import time

import kstore
from kstore.log.retention import Decision, decide_for
from kstore.tools.writing import add_write_arguments, config_of, open_writer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_write_arguments(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="only say, segment by segment, what would go and why"
    )
    parser.add_argument("--json", action="store_true", help="a JSON object for each segment")


def run(args: argparse.Namespace) -> int:
    """Prints a line for each segment, oldest first."""
    if args.dry_run:  # writes nothing, takes no lock
        config = config_of(args)
        with kstore.open(args.directory, index_interval_bytes=config.index_interval_bytes) as log:
            decisions = decide_for(log, config, time.time_ns() // 1_000_000)
    else:
        with open_writer(args, "r+") as log:
            decisions = log.retain()
    for decision in decisions:
        print(json.dumps(decision._asdict()) if args.json else _text(decision))
    return 0


def _text(decision: Decision) -> str:
    what = f"delete ({decision.rule})" if decision.delete else "keep"
    return f"{decision.base_offset:>12}  {what:<21} {decision.reason}"
