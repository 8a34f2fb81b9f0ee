"""What a store does for its partitions in the background: retention, removal of files, checkpoints, flushing,
rolls, expiry of cursors.

Of a partition that is not open only names, sizes and times of files are looked at, and not again before
something can be due, unless it was open meanwhile.
"""

from __future__ import annotations

import os

from kstore.arguments import MAX64
from kstore.engine.segment.segment import Segment
from kstore.errors import InvalidConfigError, KstoreError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.cursors.expiry import expire
from kstore.log.cursors.group_file import groups_in, read_durable_positions
from kstore.log.cursors.home import Home
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.write.needs import needs_of
from kstore.store.upkeep.cleaning import CLOSED
from kstore.store.upkeep.partition_files import bases_of, files_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from kstore.config import LogConfig
    from kstore.log.cursors.offset_commits import Commit
    from kstore.log.write.retention import Decision, Need
    from kstore.log.writer import LogWriter
    from kstore.store.open_partitions import OpenPartitions
    from kstore.store.topic_catalog import TopicCatalog
    from kstore.store.upkeep.cleaning import Cleaning
    from kstore.store.upkeep.failures import Failures

_NO_RETENTION = (
    "retention_ms is not set, and Kafka's default of 7 days would delete some of its records: give the "
    "topic, or the store, retention_ms"
)


