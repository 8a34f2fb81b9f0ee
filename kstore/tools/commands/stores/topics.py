"""The commands about topics: kstore topics, describe, create, alter and delete."""

import argparse
import json
from pathlib import Path
from typing import Any

import kstore
from kstore.broker.cluster_metadata import ClusterMetadata
from kstore.broker.topic_options import topic_options
from kstore.errors import LogNotFoundError
from kstore.kinds import as_text
from kstore.log.files.log_dir_state import kept_options
from kstore.log.partition import PartitionLog
from kstore.log.write.opening import KeptConfig
from kstore.opening import open_writer
from kstore.store.descriptions import TopicDescription
from kstore.store.topic import checked_name
from kstore.tools.numbers import counted
from kstore.tools.stores import (
    add_changing_arguments,
    add_store_arguments,
    open_dry_store,
    open_reader,
    open_store,
    options_of,
    partition_count,
)
from kstore.tools.terminal import say
from kstore.tools.writing import add_config_argument, metadata_in, options_in


def add_topics_arguments(parser: argparse.ArgumentParser) -> None:
    add_store_arguments(parser, topic=False)
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="only this topic")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each topic")


def topics(args: argparse.Namespace) -> int:
    """List the topics of a log directory."""
    store = open_reader(args)
    metadata = metadata_in([args.directory, *args.also])
    for name in store.topics if args.topic is None else [args.topic]:
        found = store.describe(name)
        config = _config_of(found, metadata)
        if args.json:
            say(json.dumps({"topic": name, "partitions": list(found.partitions), "config": config}))
        else:
            own = "".join(f"  {option}={value}" for option, value in config.items())
            say(f"{name}  {counted(len(found.partitions), 'partition')}{own}")
    return 0


def _config_of(topic: TopicDescription, metadata: ClusterMetadata | None) -> dict[str, str]:
    """A topic's own configuration, in Kafka's notation."""
    own = {name.replace("_", "."): as_text(value) for name, value in topic.options.items()}
    if metadata is None or not topic.partitions:
        return own
    return topic_options(next(iter(topic.partitions.values())), metadata).options | own


def add_describe_arguments(parser: argparse.ArgumentParser) -> None:
    add_store_arguments(parser, or_partition=True)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def describe(args: argparse.Namespace) -> int:
    """Print the configuration of a topic and its partitions with their offsets; or those of one log."""
    config: dict[str, Any]
    partitions: list[dict[str, Any]]
    if args.topic is None:
        if args.also:
            raise ValueError("--also is for a topic: give the log directory, and TOPIC")
        with _opened(args.directory) as log:
            known = options_in(args.directory)
            name, config, partitions = str(log.path), known.options, [_facts_of(log)]
            facts = {"config": config, "of_store": known.source == "store", **partitions[0]}
    else:
        store = open_reader(args)
        found = store.describe(args.topic)
        metadata = metadata_in([args.directory, *args.also])
        name, config, partitions = found.name, _config_of(found, metadata), []
        for number in found.partitions:
            with store.open(args.topic, number) as log:
                partitions.append({"partition": number, **_facts_of(log)})
        facts = {"topic": name, "partitions": partitions, "config": config}
    if args.json:
        print(json.dumps(facts))
        return 0
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
                f"kstore describe {directory} TOPIC describes a topic in it, kstore topics {directory} "
                "lists them"
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


def add_create_arguments(parser: argparse.ArgumentParser) -> None:
    add_changing_arguments(parser)
    parser.add_argument(
        "--partitions",
        type=partition_count,
        default=1,
        metavar="N",
        help="number of partitions (default %(default)s)",
    )
    add_config_argument(parser)


def create(args: argparse.Namespace) -> int:
    """Create a topic in a log directory, which is created if it does not exist."""
    options = options_of(args.config)
    checked_name(args.topic)  # before a directory is created
    with open_store(args, make=True) as store:
        store.create_topic(args.topic, args.partitions, **options)
    return 0


def add_alter_arguments(parser: argparse.ArgumentParser) -> None:
    add_changing_arguments(parser, or_partition=True)
    parser.add_argument(
        "--partitions",
        type=partition_count,
        metavar="N",
        help="add partitions, so that the topic has N in all",
    )
    add_config_argument(parser)
    parser.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="NAME",
        help="restore the default of an option (may be repeated)",
    )


def alter(args: argparse.Namespace) -> int:
    """Change a topic's own configuration, or add partitions to it; or change the options saved in one log."""
    changes: dict[str, Any] = options_of(args.config)
    for name in args.delete_config:
        own = name.replace(".", "_")
        if own in changes:
            raise ValueError(f"{name} is given by --config and by --delete-config: which one is meant?")
        changes[own] = None
    if not changes and args.partitions is None:
        raise ValueError("alter needs --partitions, --config or --delete-config")
    if args.topic is None:
        return _alter_log(args, changes)
    with open_store(args) as store:
        if changes:
            store.alter_topic(args.topic, **changes)
        if args.partitions is not None:
            store.add_partitions(args.topic, args.partitions)
    return 0


def _alter_log(args: argparse.Namespace, changes: dict[str, Any]) -> int:
    if args.partitions is not None or args.also:
        raise ValueError("--partitions and --also are for a topic: give the log directory, and TOPIC")
    if kept_options(Path(args.directory)).of_store:
        path = Path(args.directory).absolute()
        raise ValueError(
            f"a store keeps the configuration of {path.name}: kstore alter {path.parent} "
            f"{path.name.rpartition('-')[0]}"
        )
    open_writer(args.directory, KeptConfig(changes, keeps=True), create=False, wait=args.wait).close()
    return 0


def add_delete_arguments(parser: argparse.ArgumentParser) -> None:
    add_changing_arguments(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="only print what would be deleted, without writing or locking"
    )


def delete(args: argparse.Namespace) -> int:
    """Delete a topic of a log directory, with all its records."""
    if args.dry_run:
        reader = open_dry_store(args)
        for number in reader.describe(args.topic).partitions:
            with reader.open(args.topic, number) as log:
                say(
                    f"{log.path}: offsets {log.log_start_offset} to {log.log_end_offset} (exclusive) would "
                    "be deleted"
                )
        return 0
    with open_store(args) as store:
        store.delete_topic(args.topic)
    return 0
