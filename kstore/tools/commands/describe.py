"""kstore describe: print a topic's configuration and its partitions, with the offsets that they hold; or
those of one log."""

import argparse
import json
from pathlib import Path
from typing import Any

import kstore
from kstore.errors import LogNotFoundError
from kstore.log.files.log_dir_state import kept_options
from kstore.log.partition import PartitionLog
from kstore.tools.commands.topics import facts
from kstore.tools.numbers import counted
from kstore.tools.stores import add_store_arguments, open_reader
from kstore.tools.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_store_arguments(parser, or_partition=True)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints the configuration, then a line for each partition."""
    partitions: list[dict[str, Any]]
    told: dict[str, Any]
    if args.topic is None:
        if args.also:
            raise ValueError("--also is for a topic: give the log directory, and TOPIC")
        with _opened(args.directory) as log:
            kept = kept_options(Path(args.directory))
            told = {"config": kept.options, "of_store": kept.of_store, **_facts_of(log)}
            name = str(log.path)
            partitions = [told]
    else:
        store = open_reader(args)
        found = store.describe(args.topic)
        partitions = []
        for number in found.partitions:
            with store.open(args.topic, number) as log:
                partitions.append({"partition": number, **_facts_of(log)})
        name = found.name
        told = {**facts(found), "partitions": partitions}
    if args.json:
        print(json.dumps(told))
        return 0
    config = told["config"]
    assert isinstance(config, dict)
    own = ", ".join(f"{option}={value}" for option, value in config.items())
    say(f"{name}: {own or 'no configuration of its own'}")
    for each in partitions:
        offsets = f"offsets {each['log_start_offset']} to {each['log_end_offset']} (exclusive)"
        size = f"{counted(each['segments'], 'segment')}, {counted(each['size'], 'byte')}"
        say(f"{each.get('partition', ''):>6}  {offsets}, {size}, {each['path']}")
    return 0


def _opened(directory: str) -> PartitionLog:
    try:
        return kstore.open(directory)
    except LogNotFoundError as e:
        if e.is_log_directory:
            e.add_note(
                f"kstore describe {directory} TOPIC describes a topic in it, kstore topics {directory} lists them"
            )
        raise


def _facts_of(log: PartitionLog) -> dict[str, Any]:
    return {
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "segments": len(log.segments),
        "size": sum(segment.size for segment in log.segments),
        "path": str(log.path),
    }
