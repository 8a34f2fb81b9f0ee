"""The facts of a log or a store, from listings, batch headers and saved positions."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from kstore.broker.cluster_metadata import find_cluster_metadata
from kstore.broker.topic_options import topic_options
from kstore.checking.codes import found as finding
from kstore.checking.codes import why
from kstore.config import LogConfig
from kstore.errors import CorruptFileError, KstoreError
from kstore.explain.open_transactions import transactions
from kstore.log.cursors.group_file import groups_in
from kstore.log.cursors.offset_commits import lag_behind
from kstore.log.files.checkpoints import look_into
from kstore.log.files.layout import CLEANER_OFFSETS, CLUSTER_METADATA, META_PROPERTIES, TopicPartition
from kstore.log.files.log_dir_state import directory_of, locate, read_cleaner_offset
from kstore.log.partition import PartitionLog
from kstore.log.read.page_cache import residency_of
from kstore.reporting.facts import Facts, GroupFacts, PartitionFacts, SegmentFacts
from kstore.reporting.headers import FIELDS, HeaderSums, Summed
from kstore.reporting.states import effective, policy_text, with_damage, with_states
from kstore.store.consumer_offsets import TOPIC, committed_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    from kstore.broker.cluster_metadata import ClusterMetadata
    from kstore.checking.finding import Finding, Report
    from kstore.engine.segment.segment import Segment
    from kstore.log.cursors.offset_commits import OffsetAndMetadata
    from kstore.log.recovery.steps import Step
    from kstore.log.share.descriptions import ShareGroupState
    from kstore.store.log_store import LogStore

    _Found = TypeVar("_Found")

MOST_BYTES = 64 << 30  # of logs whose headers are all read; of a larger directory, those of some segments


def facts_of_log(log: PartitionLog, checked: Report | None = None) -> Facts:
    """The facts of one partition. OSError."""
    found = _Gathered()
    config = found.tried(log.path, _config_of, log.path, None) or LogConfig()
    found.add(log, config, _every([log]), found.tried(log.path, read_cleaner_offset, log.path))
    tp = log.topic_partition or TopicPartition(os.path.basename(log.path), 0)
    if os.path.isdir(log.path):
        committed = found.tried(log.path, log.cursors) or {}
        found.add_committed("cursor", {group: {tp: at} for group, at in committed.items()}, {tp: log})
        shares = found.tried(log.path, log.share_groups) or {}
        found.add_shares({group: {tp: state} for group, state in shares.items()})
    return found.facts(os.path.basename(log.path), [log.path], checked, [directory_of(log.path)])


def facts_of_store(store: LogStore, checked: Report | None = None) -> Facts:
    """The facts of all partitions of a store. A partition that cannot be opened is a finding. OSError."""
    found = _Gathered()
    paths = [str(path) for path in store.paths]
    metadata = found.tried(paths[0], find_cluster_metadata, paths)
    configs = {
        topic: found.tried(paths[0], _topic_config, store, topic, metadata) or LogConfig()
        for topic in store.topics
    }
    opened = {tp: found.tried(str(tp), store.open, *tp) for tp in store.partitions}
    logs = {tp: log for tp, log in opened.items() if log is not None}
    every = _every(logs.values())
    cleaned: dict[TopicPartition, int] = {}
    for directory in paths:  # once for all partitions
        offsets, _ = found.tried(directory, look_into, f"{directory}/{CLEANER_OFFSETS}") or ({}, None)
        cleaned.update(offsets)
    for tp, log in logs.items():
        found.add(log, configs.get(tp.topic) or LogConfig(), every, cleaned.get(tp))
    health = store.health()
    for tp in health.missing:
        found.note("partition_missing", paths[0], f"{tp} is in none of the directories")
    for path, reason in health.directories.items():
        found.note("unreadable_file", str(path), reason)
    if any(found.tried(directory, groups_in, directory) for directory in paths):
        found.add_committed("cursor", found.tried(paths[0], store.cursors) or {}, logs)
    found.add_shares(found.tried(paths[0], store.share_groups) or {})
    if TOPIC in store.topics:
        for directory in paths:
            found.add_committed("Kafka consumer", found.tried(directory, committed_in, directory) or {}, logs)
    return found.facts(os.path.basename(os.path.abspath(paths[0])), paths, checked, paths)


def _topic_config(store: LogStore, topic: str, metadata: ClusterMetadata | None) -> LogConfig:
    known = store.describe(topic)
    if metadata is None or not known.partitions:
        return known.config
    return _config_of(str(next(iter(known.partitions.values()))), metadata)


def _config_of(path: str, metadata: ClusterMetadata | None) -> LogConfig:
    """The known options of a partition's topic. A broker may have others in its server.properties."""
    if locate(path).name.topic == CLUSTER_METADATA:
        return LogConfig()  # options of topics do not apply to it
    return topic_options(path, metadata).config()


