"""kstore adopt."""

import argparse

import kstore
from kstore.tools.numbers import counted
from kstore.tools.progress import Progress
from kstore.tools.terminal import note, say


def add_adopt_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", help="the directory of a store, which stays as it is")
    parser.add_argument(
        "--into",
        nargs="+",
        required=True,
        metavar="DIR",
        help="all log directories of the broker (log.dirs in its server.properties)",
    )
    parser.add_argument("--topic", action="append", help="adopt only this topic (may be repeated)")
    parser.add_argument(
        "--bootstrap-server",
        default="localhost:9092",
        metavar="HOST:PORT",
        help="the address of the broker, for the commands that are printed (default localhost:9092)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be done")


def adopt(args: argparse.Namespace) -> int:
    """Copy the topics of a store to a stopped Kafka broker, with records, offsets, log start offsets and
    positions of groups. If the broker lacks a topic, kstore adopt changes nothing and prints the commands
    that create it: run them while the broker runs, stop it, and run kstore adopt again. After a crash, run it
    again before the broker starts. The exit code is 1 if commands must be run first."""
    with Progress(0, "adopt") as progress:
        done = kstore.adopt(
            args.store,
            args.into,
            topics=args.topic,
            bootstrap_server=args.bootstrap_server,
            dry_run=args.dry_run,
            progress=progress.share,
        )
    if done.commands:
        note(
            "nothing was changed. Start the broker, run these commands, stop it, and run kstore adopt again:"
        )
        say(*done.commands)
        return 1
    verb = "would be adopted" if args.dry_run else "adopted"
    for tp, path in done.partitions.items():
        say(f"{tp} {verb}: {path}")
    for group, positions in done.positions.items():
        say(
            f"group {group}: "
            f"{counted(len(positions), 'position')}{' would be written' if args.dry_run else ''}"
        )
    for text in done.notes:
        note(text)
    return 0
