"""What a store does for compacted topics, and for those with .keys files, in the background."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from kstore.arguments import MAX64
from kstore.errors import KstoreError, LogChangedError, LogClosedError, LogFailedError, PolicyViolationError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.checkpoints import look_into
from kstore.log.files.listing import list_directory
from kstore.store.upkeep.partition_files import bases_of, files_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kstore.log.files.layout import TopicPartition
    from kstore.log.writer import LogWriter
    from kstore.store.open_partitions import OpenPartitions
    from kstore.store.upkeep.failures import Failures

CLOSED = -1  # for the base offset of an active segment
_LATER_MS = 300_000  # until a log is compacted again in which nothing could be compacted


class Cleaning:
    """The tasks of one store; a Scheduler runs them, one at a time.

    The fact that is kept of a partition says until when nothing is to be done, as long as the partition is
    closed, or has this active segment.
    """

    def __init__(self, failures: Failures, is_stopped: Callable[[], bool]) -> None:
        self.log: LogWriter | None = None  # which is being compacted, or gets .keys files
        self._failures = failures
        self._is_stopped = is_stopped
        self._set_aside: set[TopicPartition] = set()  # those with damage

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """They were deleted, or have another configuration."""
        self._set_aside.difference_update(partitions)

    def stop(self) -> None:
        """Ends at once what is done now."""
        log = self.log
        if log is not None:
            log.maintenance.rewriter.is_stopped = True

    # ---- compaction ----------------------------------------------------------------------------------------

    def clean(self, logs: OpenPartitions, now: int) -> None:
        """Compacts what is to be compacted, the dirtiest partition first."""
        catalog, facts = logs.catalog, logs.facts
        found: list[tuple[float, TopicPartition]] = []
        cleaned: dict[object, dict[TopicPartition, int]] = {}
        for tp, directory in catalog.partitions.items():
            config = catalog.config_of(tp.topic)
            if self._is_stopped():
                return
            if not config.compacts or tp in self._set_aside or tp.topic == layout.CLUSTER_METADATA:
                continue
            log = logs.peek(tp)
            active = CLOSED if log is None else log.active.base_offset
            until, known = facts.get("cleaning", tp) or (-1, CLOSED)
            if until > now and known == active:
                continue
            with self._failures.noted_of(catalog, "cleaning", tp, is_step=True):
                moment = facts.moment
                if directory not in cleaned:
                    cleaned[directory] = dict(look_into(directory.path / layout.CLEANER_OFFSETS)[0])
                files = files_of(directory.path_of(tp))
                ratio = _most_dirt(files, cleaned[directory].get(tp, 0))
                is_due = ratio > config.min_cleanable_dirty_ratio or config.max_compaction_lag_ms < MAX64
                if ratio and is_due and not (until > now and known == files[-1][0]):
                    found.append((ratio, tp))
                else:
                    facts.keep("cleaning", tp, (until if ratio and is_due else MAX64, active), moment)
                    self._failures.drop("cleaning", tp)
        for _, tp in sorted(found, reverse=True):
            with self._failures.noted_of(catalog, "cleaning", tp, is_step=True):
                self._clean(logs, tp, now)

    def _clean(self, logs: OpenPartitions, tp: TopicPartition, now: int) -> None:
        self.log = log = logs.get(tp)
        active = log.active.base_offset
        try:
            if self._is_stopped():
                return
            done = log.compact()
            logs.facts.drop("key files", tp)
            if not done.segments:  # what is there is too young, say
                logs.facts.keep("cleaning", tp, (now + _LATER_MS, active), logs.facts.moment)
            if keyless := sum(each.keyless for each in done.segments):
                text = "%s: its compaction has removed %d records without a key, as Kafka's does"
                self._failures.reports.warning(text, tp, keyless)
        except (LogChangedError, PolicyViolationError):
            pass  # retention was quicker, or the topic has another configuration
        except KstoreError as e:
            if logs.peek(tp) is not log:
                raise LogClosedError(f"{log.path} was deleted") from e  # there may be a new one of that name
            if isinstance(e, LogFailedError):
                raise
            self._set_aside.add(tp)
            reason = f"set aside until the store is opened again: {type(e).__name__}: {e}"
            self._failures.add("cleaning", tp, reason)
            return
        finally:
            self.log = None
        self._failures.drop("cleaning", tp)

    # ---- files of keys -------------------------------------------------------------------------------------

    def index(self, logs: OpenPartitions, now: int) -> None:
        """Makes .keys files where key_files says so. Of a partition that is closed only names of files are
        looked at."""
        catalog = logs.catalog
        for tp, directory in catalog.partitions.items():
            if self._is_stopped():
                return
            if not catalog.config_of(tp.topic).key_files or tp.topic == layout.CLUSTER_METADATA:
                continue
            log = logs.peek(tp)
            if log is None and logs.facts.get("key files", tp) == (MAX64, CLOSED):
                continue
            if log is None or log.maintenance.key_files.may_be_missing:
                with self._failures.noted_of(catalog, "key files", tp):
                    self._index(logs, tp, directory.path_of(tp))

    def _index(self, logs: OpenPartitions, tp: TopicPartition, path: str) -> None:
        facts = logs.facts
        if logs.peek(tp) is None:
            moment = facts.moment
            names = set(list_directory(path))
            bases = bases_of(path)
            made = all(layout.segment_stem(base) + layout.KEYS in names for base in bases[:-1])
            # in the second case, those that lack it cannot have it
            if made or facts.get("key files", tp) == (MAX64, bases[-1]):
                return facts.keep("key files", tp, (MAX64, CLOSED), moment)
        self.log = log = logs.get(tp)
        active = log.active.base_offset
        try:
            log.maintenance.key_files.make(partial(self._check, log))
            facts.keep("key files", tp, (MAX64, active), facts.moment)
        finally:
            self.log = None
        return None

    def _check(self, log: LogWriter) -> None:
        log.maintenance.rewriter.check()
        if self._is_stopped():
            raise LogClosedError("the store is closed")


def _most_dirt(files: list[tuple[int, int]], first_dirty: int) -> float:
    """The share of bytes not compacted yet before the active segment: compact() finds no more, but perhaps
    less."""
    if files and first_dirty > files[-1][0]:
        first_dirty = 0
    clean = sum(size for base, size in files[:-1] if base < first_dirty)
    dirty = sum(size for (_, size), (end, _) in pairwise(files) if end > first_dirty)
    return dirty / (clean + dirty) if dirty else 0.0
