"""kstore.adopt: the topics of a store become topics of a broker that is stopped.

The order makes a crash harmless. A partition is copied under names that end in -delete, which a broker
removes when it starts. Then its checkpoints are written, which mean nothing for the empty partition that the
broker has made, and then the two directories are exchanged. So a partition is the broker's empty one or
complete. Positions of groups come last. The manifest of the copy stays in the partition until they are
written. The next run compares the partitions with those of the store: by their records it knows what it need
not copy again, and by the manifest whether positions are missing.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from contextlib import ExitStack
from functools import partial
from glob import escape, glob
from pathlib import Path

from kstore.arguments import boolean, elements, path_text
from kstore.broker.cluster_metadata import find_cluster_metadata
from kstore.broker.topic_options import topic_options
from kstore.config import LogConfig
from kstore.copying.destination import Destination
from kstore.copying.exchange import exchange
from kstore.copying.manifest import NAME
from kstore.copying.partition_copy import copy_partition
from kstore.copying.wanted import Wanted
from kstore.engine.io.directory import sync_directory, unlink
from kstore.errors import LogLockedError, LogNotFoundError
from kstore.kinds import as_text
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import checkpoints, layout
from kstore.log.files.layout import TopicPartition
from kstore.log.files.lock import holder_in
from kstore.log.files.log_dir_state import kept_options
from kstore.log.files.log_directory import WholeLease
from kstore.log.partition import PartitionLog
from kstore.log.read.progress import check_progress
from kstore.properties import read_properties
from kstore.store import LogStore
from kstore.store.consumer_offsets import TOPIC as OFFSETS
from kstore.store.consumer_offsets import append_positions, committed_here

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from kstore.log.cursors.offset_commits import OffsetAndMetadata
    from kstore.log.read.progress import ProgressCallback

_EPOCH = 0  # the first leader epoch of a topic: no client meets one above that of the broker's metadata
_NAMES = ("adopted", "copying", "previous")  # of directories that exist for a time
# options that decide what is deleted, also where only the broker has set them; besides retention.ms
_DELETING = (
    "cleanup.policy",
    "retention.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
)
_ABSENT = ("key.files",)  # options that only kstore has; so are those that begin with "internal."


class Adoption(NamedTuple):
    """The result of kstore.adopt(), or the plan of it.

    `commands` are the commands that must be run with Kafka's tools first, while the broker runs: nothing was
    changed if there are any. `partitions` maps the adopted partitions to their directories, `positions` maps
    groups to the positions that were written. `notes` are sentences about what a broker cannot take over.
    """

    commands: tuple[str, ...]
    partitions: dict[TopicPartition, Path]
    positions: dict[str, dict[TopicPartition, OffsetAndMetadata]]
    notes: tuple[str, ...]

    @property
    def is_ready(self) -> bool:
        """Whether no command must be run first."""
        return not self.commands


def adopt(
    store: str | PathLike[str],
    into: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    topics: Iterable[str] | None = None,
    bootstrap_server: str = "localhost:9092",
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> Adoption:
    """Copy the topics of a store to a Kafka broker in KRaft mode, and return an Adoption. The store is not
    changed.

    store: the directory of the store, which no program has open for writing.
    into: all log directories of the broker, which must be stopped.
    topics: the names of the topics to copy. Default: all.
    dry_run: True changes nothing.
    bootstrap_server: the address for the commands.
    progress: called as progress(done, total), in bytes.

    If the broker does not have the topics yet, or with other options, nothing is changed, and the `commands`
    of the result create them: run them while the broker runs, stop it, and call adopt() again. Partitions are
    copied into the directories that the broker has created. The copies have equal records, offsets,
    timestamps, transactions, log start offsets, states of compaction and positions of groups. Leader epochs
    become 0, because those of kstore mean nothing to the broker. The broker starts without recovery. After a
    crash in the middle, call adopt() again before the broker starts.

    LogLockedError if the broker is running or a program has the store open for writing. LogNotFoundError if
    the store lacks a topic, or has none. ValueError if a directory is not a broker's, if the broker's
    partition has records, or if it has more partitions than the store. CorruptFileError for damage. OSError.
    """
    boolean("dry_run", dry_run)
    if progress is not None:
        check_progress(progress)
    given = [into] if isinstance(into, str | os.PathLike) else list(into)
    directories = [os.path.abspath(path_text("into", each)) for each in given]
    place = os.path.abspath(path_text("store", store))
    plan = _Plan(place, directories, None if topics is None else elements("topics", topics))
    commands = tuple(plan.commands(bootstrap_server))
    if commands or dry_run:
        positions = {} if commands else plan.append_positions(dry_run=True)
        return Adoption(commands, plan.partitions(), positions, tuple(plan.notes()))
    return _carry_out(plan, progress)


class _Plan:
    """What is to be adopted, and where it goes. Reads only."""

    def __init__(self, place: str, directories: Sequence[str], topics: Sequence[str] | None) -> None:
        self.place, self.directories = place, directories
        if (holder := holder_in(place)) is not None:
            raise LogLockedError(place, os.getpid() if holder == "kstore" else None)
        for directory in directories:
            _check_broker(directory)
        with LogStore(place) as store:
            names = [name for name in store.topics if name not in layout.KAFKAS_COMPACTED]
            names = [name for name in names if name != layout.CLUSTER_METADATA]
            for name in topics or ():
                if name not in names:
                    raise LogNotFoundError(f"no topic {name!r} in {place}")
            self.topics = names if topics is None else list(dict.fromkeys(topics))
            if not self.topics:
                raise LogNotFoundError(f"nothing to adopt: {place} has no topic of a store")
            self.counts = {name: len(store.topics[name]) for name in self.topics}
            self.sources = {
                TopicPartition(name, number): str(path)
                for name in self.topics
                for number, path in store.describe(name).partitions.items()
            }
        self.metadata = find_cluster_metadata(directories)
        self.places = {tp: self._place_of(tp) for tp in self.sources}
        # those that have the records of the store, and of them those of which nothing is left to be done
        self.copied = {tp for tp, path in self.places.items() if path and self._is_copied(tp, path)}
        self.done = {tp for tp in self.copied if not os.path.exists(f"{self.places[tp]}/{NAME}")}
        for directory in directories:
            for tp in map(layout.partition_named, os.listdir(directory)):
                if tp is not None and tp.topic in self.counts and tp.partition >= self.counts[tp.topic]:
                    raise ValueError(
                        f"{directory} has {tp}, and the store has {self.counts[tp.topic]} partitions of the "
                        f"topic: add_partitions() of the store, or a topic with as many, is needed"
                    )

    def _place_of(self, tp: TopicPartition) -> str:
        """The path where the broker has a partition; "" if it has none. ValueError if no broker made it."""
        for directory in self.directories:
            path = f"{directory}/{tp}"
            if os.path.isdir(path):
                if not os.path.isfile(f"{path}/{layout.METADATA}"):
                    raise ValueError(
                        f"{path} has no {layout.METADATA}: it was not made by a broker in KRaft mode"
                    )
                return path
        return ""

    def _is_copied(self, tp: TopicPartition, path: str) -> bool:
        """Whether a partition of the broker has the records of the store, not none. ValueError if it has
        others. Checkpoints of one without records are not looked at: an earlier run may have written them for
        the records to come."""
        if not any(os.path.getsize(each) for each in glob(f"{escape(path)}/*.log")):
            return False
        with PartitionLog(path) as log, PartitionLog(self.sources[tp]) as source:
            if _has_same_records(log, source):
                return True
            raise ValueError(
                f"{path} has records, up to offset {log.log_end_offset}: adopt the store into a new topic"
            )

    def name_of(self, tp: TopicPartition, directory: str, what: str) -> str:
        """A path that a broker removes when it starts, equal in each run."""
        digest = hashlib.md5(f"{self.place} {tp} {what}".encode(), usedforsecurity=False).hexdigest()
        rest = f"-{tp.partition}.{digest}-delete"
        return f"{directory}/{tp.topic[: 255 - len(rest)]}{rest}"

    def partitions(self) -> dict[TopicPartition, Path]:
        return {tp: Path(path) for tp, path in self.places.items() if path}

    # ---- what must be done with Kafka's tools --------------------------------------------------------------

    def commands(self, server: str) -> Iterable[str]:
        """The commands that make the topics what they are in the store."""
        quoted = shlex.quote(server)
        for name in self.topics:
            places = {tp: path for tp, path in self.places.items() if tp.topic == name}
            present = [path for path in places.values() if path]
            if places.keys() <= self.done:
                continue
            if not present:
                config = "".join(
                    f" --config {shlex.quote(f'{key}={value}')}"
                    for key, value in sorted(self._options_of(name).items())
                )
                yield (
                    f"kafka-topics.sh --bootstrap-server {quoted} --create --topic {name} "
                    f"--partitions {self.counts[name]} --replication-factor 1{config}"
                )
                continue
            if len(present) < self.counts[name]:
                yield (
                    f"kafka-topics.sh --bootstrap-server {quoted} --alter --topic {name} "
                    f"--partitions {self.counts[name]}"
                )
            changed = self._changes_of(name, present[0])
            if changed:
                config = ",".join(
                    f"{key}=[{value}]" if "," in value else f"{key}={value}"
                    for key, value in sorted(changed.items())
                )
                yield (
                    f"kafka-configs.sh --bootstrap-server {quoted} --alter --entity-type topics "
                    f"--entity-name {name} --add-config {shlex.quote(config)}"
                )
        if self.committed() and not self._has_offsets():
            # Asking for any group makes the topic __consumer_offsets.
            yield f"kafka-consumer-groups.sh --bootstrap-server {quoted} --describe --group kstore-adopt"

    def _config_of(self, name: str) -> LogConfig:
        """The configuration of a topic in the store, which by default deletes nothing by age."""
        path = next(path for tp, path in sorted(self.sources.items()) if tp.topic == name)
        return LogConfig.from_topic({"retention.ms": "-1"} | kept_options(path).options)

    def _options_of(self, name: str) -> dict[str, str]:
        """The options with which a broker makes a topic, in Kafka's notation, without those that only kstore
        has."""
        config = self._config_of(name)
        options = config.to_topic()
        if config.deletes:  # also Kafka's default, for which server.properties may have another
            options["retention.ms"] = str(config.retention_ms)
        elif config.retention_ms == -1:
            options.pop("retention.ms")
        return {
            key: value
            for key, value in options.items()
            if key not in _ABSENT and not key.startswith("internal.")
        }

    def _changes_of(self, name: str, path: str) -> dict[str, str]:
        """The options of a topic that the broker has otherwise, and that the store has set or that decide
        what is deleted."""
        if self.metadata is None:
            return {}
        config, options = self._config_of(name), self._options_of(name)
        known = topic_options(path, self.metadata)
        there = known.config()
        for key in _DELETING:
            if _value(config, key) != _value(there, key):
                options.setdefault(key, _value(config, key))
        return {
            key: value
            for key, value in options.items()
            if known.options.get(key) != value and (key == "retention.ms" or _value(there, key) != value)
        }

    def _has_offsets(self) -> bool:
        return any(
            tp is not None and tp.topic == OFFSETS
            for directory in self.directories
            for tp in map(layout.partition_named, os.listdir(directory))
        )

    def notes(self) -> Iterable[str]:
        """What a broker cannot take over, what is done already, and what is not known."""
        if self.metadata is None and self.done != self.sources.keys():
            yield (
                f"the options that the broker has are not known, because {layout.CLUSTER_METADATA}-0 is in "
                "no directory given: a topic whose retention.ms differs may lose records there"
            )
        for tp, path in self.sources.items():
            if tp in self.done:
                yield f"{tp} is adopted already"
                continue
            if os.path.isdir(f"{path}/{layout.SHARES}"):
                yield f"{tp}: the states of its share groups stay in the store"
            with PartitionLog(path) as log:
                if log.last_stable_offset() < log.log_end_offset:
                    yield (
                        f"{tp}: a transaction is open since offset {log.last_stable_offset()}, of which the "
                        "broker does not know; kafka-transactions.sh find-hanging finds it, and abort ends it"
                    )

    # ---- positions -----------------------------------------------------------------------------------------

    def committed(self) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """The positions of the groups, with the leader epoch that the records have in the broker."""
        found = committed_here({tp: path for tp, path in self.sources.items() if tp not in self.done})
        return {
            group: {
                tp: position._replace(leader_epoch=min(position.leader_epoch, _EPOCH))
                for tp, position in positions.items()
            }
            for group, positions in found.items()
        }

    def append_positions(self, *, dry_run: bool) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Writes the positions into __consumer_offsets; those that were written."""
        first, *_ = self.directories
        done = append_positions(self.committed, self.places, first, None, self.directories, dry_run=dry_run)
        return done.positions


