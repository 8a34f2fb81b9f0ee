"""kstore repair."""

import argparse
import errno
import json
import os
from pathlib import Path

from kstore.arguments import local_path
from kstore.checking.check import check_paths
from kstore.checking.repair import plan_of, run_plan
from kstore.engine.io.file import read_whole
from kstore.errors import LogNotFoundError
from kstore.tools.terminal import note, say

_LARGEST_PLAN = 64 << 20  # bytes


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
        help="save the plan in FILE; with --run: carry the plan out only if it equals the saved one",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _saved(path: str) -> object:
    """The steps in a file that --plan has saved. ValueError, OSError."""
    try:
        steps = json.loads(read_whole(path, _LARGEST_PLAN))
        is_plan = isinstance(steps, list) and all(
            isinstance(each, dict) and "action" in each for each in steps
        )
        why = "" if is_plan else "it has no steps"
    except (ValueError, RecursionError) as e:
        why = str(e)
    if why:
        raise ValueError(f"{path} is no plan that kstore repair --plan has saved: {why}")
    return steps


def repair(args: argparse.Namespace) -> int:
    """Print a plan that repairs the findings of kstore check; with --run, carry it out. A repair moves
    damaged batches to .cut files, and rebuilds indexes, snapshots and checkpoints from the logs. The exit
    codes are 0, 1 (problems are left, or the repair has failed), 2 (wrong usage, or nothing is at the
    path)."""
    if args.plan is not None and os.path.exists(args.plan) and not os.path.isfile(args.plan):
        raise OSError(errno.EINVAL, "not a regular file", args.plan)
    paths = [local_path("DIR", each) for each in args.paths]
    try:
        report = check_paths(paths)
    except LogNotFoundError as e:
        note(e)
        return 2
    plan = plan_of(paths, report)
    steps = json.loads(json.dumps(plan.as_dict()["steps"]))
    if args.plan is not None and args.runs:
        if _saved(args.plan) != steps:
            note(f"{args.plan}: the directory has changed since the plan was saved; make a new plan")
            return 1
    elif args.plan is not None:
        if os.path.lexists(args.plan):
            _saved(args.plan)  # another file is not overwritten
        Path(args.plan).write_text(json.dumps(steps, indent=1) + "\n", "utf-8")
    if args.runs:
        plan = run_plan(plan, paths)
    if args.json:
        print(json.dumps(plan.as_dict()))
    else:
        say(*str(plan).splitlines())
    return 1 if plan.left else 0
