"""The maintenance of a store, and when it is due: retention, removal of files, checkpoints, flushing, rolls,
cleaning, files of keys."""

import atexit
import contextlib
import os
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from kstore.arguments import MAX64, integer
from kstore.config import LogConfig
from kstore.engine.io.mutex import Mutex
from kstore.engine.segment.segment import Segment
from kstore.errors import (
    InvalidConfigError,
    KstoreError,
    LogChangedError,
    LogClosedError,
    LogFailedError,
    LogLockedError,
    PolicyViolationError,
)
from kstore.log.cursors.expiry import expire
from kstore.log.cursors.group_file import groups_in, read_durable_positions
from kstore.log.cursors.home import Home
from kstore.log.cursors.offset_commits import Commit
from kstore.log.files import layout
from kstore.log.files.checkpoints import look_into
from kstore.log.files.layout import TopicPartition
from kstore.log.files.listing import list_directory
from kstore.log.segments.reports import Reports
from kstore.log.worker import CLEANING, MAINTENANCE, Job, Worker
from kstore.log.write.append_limits import limits_of
from kstore.log.writer import LogWriter
from kstore.store.open_partitions import OpenPartitions
from kstore.store.topic_catalog import TopicCatalog

_LATER_MS = 300_000
_FIRST_MS = 30_000  # until a task first runs, as Kafka's log.initial.task.delay.ms
_LEAST_MS = 10  # between two runs, though an interval may be 0
_AGAIN_MS = 1000  # after a clock that failed
_MOST_MS = 60_000  # of real waiting, because the store's clock may jump
_NO_THREAD = "it could not begin: no memory, no more threads, or the call was interrupted"
_CLOSED = -1  # for the base offset of an active segment
_NOBODY_SAID = (
    "nobody has said how long its records are kept, and Kafka's default of 7 days would delete some: give "
    "the topic, or the store, retention_ms"
)
_upkeeps: "weakref.WeakSet[Upkeep]" = weakref.WeakSet()


class Maintained:
    """What is maintained of a store. Only the store keeps it alive."""

    def __init__(
        self,
        catalog: TopicCatalog,
        logs: OpenPartitions,
        keep_for: Sequence[str],
        clock: Callable[[], int] | None,
        *,
        expires_cursors: bool,
    ) -> None:
        self.catalog = catalog
        self.logs = logs
        self.changing = Mutex()  # for one change of topics at a time
        self.keep_for = keep_for
        self.clock = clock
        self.expires_cursors = expires_cursors

    @property
    def config(self) -> LogConfig:
        """That of topics that do not say otherwise."""
        return self.catalog.config

    def now(self) -> int:
        """The time in ms."""
        return time_of(self.clock)

    def says_retention(self, topic: str) -> bool:
        """Whether it was set how long records of a topic are kept."""
        return "retention_ms" in self.catalog.config_of(topic).given_options()

    def commits_of(self, groups: Sequence[str]) -> Callable[[TopicPartition], dict[str, Commit | None]]:
        """What groups of cursors have committed for a partition, also after a power cut. A group that
        has committed only for other topics is left out. Each file is read once. OSError,
        CorruptRecordError."""
        committed: dict[str, dict[TopicPartition, Commit]] = {}
        for group in groups:
            found = committed[group] = {}
            for directory in self.catalog.live():
                entries = read_durable_positions(os.path.realpath(directory.path), group)
                for tp in entries:
                    if self.catalog.places.get(tp) is directory:
                        commit = Home.of(str(directory.path_of(tp))).commit_in(entries)
                        if commit is not None:
                            found[tp] = commit

        def commits(tp: TopicPartition) -> dict[str, Commit | None]:
            return {
                group: found.get(tp)
                for group, found in committed.items()
                if not found or any(tp.topic == other.topic for other in found)
            }

        return commits


Task = Callable[[Maintained, int], None]  # at a time


