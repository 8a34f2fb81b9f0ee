"""The maintenance of one store: its tasks, how often each is run, and on which thread."""

from __future__ import annotations

import atexit
import weakref

from kstore.arguments import MAX64
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.worker import CLEANING, MAINTENANCE
from kstore.store.upkeep.cleaning import Cleaning
from kstore.store.upkeep.failures import Failures
from kstore.store.upkeep.maintenance_tasks import MaintenanceTasks
from kstore.store.upkeep.scheduler import Scheduler, Task

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kstore.log.files.layout import TopicPartition
    from kstore.store.open_partitions import OpenPartitions
    from kstore.store.topic_catalog import TopicCatalog

_MOST_REMOVAL_MS = 300_000
_upkeeps: weakref.WeakSet[Upkeep] = weakref.WeakSet()


class _Needs(NamedTuple):
    """What the topics of a table need: how often logs are flushed, and compacted, and get .keys files."""

    table: object
    flush_ms: int
    cleaning_ms: int
    key_files_ms: int

    @classmethod
    def of(cls, catalog: TopicCatalog) -> _Needs:
        config, table = catalog.config, catalog.table
        options = [topic.options for topic in table.topics.values()]
        flush_ms = [int(own["flush.ms"]) for own in options if "flush.ms" in own]
        compacts = config.compacts or any("compact" in own.get("cleanup.policy", "") for own in options)
        key_files = config.key_files or any(own.get("key.files") == "true" for own in options)
        return cls(
            table,
            min([config.flush_ms, *flush_ms]),
            config.log_cleaner_backoff_ms if config.log_cleaner_enable and compacts else MAX64,
            config.log_cleaner_backoff_ms if key_files else MAX64,
        )


class Upkeep:
    """The tasks of one store: maintenance as a job of one worker, cleaning as that of another. What fails is
    tried again at the next interval.

    idle_roll_ms, keep_for: see LogStore. is_in_background: whether the workers run the tasks; else only
    `run_due` does. Only the store keeps `logs` alive.
    """

    def __init__(
        self,
        logs: OpenPartitions,
        keep_for: Sequence[str],
        idle_roll_ms: int | None,
        *,
        expires_cursors: bool,
        is_in_background: bool,
    ) -> None:
        self._logs = weakref.ref(logs)
        self._is_in_background = is_in_background
        self._needs = _Needs(None, 0, MAX64, MAX64)
        self._failures = Failures()
        self._cleaning = Cleaning(self._failures, lambda: self._cleaner.is_stopped)
        self._maintenance = MaintenanceTasks(
            self._failures, self._cleaning, keep_for, lambda: self._main.is_stopped
        )
        self._main = Scheduler(
            logs,
            MAINTENANCE,
            {
                self._maintenance.retain: lambda catalog: catalog.config.log_retention_check_interval_ms,
                self._maintenance.remove: lambda catalog: min(
                    catalog.config.file_delete_delay_ms, _MOST_REMOVAL_MS
                ),
                self._maintenance.checkpoint: lambda catalog: (
                    catalog.config.log_flush_offset_checkpoint_interval_ms
                ),
                self._maintenance.flush: lambda catalog: self._needs_of(catalog).flush_ms,
                self._maintenance.roll: lambda _: idle_roll_ms or MAX64,
                self._maintenance.expire: lambda catalog: (
                    catalog.config.offsets_retention_check_interval_ms if expires_cursors else MAX64
                ),
            },
            self._failures,
            may_run=self._is_for_this_process,
        )
        self._cleaner = Scheduler(
            logs,
            CLEANING,
            {
                self._cleaning.clean: lambda catalog: self._needs_of(catalog).cleaning_ms,
                self._cleaning.index: lambda catalog: self._needs_of(catalog).key_files_ms,
            },
            self._failures,
            may_run=self._is_for_this_process,
        )
        _upkeeps.add(self)

    def _is_for_this_process(self, task: Task, catalog: TopicCatalog) -> bool:
        """Whether this process runs a task: each brings what it has appended to the disk, one does the
        rest."""
        mine = (self._maintenance.flush, self._maintenance.checkpoint)
        return not catalog.is_shared or task in mine or catalog.live()[0].held.is_keeper()

    def _needs_of(self, catalog: TopicCatalog) -> _Needs:
        if self._needs.table is not catalog.table:
            self._needs = _Needs.of(catalog)
        return self._needs

    def start(self) -> None:
        """Runs what is due in the background, now and later: there may be more to do, or there was no thread
        before."""
        logs = self._logs() if self._is_in_background else None
        if logs is None:
            return
        catalog = logs.catalog
        if catalog.partitions or catalog.set_aside:
            self._main.start()
        needs = self._needs_of(catalog)
        if min(needs.cleaning_ms, needs.key_files_ms) < MAX64:
            self._cleaner.start()

    def stop(self, *, wait: bool = False) -> None:
        """Ends what runs: at once, if that is cleaning, or a file of keys. `wait`: until it has ended."""
        for scheduler in (self._main, self._cleaner):
            scheduler.stop(wait=False)
        self._cleaning.stop()
        if wait:
            for scheduler in (self._main, self._cleaner):
                scheduler.stop(wait=True)

    def run_due(self, now: int) -> int:
        """Does what is due at a time of the store's clock, on this thread. For how many ms nothing more
        is."""
        left = min(self._main.run_due(now), self._cleaner.run_due(now))
        self._failures.report()
        return left

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """They were deleted, or have another configuration."""
        logs = self._logs()
        if logs is not None:
            for tp in partitions:
                logs.facts.opened(tp)
        self._maintenance.forget(partitions)
        self._cleaning.forget(partitions)
        self._failures.forget(partitions)

    def failures(self) -> dict[str, str]:
        """What failed, and why."""
        found = self._failures.all()
        if missing := self._main.missing or self._cleaner.missing:
            found["thread of the store"] = missing
        return found


def _stop_all() -> None:
    """Before the interpreter ends, and waits for what the workers do."""
    for upkeep in list(_upkeeps):
        upkeep.stop()


atexit.register(_stop_all)
