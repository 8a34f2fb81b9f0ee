"""kstore topics: list the topics of a log directory."""

import argparse
import json

from kstore.kinds import as_text
from kstore.store.descriptions import TopicDescription
from kstore.tools.numbers import counted
from kstore.tools.stores import add_store_arguments, open_reader
from kstore.tools.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_store_arguments(parser, topic=False)
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="only this topic")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each topic")


def run(args: argparse.Namespace) -> int:
    """Prints a line for each topic."""
    store = open_reader(args)
    for name in store.topics if args.topic is None else [args.topic]:
        found = store.describe(name)
        say(json.dumps(facts(found)) if args.json else _text(found))
    return 0


def facts(found: TopicDescription) -> dict[str, object]:
    """What is told of a topic, for JSON; its own configuration in Kafka's notation."""
    config = {name.replace("_", "."): as_text(value) for name, value in found.options.items()}
    return {"topic": found.name, "partitions": list(found.partitions), "config": config}


def _text(found: TopicDescription) -> str:
    config = facts(found)["config"]
    assert isinstance(config, dict)
    own = "".join(f"  {name}={value}" for name, value in config.items())
    return f"{found.name}  {counted(len(found.partitions), 'partition')}{own}"