class Scheduler:
    """The job that runs tasks of a store, each once an interval: a function gives it, in ms of the store's
    clock.

    The job does not keep the store alive. `attempt` makes the context in which a task runs, and which lets no
    error out. `report` passes on what failed.
    """

    def __init__(
        self,
        store: Maintained,
        worker: Worker,
        tasks: Mapping[Task, Callable[[Maintained], int]],
        attempt: Callable[[Maintained, str, object], contextlib.AbstractContextManager[None]],
        report: Callable[[], None],
    ) -> None:
        self._job = Job(worker, self._run)
        self._store = weakref.ref(store, lambda _: self.stop(wait=False))
        self._tasks = tasks
        self._attempt = attempt
        self._report = report
        self._due: dict[Task, int] = {}
        self._running = Mutex()
        self.missing = ""  # why there is no thread, though there ought to be one

    @property
    def is_stopped(self) -> bool:
        """Whether what runs has to end."""
        return self._job.is_stopped

    def start(self) -> None:
        """Looks at the intervals, now and later. `missing` if there is no thread for it."""
        if self.is_stopped:
            return
        self.missing = _NO_THREAD
        with contextlib.suppress(RuntimeError, MemoryError):
            self._job.ask()
            self.missing = ""

    def stop(self, *, wait: bool) -> None:
        """Ends it. `wait`: until what is done now is done."""
        self._job.stop(wait=wait)

    def run_due(self, now: int) -> int:
        """Does what is due, on this thread. Returns for how many ms nothing more will be."""
        left, store = _MOST_MS, self._store()
        if store is None or self.is_stopped:
            return left
        with self._running:
            for task, interval_of in self._tasks.items():
                if self.is_stopped:
                    break
                interval = max(interval_of(store), _LEAST_MS)
                if interval >= MAX64:
                    self._due.pop(task, None)
                    continue
                due = min(self._due.get(task, now + _FIRST_MS), now + interval)
                if due <= now:
                    due = now + interval
                    with self._attempt(store, task.__name__, "the store"):
                        task(store, now)
                self._due[task] = due
                left = min(left, due - now)
        return left

    def _run(self) -> float | None:
        store = self._store()
        if store is None:
            return None
        left = _AGAIN_MS
        with self._attempt(store, "clock", "the store"):
            left = self.run_due(store.now())
        self._report()
        return left / 1000