def _every(logs: Iterable[PartitionLog]) -> int:
    """Of how many segments the headers of one are read."""
    return -(-sum(_size(segment) for log in logs for segment in log.segments) // MOST_BYTES) or 1


class _Gathered:
    """Collects the facts of one page."""

    def __init__(self) -> None:
        self._now = time.time_ns() // 1_000_000
        self._sums = HeaderSums()
        self._partitions: list[PartitionFacts] = []
        self._groups: list[GroupFacts] = []
        self._findings: list[Finding] = []
        self._with_producers: list[PartitionLog] = []

    def tried(self, where: str, read: Callable[..., _Found], *arguments: object) -> _Found | None:
        """What a call returns; None and a finding if it cannot read a file."""
        try:
            return read(*arguments)
        except (KstoreError, OSError) as e:
            self._unreadable(where, e)
            return None

    def _unreadable(self, path: str, error: Exception) -> None:
        file, position = getattr(error, "file", "") or path, getattr(error, "position", -1)
        is_batch = isinstance(error, CorruptFileError) and file.endswith(".log")
        self.note("corrupt_batch" if is_batch else "unreadable_file", file, why(error), position=position)

    def note(self, code: str, file: str, meaning: str, **where: Any) -> None:
        """Add a finding with one of the codes of a check. `where`: its position and offsets."""
        self._findings.append(finding(code, file, meaning, **where))

    def add(self, log: PartitionLog, config: LogConfig, every: int, cleaned: int | None) -> None:
        """Add a partition, and the headers of one in `every` segments, counted from the last. `cleaned`: the
        offset up to which it was compacted, if it was."""
        now = log.snapshot
        tp = log.topic_partition
        name = str(tp or os.path.basename(log.path))
        for step in now.recovery.steps:
            self._add_step(step)
        topic = tp.topic if tp else name
        ends = [*(segment.base_offset for segment in now.segments[1:]), now.log_end_offset]
        figures = self._figures(topic, now.segments, every)
        read = [self._segment(*each) for each in zip(now.segments, ends, figures, strict=False)]
        for segment in read:
            if segment.batches is None:
                self._sums.add_unread(topic, segment.max_timestamp, segment.size)
        is_brokers = "retention_ms" not in config.given_options() and os.path.exists(
            f"{directory_of(log.path)}/{META_PROPERTIES}"
        )
        config = effective(config, is_cleaned=cleaned is not None)
        states = {}
        if any(each is None or each.has_producers for each in figures):  # else it would be read for nothing
            states = self.tried(log.path, log.producers) or {}
            self._with_producers.append(log)
        self._partitions.append(
            PartitionFacts(
                name,
                topic,
                log.path,
                now.log_start_offset,
                now.log_end_offset,
                now.recovery.clean,
                policy_text(config, is_brokers=is_brokers),
                with_states(
                    read,
                    config,
                    cleaned=cleaned,
                    log_start_offset=now.log_start_offset,
                    log_end_offset=now.log_end_offset,
                    now_ms=self._now,
                ),
                len(states),
            )
        )

    def _add_step(self, step: Step) -> None:
        if step.code.kind:
            first, end = step.offsets
            offsets = (first, end - 1) if 0 <= first < end else None
            text = step.text(done=False)
            self.note(step.code.name.lower(), step.file, text, position=step.position, offsets=offsets)

    def _figures(self, topic: str, segments: Sequence[Segment], every: int) -> list[Summed | None]:
        """The figures of each segment; None for one that is not read, or cannot be."""
        headers = [
            self.tried(segment.path, segment.read_headers, 0, FIELDS) if at % every == 0 else None
            for at, segment in enumerate(reversed(segments))
        ][::-1]
        sums = iter(self._sums.add(topic, [each for each in headers if each is not None]))
        return [None if each is None else next(sums) for each in headers]

    def _segment(self, segment: Segment, next_offset: int, sums: Summed | None) -> SegmentFacts:
        """A segment without a state. What is wrong with its file is a finding."""
        size = _size(segment)
        if sums is not None and sums.size < size:
            text = f"{size - sums.size} bytes from here on hold no whole batch"
            self.note("torn_tail", segment.path, text, position=sums.size)
        elif segment.damage is not None:
            self._unreadable(segment.path, segment.damage)
        if sums is None:
            newest = self.tried(segment.path, getattr, segment, "max_timestamp_so_far")
            sums = Summed(None, None, -1, -1 if newest is None else newest.timestamp, 0, False)
        return SegmentFacts(
            segment.path,
            segment.base_offset,
            next_offset,
            size,
            sums.first_timestamp,
            sums.max_timestamp,
            sums.batches,
            sums.records,
            _cached(segment),
            "",
            "",
        )

    def add_committed(
        self,
        kind: str,
        groups: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]],
        logs: Mapping[TopicPartition, PartitionLog],
    ) -> None:
        """Add committed positions, by group and partition."""
        for group, positions in groups.items():
            for tp, position in positions.items():
                lag = lag_behind(logs[tp], position.offset) if tp in logs else None
                found = GroupFacts(kind, group, str(tp), position.offset, lag, position.timestamp)
                self._groups.append(found)

    def add_shares(self, groups: Mapping[str, Mapping[TopicPartition, ShareGroupState]]) -> None:
        """Add share groups: what they have not done begins at their start offset."""
        for group, states in groups.items():
            for tp, state in states.items():
                found = GroupFacts("share group", group, str(tp), state.start_offset, state.lag, -1)
                self._groups.append(found)

    def facts(
        self, title: str, directories: Sequence[str], checked: Report | None, around: Sequence[str]
    ) -> Facts:
        """All that was collected. `checked`: the report of a check, whose findings count. `around`: the log
        directories, where the coordinator of transactions may have its topic."""
        opened = self.tried(around[0], transactions, self._with_producers, around) or []
        findings = tuple(self._findings) if checked is None else checked.findings
        damage = {each.file: each.meaning for each in findings if each.severity in ("lost", "damaged")}
        return Facts(
            title,
            tuple(directories),
            self._now,
            tuple(each._replace(segments=with_damage(each.segments, damage)) for each in self._partitions),
            self._sums.codecs(),
            self._sums.rate(self._now),
            tuple(opened),
            tuple(self._groups),
            findings,
            sum(segment.batches is None for each in self._partitions for segment in each.segments),
            checked is not None,
        )


def _size(segment: Segment) -> int:
    try:
        return segment.size
    except OSError:  # reading its headers reports this
        return 0


def _cached(segment: Segment) -> int | None:
    try:
        return residency_of(segment).cached_bytes
    except OSError:  # the file system does not tell
        return None