class MaintenanceTasks:
    """The tasks of one store; a Scheduler runs them, one at a time."""

    def __init__(
        self,
        failures: Failures,
        cleaning: Cleaning,
        keep_for: Sequence[str],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._failures = failures
        self._cleaning = cleaning
        self._keep_for = keep_for
        self._is_stopped = is_stopped
        self._flushed: dict[TopicPartition, int] = {}  # when
        self._left: dict[Path, str] = {}  # directories that could not be removed

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """They were deleted, or have another configuration."""
        for tp in partitions:
            self._flushed.pop(tp, None)

    def retain(self, logs: OpenPartitions, now: int) -> None:
        """Deletes old segments, as LogStore.retain does."""
        with self._failures.noted("retention"):
            needs = needs_of_groups(logs.catalog, self._keep_for)

            def retain(log: LogWriter, tp: TopicPartition) -> None:
                log.maintenance.retain(needs(tp))

            self._visit("retention", logs, now, _retention_due, retain)

    def roll(self, logs: OpenPartitions, now: int) -> None:
        """Rolls segments that have records and are older than segment_ms."""

        def roll(log: LogWriter, _: TopicPartition) -> None:
            if _end_of(log.active.view()[0], log.config) <= now:
                log.roll()

        self._visit("roll", logs, now, _roll_due, roll)

    def _visit(
        self,
        task: str,
        logs: OpenPartitions,
        now: int,
        due_at: Callable[[TopicCatalog, TopicPartition, str, int], int],
        act: Callable[[LogWriter, TopicPartition], object],
    ) -> None:
        """Does something with each partition that is open, or in which it may be due."""
        catalog, facts = logs.catalog, logs.facts
        for tp, directory in catalog.partitions.items():
            if self._is_stopped():
                return
            log = logs.peek(tp)
            until, _ = facts.get(task, tp) or (-1, 0)
            if (
                tp.topic == layout.CLUSTER_METADATA
                or (log is None and until > now)
                or (log is not None and log is self._cleaning.log)
            ):
                continue
            with self._failures.noted_of(catalog, task, tp):
                moment = facts.moment
                try:
                    due = now if log is not None else due_at(catalog, tp, directory.path_of(tp), now)
                    if due <= now:
                        act(logs.get(tp) if log is None else log, tp)
                    else:
                        facts.keep(task, tp, (due, CLOSED), moment)
                except InvalidConfigError as e:
                    facts.keep(task, tp, (MAX64, CLOSED), facts.moment)
                    text = str(e) if _has_retention(catalog, tp.topic) else _NO_RETENTION
                    raise InvalidConfigError(text) from None

    def remove(self, logs: OpenPartitions, now: int) -> None:
        """Removes what was deleted and whose time has come. In logs that are open, producers expire too."""
        catalog = logs.catalog
        with catalog.changing:
            if not self._is_stopped():
                catalog.remove_due(now)
            left = dict(catalog.not_removed)
        for path, reason in left.items() - self._left.items():
            self._failures.reports.warning("removal of %s failed: %s", path, reason)
        self._left = left
        for tp, log in logs.open_now():
            with self._failures.noted_of(catalog, "removal", tp):
                log.maintenance.remove_due(now)
        self._forget_closed("removal", logs)  # closing a log removes what it had deleted

    def checkpoint(self, logs: OpenPartitions, now: int) -> None:
        """Writes the checkpoint files, if they have changed."""
        for directory in logs.catalog.live():
            with self._failures.noted("checkpoints", directory.path):
                directory.held.store()

    def flush(self, logs: OpenPartitions, now: int) -> None:
        """Flushes logs for which flush_ms is over."""
        for tp, log in logs.open_now():
            # a clock may be put back
            if 0 <= now - self._flushed.get(tp, 0) < log.config.flush_ms:
                continue
            with self._failures.noted_of(logs.catalog, "flushing", tp):
                if log.durable_offset < log.log_end_offset:
                    self._flushed[tp] = now
                    log.flush()
        self._forget_closed("flushing", logs)  # closing a log flushes it, or its next opening recovers it

    def _forget_closed(self, task: str, logs: OpenPartitions) -> None:
        """A task does not fail for a log that is not open."""
        self._failures.drop_where(
            lambda failed, of: failed == task and isinstance(of, TopicPartition) and logs.peek(of) is None
        )

    def expire(self, logs: OpenPartitions, now: int) -> None:
        """Removes positions of groups without a read or commit for offsets_retention_minutes."""
        limit = logs.catalog.config.offsets_retention_minutes * 60_000
        for directory in logs.catalog.live():
            place = os.path.realpath(directory.path)
            with self._failures.noted("expiry of cursors", directory.path):
                for group in groups_in(place):
                    with self._failures.noted("expiry of cursors", group):
                        for tp in expire(place, group, limit, now):
                            text = "the position of group %s in %s has expired"
                            self._failures.reports.info(text, group, tp)


def retain_all(
    logs: OpenPartitions, groups: Sequence[str], *, dry_run: bool
) -> dict[TopicPartition, list[Decision]]:
    """Delete old segments of all partitions, as LogStore.retain does; the decisions by partition."""
    catalog, decisions = logs.catalog, {}
    needs = needs_of_groups(catalog, groups)
    catalog.look()
    for tp in sorted(catalog.partitions):
        if tp.topic == layout.CLUSTER_METADATA:
            continue
        topic = catalog.topics.get(tp.topic)
        try:
            decisions[tp] = logs.get(tp).maintenance.retain(needs(tp), dry_run=dry_run)
        except (OSError, KstoreError) as e:
            if topic is not None and not catalog.was_deleted(topic):
                logs.failed(tp, e)
        else:
            logs.failures.pop(tp, None)
    return decisions


def needs_of_groups(
    catalog: TopicCatalog, groups: Sequence[str]
) -> Callable[[TopicPartition], dict[str, list[Need]]]:
    """What groups need of a partition, also after a power cut. A group that reads only other topics is left
    out. Each file is read once. OSError, CorruptRecordError."""
    needs: dict[str, dict[TopicPartition, list[Need]]] = {}
    for group in groups:
        commits: dict[TopicPartition, Commit] = {}
        for directory in catalog.live():
            entries = read_durable_positions(os.path.realpath(directory.path), group)
            for tp in entries:
                if catalog.partitions.get(tp) is directory:
                    commit = Home.of(directory.path_of(tp)).commit_in(entries)
                    if commit is not None:
                        commits[tp] = commit
        all_of_group = (
            (tp, needs_of(directory.path_of(tp), tp, group, commits.get(tp)))
            for tp, directory in catalog.partitions.items()
        )
        needs[group] = {tp: found for tp, found in all_of_group if found}

    def needs_in(tp: TopicPartition) -> dict[str, list[Need]]:
        return {
            group: found.get(tp, [])
            for group, found in needs.items()
            if not found or any(tp.topic == other.topic for other in found)
        }

    return needs_in


def _has_retention(catalog: TopicCatalog, topic: str) -> bool:
    """Whether retention_ms was given for a topic."""
    return "retention_ms" in catalog.config_of(topic).given_options()


def _segment(path: str, base: int) -> Segment:
    return Segment(path, layout.segment_stem(base), base)


def _retention_due(catalog: TopicCatalog, tp: TopicPartition, path: str, now: int) -> int:
    """When retention may find something to delete in a partition that is closed: in the oldest segment, if at
    all."""
    bases, config = bases_of(path), catalog.config_of(tp.topic)
    if len(bases) > 1 and bases[1] <= catalog.partitions[tp].held.log_start_of(path):
        return now
    if not (config.deletes and bases):
        return MAX64
    if config.retention_bytes >= 0:
        files = files_of(path)
        if any(size for _, size in files) and config.retention_bytes <= sum(size for _, size in files[1:]):
            return now
    oldest = _segment(path, bases[0])
    if config.retention_ms < 0 or (len(bases) == 1 and oldest.size == 0):
        return MAX64
    due: int = oldest.largest_timestamp + config.retention_ms + 1
    if due <= now and not _has_retention(catalog, tp.topic):
        raise InvalidConfigError(_NO_RETENTION)
    return due


def _roll_due(catalog: TopicCatalog, tp: TopicPartition, path: str, now: int) -> int:
    """When the active segment of a partition that is closed ends."""
    files = files_of(path)
    return _end_of(_segment(path, files[-1][0]), catalog.config_of(tp.topic)) if files else MAX64


def _end_of(segment: Segment, config: LogConfig) -> int:
    """When an active segment is old enough to be rolled; never, if it has no records."""
    if not segment.size:
        return MAX64
    first = segment.batch_at(0).max_timestamp
    return (first if first >= 0 else segment.mtime_ms()) + config.effective_segment_ms + 1
