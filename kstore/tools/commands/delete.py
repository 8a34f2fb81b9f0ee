"""kstore delete: delete a topic of a log directory, with all its records."""

import argparse

from kstore.tools.stores import add_changing_arguments, open_store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the subcommand."""
    add_changing_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Deletes the topic."""
    with open_store(args) as store:
        store.delete_topic(args.topic)
    return 0
