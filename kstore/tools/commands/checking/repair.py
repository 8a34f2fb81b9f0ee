"""kstore repair."""

import argparse
import errno
import json
import os
from pathlib import Path

from kstore.checking.check import check_paths
from kstore.checking.repair import plan_of, run_plan
from kstore.tools.terminal import note, say


def add_repair_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        metavar="DIR",
        nargs="+",
        help="partition directory, or log directories of a store or a broker",
    )
    parser.add_argument(
        "--run", dest="runs", action="store_true", help="carry out the plan; without it nothing is changed"
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="save the plan in FILE; with --run: carry it out only if it is still the saved one",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def repair(args: argparse.Namespace) -> int:
    """Print a plan that repairs what kstore check finds; with --run, carry it out. Damaged batches are moved
    to .cut files, and indexes, snapshots and checkpoints are made from the logs. The exit code is 1 if
    problems are left that a repair does not treat."""
    if args.plan is not None and os.path.exists(args.plan) and not os.path.isfile(args.plan):
        raise OSError(errno.EINVAL, "not a regular file", args.plan)
    plan = plan_of(args.paths, check_paths(args.paths))
    steps = json.loads(json.dumps(plan.as_dict()["steps"]))
    if args.plan is not None and args.runs:
        if json.loads(Path(args.plan).read_text("utf-8")) != steps:
            note(f"{args.plan}: the directory has changed since the plan was saved; make a new plan")
            return 1
    elif args.plan is not None:
        Path(args.plan).write_text(json.dumps(steps, indent=1) + "\n", "utf-8")
    if args.runs:
        plan = run_plan(plan, args.paths)
    if args.json:
        print(json.dumps(plan.as_dict()))
    else:
        say(*str(plan).splitlines())
    return 1 if plan.left else 0