def _value(config: LogConfig, key: str) -> str:
    """The value of an option in Kafka's notation."""
    return as_text(getattr(config, key.replace(".", "_")))


def _check_broker(directory: str) -> None:
    """ValueError unless it is a log directory of a broker in KRaft mode; LogLockedError if that is
    running."""
    properties = f"{directory}/{layout.META_PROPERTIES}"
    if not os.path.isfile(properties):
        raise ValueError(
            f"{directory} is not a log directory of a broker: it has no {layout.META_PROPERTIES}"
        )
    if read_properties(properties).get("version") != "1":
        raise ValueError(f"{directory} belongs to a broker that is not in KRaft mode")
    holder = holder_in(directory)
    if holder is not None:
        raise LogLockedError(directory, os.getpid() if holder == "kstore" else None)


def _has_same_records(log: PartitionLog, other: PartitionLog) -> bool:
    """Whether two logs have the same batches, but for leader epochs. Reads headers; a checksum stands for the
    rest of a batch."""
    if (log.log_start_offset, log.log_end_offset) != (other.log_start_offset, other.log_end_offset):
        return False
    if [(s.base_offset, s.size) for s in log.segments] != [(s.base_offset, s.size) for s in other.segments]:
        return False
    fields = ["base_offset", "size", "crc"]
    return all(
        mine.read_headers(0, fields).tobytes() == its.read_headers(0, fields).tobytes()
        for mine, its in zip(log.segments, other.segments, strict=True)
    )


