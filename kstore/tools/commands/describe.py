"""kstore describe: print a topic's configuration and its partitions, with the offsets that they hold."""

import argparse
import json
from typing import Any

from kstore.tools.commands.topics import facts
from kstore.tools.numbers import counted
from kstore.tools.stores import add_store_arguments, open_reader


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_store_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints the configuration, then a line for each partition."""
    store = open_reader(args)
    found = store.describe(args.topic)
    partitions: list[dict[str, Any]] = []
    for number, path in found.partitions.items():
        with store.open(args.topic, number) as log:
            partitions.append(
                {
                    "partition": number,
                    "log_start_offset": log.log_start_offset,
                    "log_end_offset": log.log_end_offset,
                    "segments": len(log.segments),
                    "size": sum(segment.size for segment in log.segments),
                    "path": str(path),
                }
            )
    told = {**facts(found), "partitions": partitions}
    if args.json:
        print(json.dumps(told))
        return 0
    config = told["config"]
    assert isinstance(config, dict)
    own = ", ".join(f"{name}={value}" for name, value in config.items())
    print(f"{found.name}: {own or 'no configuration of its own'}")
    for each in partitions:
        offsets = f"offsets {each['log_start_offset']} to {each['log_end_offset']} (exclusive)"
        size = f"{counted(each['segments'], 'segment')}, {counted(each['size'], 'byte')}"
        print(f"{each['partition']:>6}  {offsets}, {size}, {each['path']}")
    return 0