class Upkeep:
    """The tasks of one store, as a job of one worker, and cleaning as that of another. What fails is tried
    again at the next interval.

    Of a partition that is not open only names, sizes and times of files are looked at, and not again before
    something can be due, unless it was open meanwhile.
    """

    def __init__(self, store: Maintained, idle_roll_ms: int | None) -> None:
        self._store = weakref.ref(store)
        self._reasons: dict[tuple[str, object], str] = {}  # by task, and what it failed for
        self._reports = Reports("kstore.store")
        # until when nothing is due, as long as the partition is closed, or has this active segment
        self._quiet: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        self.sizes: dict[TopicPartition, tuple[int, int]] = {}  # segments and bytes, as long as it is closed
        self._openings = object()  # another one after each opening
        self._flushed: dict[TopicPartition, int] = {}
        self._set_aside: set[TopicPartition] = set()
        self._cleaned: LogWriter | None = None
        self._left: dict[Path, str] = {}  # directories that could not be removed
        # a table of topics, and what _of_topics says of it
        self._known: tuple[object, int, bool, bool] = (None, 0, False, False)
        self._main = Scheduler(
            store,
            MAINTENANCE,
            {
                self.retain: lambda store: store.config.log_retention_check_interval_ms,
                self.remove: lambda store: min(store.config.file_delete_delay_ms, _LATER_MS),
                self.checkpoint: lambda store: store.config.log_flush_offset_checkpoint_interval_ms,
                self.flush: lambda store: self._of_topics(store)[0],
                self.roll: lambda _: idle_roll_ms or MAX64,
                self.expire: lambda store: (
                    store.config.offsets_retention_check_interval_ms if store.expires_cursors else MAX64
                ),
            },
            self._attempt,
            self._reports.pass_on,
        )
        self._cleaner = Scheduler(
            store,
            CLEANING,
            {
                self.clean: lambda store: (
                    store.config.log_cleaner_backoff_ms if self._of_topics(store)[1] else MAX64
                ),
                self.index: lambda store: (
                    store.config.log_cleaner_backoff_ms if self._of_topics(store)[2] else MAX64
                ),
            },
            self._attempt,
            self._reports.pass_on,
        )
        _upkeeps.add(self)

    # ---- from the store ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Looks at what is due, now and later: there may be more to do, or there was no thread before."""
        store = self._store()
        if store is not None and (store.catalog.places or store.catalog.set_aside):
            self._main.start()
        if store is not None and any(self._of_topics(store)[1:]):
            self._cleaner.start()

    def stop(self, *, wait: bool = False) -> None:
        """Ends what runs: at once, if that is cleaning, or a file of keys. `wait`: until it has ended."""
        for scheduler in (self._main, self._cleaner):
            scheduler.stop(wait=False)
        log = self._cleaned
        if log is not None:
            log.maintenance.rewriter.is_stopped = True
        if wait:
            for scheduler in (self._main, self._cleaner):
                scheduler.stop(wait=True)

    def run_due(self, now: int) -> int:
        """Does what is due at a time of the store's clock, on this thread. For how many ms nothing more
        is."""
        left = min(self._main.run_due(now), self._cleaner.run_due(now))
        self._reports.pass_on()
        return left

    def opened(self, tp: TopicPartition) -> None:
        """A partition is going to be opened: what is known of its files will not hold."""
        self._openings = object()
        for task in ("retention", "roll", "cleaning", "key files"):
            self._quiet.pop((task, tp), None)
        self._reasons.pop(("flushing", tp), None)
        self.sizes.pop(tp, None)

    def _stay_quiet(self, task: str, tp: TopicPartition, until: int, active: int, since: object) -> None:
        """Nothing is due before that time, unless the partition was opened `since`: first noted, then looked
        at, because another thread may open it in between."""
        self._quiet[task, tp] = until, active
        if since is not self._openings:
            self._quiet.pop((task, tp), None)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """They were deleted, or have another configuration."""
        for tp in partitions:
            self.opened(tp)
            self._set_aside.discard(tp)
            self._flushed.pop(tp, None)
        for key in list(self._reasons):
            if key[1] in partitions:
                self._reasons.pop(key, None)

    def failures(self) -> dict[str, str]:
        """What failed, and why."""
        found = {f"{task} of {of}": reason for (task, of), reason in list(self._reasons.items())}
        if missing := self._main.missing or self._cleaner.missing:
            found["thread of the store"] = missing
        return found

    # ---- failures ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _attempt(self, store: Maintained, task: str, of: object, *, is_step: bool = False) -> Iterator[None]:
        """Notes what fails, and that the task does not fail any more; a step of it only the former."""
        try:
            yield
        except (LogClosedError, LogChangedError):  # deleted or closed meanwhile; or the next run looks again
            pass
        except Exception as e:  # noqa: BLE001 - `health` tells it
            is_gone = isinstance(of, TopicPartition) and of not in store.catalog.places
            # if kstore.open has it, that is no failure of the partition
            if isinstance(of, TopicPartition) and (is_gone or isinstance(e, LogLockedError)):
                store.logs.failures.pop(of, None)
            if not is_gone:
                aside = task == "cleaning" and of in self._set_aside
                reason = f"{type(e).__name__}: {e}"
                self._failed(
                    task, of, f"set aside until the store is opened again: {reason}" if aside else reason
                )
        else:
            if not is_step:
                self._reasons.pop((task, of), None)

    def _failed(self, task: str, of: object, reason: str) -> None:
        if self._reasons.get((task, of)) != reason:
            self._reasons[task, of] = reason
            self._reports.warning("%s of %s failed: %s", task, of, reason)

    # ---- tasks ---------------------------------------------------------------------------------------------

    def retain(self, store: Maintained, now: int) -> None:
        """Deletes old segments, as LogStore.retain does."""
        with self._attempt(store, "retention", "the store"):
            commits = store.commits_of(store.keep_for)

            def retain(log: LogWriter, tp: TopicPartition) -> None:
                log.maintenance.retain(commits(tp))

            self._visit("retention", store, now, _retention_due, retain)

    def roll(self, store: Maintained, now: int) -> None:
        """Rolls segments that have records and are older than segment_ms."""
        self._visit("roll", store, now, _roll_due, lambda log, _: _roll(log, now))

    def _visit(
        self,
        task: str,
        store: Maintained,
        now: int,
        due: Callable[[Maintained, TopicPartition, Path, int], int],
        act: Callable[[LogWriter, TopicPartition], object],
    ) -> None:
        """Does something with each partition that is open, or in which it may be due."""
        for tp, directory in store.catalog.places.items():
            log = store.logs.peek(tp)
            if log is None and self._quiet.get((task, tp), (-1, 0))[0] > now:
                continue
            if self._main.is_stopped:
                return
            if tp.topic == layout.CLUSTER_METADATA or (log is not None and log is self._cleaned):
                continue
            with self._attempt(store, task, tp):
                openings = self._openings
                try:
                    until = now if log is not None else due(store, tp, directory.path_of(tp), now)
                    if until <= now:
                        act(store.logs.get(tp) if log is None else log, tp)
                    else:
                        self._stay_quiet(task, tp, until, _CLOSED, openings)
                except InvalidConfigError as e:
                    self._stay_quiet(task, tp, MAX64, _CLOSED, self._openings)
                    text = str(e) if store.says_retention(tp.topic) else _NOBODY_SAID
                    raise InvalidConfigError(text) from None

    def remove(self, store: Maintained, now: int) -> None:
        """Removes what was deleted and whose time has come. In logs that are open, producers expire too."""
        with store.changing:
            if not self._main.is_stopped:
                store.catalog.remove_due(now)
            left = dict(store.catalog.not_removed)
        for path, reason in left.items() - self._left.items():
            self._reports.warning("removal of %s failed: %s", path, reason)
        self._left = left
        for tp in store.logs:
            log = store.logs.peek(tp)
            if log is not None:
                with self._attempt(store, "removal", tp):
                    log.maintenance.remove_due(now)
        for task, of in list(self._reasons):
            # closing a log removes what it had deleted
            if task == "removal" and isinstance(of, TopicPartition) and store.logs.peek(of) is None:
                self._reasons.pop((task, of), None)

    def checkpoint(self, store: Maintained, now: int) -> None:
        """Writes the checkpoint files, if they have changed."""
        for directory in store.catalog.live():
            with self._attempt(store, "checkpoints", directory.path):
                directory.held.store()

    def flush(self, store: Maintained, now: int) -> None:
        """Flushes logs for which flush_ms is over."""
        for tp in store.logs:
            log = store.logs.peek(tp)
            # a clock may be put back
            if log is None or 0 <= now - self._flushed.get(tp, 0) < log.config.flush_ms:
                continue
            with self._attempt(store, "flushing", tp):
                if log.durable_offset < log.log_end_offset:
                    self._flushed[tp] = now
                    log.flush()

    def expire(self, store: Maintained, now: int) -> None:
        """Removes positions of groups for which nobody has read for offsets_retention_minutes."""
        for directory in store.catalog.live():
            place = os.path.realpath(directory.path)
            with self._attempt(store, "expiry of cursors", directory.path):
                for group in groups_in(place):
                    with self._attempt(store, "expiry of cursors", group):
                        removed = expire(place, group, store.config.offsets_retention_minutes * 60_000, now)
                        for tp in removed:
                            self._reports.info("the position of group %s in %s has expired", group, tp)

    # ---- cleaning ------------------------------------------------------------------------------------------

    def _of_topics(self, store: Maintained) -> tuple[int, bool, bool]:
        """The shortest flush_ms, and whether anything is to be cleaned, and to have .keys files."""
        known, table = self._known, store.catalog.table
        if known[0] is not table:
            options = [topic.options for topic in table.topics.values()]
            flush_ms = [int(own["flush.ms"]) for own in options if "flush.ms" in own]
            compacts = any("compact" in own.get("cleanup.policy", "") for own in options)
            config = store.config
            is_cleaning = config.log_cleaner_enable and (config.compacts or compacts)
            indexes = config.key_files or any(own.get("key.files") == "true" for own in options)
            known = self._known = table, min([config.flush_ms, *flush_ms]), is_cleaning, indexes
        return known[1:]

    def clean(self, store: Maintained, now: int) -> None:
        """Compacts what is to be compacted, the dirtiest partition first."""
        found: list[tuple[float, TopicPartition]] = []
        cleaned: dict[object, dict[TopicPartition, int]] = {}
        for tp, directory in store.catalog.places.items():
            config = store.catalog.config_of(tp.topic)
            if self._cleaner.is_stopped:
                return
            if not config.compacts or tp in self._set_aside or tp.topic == layout.CLUSTER_METADATA:
                continue
            active = _active_of(store, tp)
            until, known = self._quiet.get(("cleaning", tp), (-1, _CLOSED))
            if until > now and known == active:
                continue
            with self._attempt(store, "cleaning", tp, is_step=True):
                openings = self._openings
                if directory not in cleaned:
                    cleaned[directory] = dict(look_into(directory.path / layout.CLEANER_OFFSETS)[0])
                files = files_of(directory.path_of(tp))
                ratio = _most_dirt(files, cleaned[directory].get(tp, 0))
                is_due = ratio > config.min_cleanable_dirty_ratio or config.max_compaction_lag_ms < MAX64
                if ratio and is_due and not (until > now and known == files[-1][0]):
                    found.append((ratio, tp))
                else:
                    self._stay_quiet("cleaning", tp, until if ratio and is_due else MAX64, active, openings)
                    self._reasons.pop(("cleaning", tp), None)
        for _, tp in sorted(found, reverse=True):
            with self._attempt(store, "cleaning", tp):
                self._clean(store, tp, now)

    def _clean(self, store: Maintained, tp: TopicPartition, now: int) -> None:
        self._cleaned = log = store.logs.get(tp)
        active = log.active.base_offset
        try:
            if self._cleaner.is_stopped:
                return
            done = log.compact()
            self._quiet.pop(("key files", tp), None)
            if not done.segments:  # what is there is too young, say
                self._quiet["cleaning", tp] = now + _LATER_MS, active
            if keyless := sum(each.keyless for each in done.segments):
                text = "%s: its compaction has removed %d records without a key, as Kafka's does"
                self._reports.warning(text, tp, keyless)
        except (LogChangedError, PolicyViolationError):
            pass  # retention was quicker, or the topic has another configuration
        except KstoreError as e:
            if store.logs.peek(tp) is not log:
                raise LogClosedError(f"{log.path} was deleted") from e  # there may be a new one of that name
            if not isinstance(e, LogFailedError):
                self._set_aside.add(tp)
            raise
        finally:
            self._cleaned = None

    # ---- files of keys -------------------------------------------------------------------------------------

    def index(self, store: Maintained, now: int) -> None:
        """Makes .keys files where key_files says so. Of a partition that is closed only names of files are
        looked at."""
        for tp, directory in store.catalog.places.items():
            if self._cleaner.is_stopped:
                return
            if not store.catalog.config_of(tp.topic).key_files or tp.topic == layout.CLUSTER_METADATA:
                continue
            log: LogWriter | None = store.logs.peek(tp)
            if log is None and self._quiet.get(("key files", tp)) == (MAX64, _CLOSED):
                continue
            if log is None or log.maintenance.key_files.may_be_missing:
                with self._attempt(store, "key files", tp):
                    self._index(store, tp, directory.path_of(tp))

    def _index(self, store: Maintained, tp: TopicPartition, path: Path) -> None:
        if store.logs.peek(tp) is None:
            openings = self._openings
            names = set(list_directory(str(path)))
            bases = bases_of(path)
            made = all(layout.segment_stem(base) + layout.KEYS in names for base in bases[:-1])
            # in the second case, those that lack it cannot have it
            if made or self._quiet.get(("key files", tp)) == (MAX64, bases[-1]):
                return self._stay_quiet("key files", tp, MAX64, _CLOSED, openings)
        self._cleaned = log = store.logs.get(tp)
        active = log.active.base_offset
        try:
            log.maintenance.key_files.make(partial(self._check, log))
            self._quiet["key files", tp] = MAX64, active
        finally:
            self._cleaned = None
        return None

    def _check(self, log: LogWriter) -> None:
        log.maintenance.rewriter.check()
        if self._cleaner.is_stopped:
            raise LogClosedError("the store is closed")


