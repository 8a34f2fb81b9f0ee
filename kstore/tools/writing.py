"""Opening a partition for subcommands that write, with their common options."""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import kstore
from kstore import opening
from kstore.broker.cluster_metadata import NO_METADATA, ClusterMetadata, find_cluster_metadata
from kstore.broker.topic_options import TopicOptions, directories_of_broker, topic_options
from kstore.config import LogConfig
from kstore.errors import CorruptFileError, InvalidConfigError, KstoreError
from kstore.log.files import layout
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import directory_of, kept_options
from kstore.log.partition import PartitionLog
from kstore.log.recovery.loader import load
from kstore.log.recovery.presence import doubt_about, not_found, require_partition
from kstore.log.recovery.report import Recovery
from kstore.log.write.opening import KeptConfig
from kstore.log.writer import LogWriter
from kstore.properties import read_properties
from kstore.tools.numbers import seconds
from kstore.tools.terminal import note


def add_write_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the directory and of the configuration."""
    parser.add_argument("directory", metavar="DIR", help="partition directory, such as data/orders-0")
    add_config_argument(parser)
    add_server_properties_argument(parser)
    parser.add_argument(
        "--keep-cut",
        action="store_true",
        help="after an unclean stop, copy all bytes that recovery removes to .cut files beside the log "
        "(default: only those with undamaged batches, and flushed ones)",
    )
    add_wait_argument(parser)


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option --config NAME=VALUE, which may be repeated."""
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the topic's configuration, in Kafka's notation: --config retention.ms=86400000 "
        "(may be repeated)",
    )


def settings_of(settings: Iterable[str]) -> dict[str, str]:
    """The options in --config: name -> value. ValueError."""
    topic = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--config is NAME=VALUE, not {setting!r}")
        topic[name] = value
    return topic


def add_server_properties_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option --server-properties."""
    parser.add_argument(
        "--server-properties",
        metavar="FILE",
        help="read the options that --config does not give from a broker's server.properties",
    )


def add_wait_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option --wait."""
    parser.add_argument(
        "--wait",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="how long to wait while another writer has the log open (default 0)",
    )


def config_of(args: argparse.Namespace) -> LogConfig:
    """The configuration of the log, as it is saved beside it by kstore or by a broker, with the changes of
    these options. InvalidConfigError.

    A broker's file also sets the retention if it does not mention it: to the default."""
    changes = settings_of(args.config)
    properties = read_properties(args.server_properties) if args.server_properties else {}
    known = options_in(args.directory, properties)
    if not args.server_properties:
        return known.config(changes)
    config = brokers_config(
        args.server_properties, known.options | changes, properties | known.broker_options
    )
    return config.replace(retention_ms=config.retention_ms)


def options_in(path: str, properties: Mapping[str, str] | None = None) -> TopicOptions:
    """The saved options of a log. OSError, CorruptCheckpointError."""
    return topic_options(path, metadata_in(directories_of_broker(path, properties or {})))


def metadata_in(directories: Iterable[str]) -> ClusterMetadata | None:
    """The metadata of a broker in log directories. If it cannot be read, a note on stderr reports it."""
    try:
        return find_cluster_metadata(directories)
    except (CorruptFileError, OSError) as e:
        note(f"the topics' options are not known, because the broker's metadata cannot be read: {e}")
        return NO_METADATA


def brokers_config(
    file: str, topic: dict[str, str], properties: Mapping[str, str] | None = None
) -> LogConfig:
    """The configuration of a broker's file and a topic's options. InvalidConfigError for the options,
    KstoreError for a value in the file, which the user did not type. OSError. properties: its content, if it
    was read before."""
    LogConfig.from_topic(topic)
    try:
        return LogConfig.from_server_properties(file if properties is None else properties, topic)
    except InvalidConfigError as e:
        raise KstoreError(f"{file}: {e}") from None


def note_name(directory: str) -> None:
    """Note on stderr that a broker would not find the records, if the directory has no partition's name."""
    path = Path(directory).absolute()
    if not path.exists() and (doubt := doubt_about(path)):
        note(doubt)
        return
    if layout.is_partition_name(path.name) or not is_log_directory(path.parent):
        return
    note(
        f"{path.parent} is a log directory, and a broker would not see {path.name!r} in it as a partition: "
        "its name is not a topic, a dash and a number without leading zeros, such as orders-0"
    )


def is_log_directory(path: Path) -> bool:
    """Whether a directory is a log directory, by its checkpoint files or its partitions."""
    if directory_of(path / "any-0") == str(path.absolute()):
        return True
    return path.is_dir() and any(
        layout.is_partition_name(entry.name) and any(entry.glob("*.log")) for entry in path.iterdir()
    )


def plan_of(args: argparse.Namespace, *, whole: bool = False) -> tuple[Recovery, int, int]:
    """The report of a dry run of open_writer, and the first offset and the end that it would leave. If the
    log is open for writing, the report of a reader."""
    path, interval, is_open = _dry(args)
    if is_open:
        with kstore.open(path, index_interval_bytes=interval) as log:
            return log.recovery, log.log_start_offset, log.log_end_offset
    require_partition(path)
    plan = load(path, index_interval_bytes=interval, mode="dry", **_trust(whole))
    return plan.recovery, plan.log_start_offset, plan.log_end_offset


def open_dry(args: argparse.Namespace) -> PartitionLog:
    """Open the log for reading, for a dry run, with the checks of open_writer."""
    path, interval, _ = _dry(args)
    return kstore.open(path, index_interval_bytes=interval)


def _dry(args: argparse.Namespace) -> tuple[Path, int, bool]:
    """The directory for a dry run, its index interval in bytes, and whether it is open for writing.

    Takes no lock. A note reports one for which the real command would have to wait."""
    config = config_of(args)
    path = Path(args.directory)
    if not path.is_dir():
        raise not_found(path)
    return path, config.index_interval_bytes, note_open(path, Path(directory_of(path)))


def note_open(path: Path, directory: Path) -> bool:
    """Whether a path in a log directory is open for writing. If so, note it on stderr for a dry run."""
    is_open = is_locked(directory)
    if is_open:
        note(f"{path} is open for writing now: without --dry-run this would be refused")
    return is_open


def open_writer(
    args: argparse.Namespace,
    mode: Literal["a", "r+"],
    durability: Literal["none", "group", "each"] = "none",
    config: LogConfig | None = None,
    *,
    whole: bool = False,
) -> LogWriter:
    """Open the log that these options select for writing, after recovery if the stop was unclean. The
    configuration, by default that of the options, applies to this command and is not saved. whole: check
    every batch."""
    path = Path(args.directory)
    is_new = (
        mode == "a" and not any(path.glob("*.log")) and not (path.is_dir() and kept_options(path).of_store)
    )
    if mode == "a":
        note_name(args.directory)
    log = opening.open_writer(
        args.directory,
        KeptConfig((config or config_of(args)).given_options(), keeps=False),
        create=mode == "a",
        keep_cut=args.keep_cut,
        durability=durability,
        wait=args.wait,
        **_trust(whole),
    )
    if is_new:
        note(f"there was no log at {args.directory}: a new one was made")
    return log


def _trust(whole: bool) -> dict[str, Any]:
    """The arguments of an opening that distrusts the checkpoints, if `whole`."""
    return {"clean": False, "recovery_point": 0} if whole else {}