def _carry_out(plan: _Plan, progress: ProgressCallback | None) -> Adoption:
    if plan.done == plan.sources.keys():
        return Adoption((), plan.partitions(), {}, tuple(plan.notes()))
    if not all(os.path.exists(f"{each}/{layout.CLEAN_SHUTDOWN}") for each in plan.directories):
        _recover(plan)
    with ExitStack() as stack:
        leases = {}
        for directory in plan.directories:
            leases[directory] = lease = WholeLease(directory)
            stack.callback(lease.leave_unclean)
            lease.take()
        for tp, source in plan.sources.items():
            path = plan.places[tp]
            if tp not in plan.copied:
                _adopt_one(plan, tp, source, path, leases[os.path.dirname(path)], progress)
        positions = plan.append_positions(dry_run=False)
        for tp, path in plan.places.items():
            for what in _NAMES:  # of an earlier run
                shutil.rmtree(plan.name_of(tp, os.path.dirname(path), what), ignore_errors=True)
        for lease in leases.values():
            lease.leave(clean=True)
    for path in plan.places.values():  # all is done
        unlink(f"{path}/{NAME}", missing_ok=True)
    return Adoption((), plan.partitions(), positions, tuple(plan.notes()))


def _recover(plan: _Plan) -> None:
    """Recovers the partitions of a broker that was killed, as it would; or those of a killed adoption, of
    which no partition is damaged."""
    for directory in plan.directories:
        lease = WholeLease(directory)
        try:
            lease.take()
            assert lease.directory is not None
            # checkpoints of an earlier run for records that it has not moved there
            lease.directory.forget(plan.places.keys() - plan.copied)
        finally:
            lease.leave_unclean()
    LogStore(*plan.directories, mode="a", background=False).close()


def _adopt_one(
    plan: _Plan,
    tp: TopicPartition,
    source: str,
    path: str,
    lease: WholeLease,
    progress: ProgressCallback | None,
) -> None:
    directory = os.path.dirname(path)
    name = partial(plan.name_of, tp, directory)
    work = Destination(name("adopted"), source, progress, copying=name("copying"), previous=name("previous"))
    topic_id = checkpoints.read_topic_id(f"{path}/{layout.METADATA}")
    try:
        work.begin({""})
        _, known = copy_partition(source, "", work, Wanted(leader_epoch=_EPOCH))
        checkpoints.write_topic_id(f"{work.path}/{layout.METADATA}", topic_id)
        work.finish({""})
    finally:
        work.release()
    assert lease.directory is not None
    lease.directory.put_closed(tp, known.log_start, known.recovery_point, known.cleaner)
    exchange(work.final, path)
    sync_directory(directory)
    shutil.rmtree(work.final)