def _active_of(store: Maintained, tp: TopicPartition) -> int:
    """Where the active segment of a partition begins, if it is open."""
    log: LogWriter | None = store.logs.peek(tp)
    return _CLOSED if log is None else log.active.base_offset


def bases_of(path: Path) -> list[int]:
    """The base offsets of the .log files in a directory, oldest first: no file is looked at. OSError."""
    offsets = map(layout.segment_offset, list_directory(str(path)))
    return sorted(offset for offset in offsets if offset is not None)


def files_of(path: Path) -> list[tuple[int, int]]:
    """The base offsets and sizes of the .log files in a directory, oldest first. OSError."""
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            base = layout.segment_offset(entry.name)
            if base is not None:
                with contextlib.suppress(FileNotFoundError):  # another thread has just removed it
                    found.append((base, entry.stat().st_size))
    return sorted(found)


def _segment(path: Path, base: int) -> Segment:
    return Segment(str(path), layout.segment_stem(base), base)


def _retention_due(store: Maintained, tp: TopicPartition, path: Path, now: int) -> int:
    """When retention may find something to delete in a partition that is closed: in the oldest segment, if at
    all."""
    bases, config = bases_of(path), store.catalog.config_of(tp.topic)
    if len(bases) > 1 and bases[1] <= store.catalog.places[tp].held.log_start_of(path):
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
    if due <= now and not store.says_retention(tp.topic):
        raise InvalidConfigError(_NOBODY_SAID)
    return due


def _roll_due(store: Maintained, tp: TopicPartition, path: Path, now: int) -> int:
    """When the active segment of a partition that is closed ends."""
    files = files_of(path)
    return _end_of(_segment(path, files[-1][0]), store.catalog.config_of(tp.topic)) if files else MAX64


def _end_of(segment: Segment, config: LogConfig) -> int:
    """When an active segment is older than segment_ms; never, if it has no records."""
    if not segment.size:
        return MAX64
    first = segment.batch_at(0).max_timestamp
    return (first if first >= 0 else segment.mtime_ms()) + limits_of(config, "none").segment_ms + 1


def _roll(log: LogWriter, now: int) -> None:
    if _end_of(log.active.view()[0], log.config) <= now:
        log.roll()


def _most_dirt(files: list[tuple[int, int]], first_dirty: int) -> float:
    """The share of bytes not compacted yet before the active segment: compact() finds no more, but perhaps
    less."""
    if files and first_dirty > files[-1][0]:
        first_dirty = 0
    clean = sum(size for base, size in files[:-1] if base < first_dirty)
    dirty = sum(size for (_, size), (end, _) in pairwise(files) if end > first_dirty)
    return dirty / (clean + dirty) if dirty else 0.0


def time_of(clock: Callable[[], int] | None) -> int:
    """The time in ms by the clock of a store."""
    return time.time_ns() // 1_000_000 if clock is None else integer("the time in ms", clock())


def _stop_all() -> None:
    """Before the interpreter ends, and waits for what the workers do."""
    for upkeep in list(_upkeeps):
        upkeep.stop()


atexit.register(_stop_all)
