"""The partitions that a store has open for writing: opened when they are needed, closed when others are
needed more."""

from __future__ import annotations

import resource
import sys
from contextlib import ExitStack

from kstore.engine.io.synchronization import Mutex
from kstore.engine.io.traffic import Traffic
from kstore.errors import (
    KstoreError,
    LogClosedError,
    LogFailedError,
    LogLockedError,
    LogNotFoundError,
    ReentrantCallError,
)
from kstore.light_typing import TYPE_CHECKING
from kstore.log.write.opening import OwnWork
from kstore.log.writer import LogWriter
from kstore.store.upkeep.partition_files import FileFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from kstore.log.files.layout import TopicPartition
    from kstore.store.topic_catalog import TopicCatalog

_MINE = 2  # references to a log that only the table has: its own, and the argument of getrefcount
_LEAST = 8


def default_limit() -> int:
    """How many logs stay open: each has a few descriptors, and files of segments are read beside."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 14 if soft == resource.RLIM_INFINITY else max(_LEAST, min(soft // 8, 1 << 14))


class _Open:
    __slots__ = ("log", "used")

    def __init__(self, log: LogWriter) -> None:
        self.log = log
        self.used = True


class OpenPartitions:
    """Logs by partition. At most `limit` are open, but one that the program holds stays open whatever their
    number.

    To open one more, one is closed that was not used lately: each that was used is passed over once, as the
    CLOCK algorithm does. Threads may share it; to get a log that is open takes no lock. `failures` says which
    partitions could not be opened, or closed, and why.
    """

    def __init__(
        self, catalog: TopicCatalog, options: Mapping[str, Any], limit: int, *, flushes: bool
    ) -> None:
        """options: for opening each log. flushes: whether a log itself is flushed by flush_ms."""
        self.catalog = catalog
        self.limit = limit
        self.is_closed = False
        self.failures: dict[TopicPartition, str] = {}
        self.unclean: set[TopicPartition] = set()  # those that could not be closed cleanly
        # of partitions that are closed, as long as no other process writes them
        self.facts = FileFacts(keeps=not catalog.is_shared)
        # Called before a log is opened: an interrupt may have kept the background from beginning.
        self.on_open: Callable[[], None] = lambda: None
        self.traffic: dict[str, Traffic] = {}  # by topic
        self._options = options
        self._flushes = flushes
        self._logs: dict[TopicPartition, _Open] = {}
        self._guard = Mutex()

    # ---- opening -------------------------------------------------------------------------------------------

    def get(self, tp: TopicPartition) -> LogWriter:
        """The log of a partition, opened now if need be. What opening it raises."""
        found = self._logs.get(tp)
        if found is not None and not found.log.is_closed:
            found.used = True
            return found.log
        with self._guard:
            self.check_open()
            found = self._logs.get(tp)
            if found is not None:
                if not found.log.is_closed:
                    return found.log
                self._close(tp, found.log)  # an interrupt may have kept its closing from giving up the lock
            self._make_room()
            try:
                log = self._open(tp, prepares_indexes=True)
            except LogLockedError:  # kstore.open has it, which is no failure of the partition
                raise
            except (OSError, KstoreError) as e:
                self.failed(tp, e)
                raise
            with ExitStack() as undo:
                undo.callback(log.abandon)  # an exception would keep it locked
                self.failures.pop(tp, None)
                self._logs[tp] = _Open(log)
                self.check_open()  # the store may have been abandoned meanwhile
                undo.pop_all()
            return log

    def recover(self, tp: TopicPartition) -> None:
        """Opens a log, which recovers it; it stays open if there is room. Before the store is used."""
        log = self._open(tp, prepares_indexes=False)
        with ExitStack() as undo:
            undo.callback(log.abandon)  # an exception would keep it locked
            with self._guard:
                if len(self._logs) < self.limit and tp not in self._logs and not self.is_closed:
                    self._logs[tp] = _Open(log)
                    undo.pop_all()
                    return
            log.close()

    def _open(self, tp: TopicPartition, *, prepares_indexes: bool) -> LogWriter:
        directory = self.catalog.partitions.get(tp)
        if directory is None:
            raise LogNotFoundError(f"no partition {tp} in {self.catalog.named()}")
        directory.held.check_place()
        self.facts.opened(tp)
        self.on_open()
        traffic = self.traffic_of(tp.topic)
        own = OwnWork(
            self._flushes, makes_key_files=False, prepares_indexes=prepares_indexes, traffic=traffic
        )
        config = self.catalog.config_of(tp.topic)
        log = LogWriter(directory.path_of(tp), config, create=False, own=own, **self._options)
        recovery = log.recovery
        if not recovery.clean:
            counts = 1, len(recovery.recovered_segments), recovery.truncated_bytes
            for at, count in enumerate(counts, 8):
                traffic.add(at, count)
        return log

    def traffic_of(self, topic: str) -> Traffic:
        """What is counted of a topic."""
        return self.traffic.setdefault(topic, Traffic())

    def check_open(self) -> None:
        """LogClosedError if the store is closed."""
        if self.is_closed:
            raise LogClosedError(f"the store of {self.catalog.named()} is closed")

    # ---- what is open --------------------------------------------------------------------------------------

    def peek(self, tp: TopicPartition) -> LogWriter | None:
        """The log of a partition if it is open, which does not count as use."""
        found = self._logs.get(tp)
        return None if found is None or found.log.is_closed else found.log

    def open_now(self) -> list[tuple[TopicPartition, LogWriter]]:
        """The logs that are open at this moment."""
        return [(tp, found.log) for tp, found in list(self._logs.items()) if not found.log.is_closed]

    def all_open(self) -> list[tuple[TopicPartition, LogWriter]]:
        """The logs that are open, once those that are being opened are."""
        with self._guard:
            return self.open_now()

    def of_topic(self, topic: str) -> list[LogWriter]:
        """The logs of a topic that are open, once those that are being opened are. ReentrantCallError if this
        thread is inside one of them, as a signal handler may be: then it can be neither changed nor
        closed."""
        logs = [log for tp, log in self.all_open() if tp.topic == topic]
        for log in logs:
            log.maintenance.log_end.refuse_reentrance()
        return logs

    def refusals(self) -> dict[TopicPartition, str]:
        """Why partitions in use are not read or written, by partition."""
        found = {tp: reason for tp, reason in list(self.failures.items()) if tp in self.catalog.partitions}
        refusals = {tp: log.maintenance.log_end.settled_refusal for tp, log in self.open_now()}
        return found | {tp: reason for tp, reason in refusals.items() if reason is not None}

    def failed(self, tp: TopicPartition, error: Exception) -> None:
        """Notes that a partition could not be used."""
        self.failures[tp] = f"{type(error).__name__}: {error}"

    def forget_failures(self, topic: str) -> None:
        """A topic of that name is new: what failed was another one's."""
        for tp in list(self.failures):
            if tp.topic == topic:
                self.failures.pop(tp, None)

    def __len__(self) -> int:
        return len(self._logs)

    # ---- closing -------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        for _ in range(2 * len(self._logs)):
            if len(self._logs) < self.limit:
                return
            tp = next(iter(self._logs))
            found = self._logs[tp]
            try:
                del self._logs[tp]  # from here on it is given out only with the guard held
                is_needed = (
                    found.used
                    or sys.getrefcount(found.log) > _MINE
                    or found.log.maintenance.log_end.refusal is not None
                )
                if found.log.is_closed or not is_needed:
                    self._close(tp, found.log)
                found.used = False
            finally:
                # an interrupt may have broken the closing off: `get` or `close` ends it
                if not found.log.maintenance.lease.has_left:
                    self._logs[tp] = found

    def _close(self, tp: TopicPartition, log: LogWriter) -> Exception | None:
        """Closes a log. What fails is in `failures`, and returned: it is no fault of the call that needs
        another log. ReentrantCallError: it is not closed."""
        try:
            log.close()
        except ReentrantCallError:
            raise
        except (OSError, KstoreError) as e:
            if not log.maintenance.log_end.is_deleted:
                self.unclean.add(tp)
                self.failed(tp, e)
                return e
        return None

    def drop(self, topic: str, partitions: Iterable[TopicPartition]) -> None:
        """Closes the logs of partitions of a topic that is going to be deleted."""
        with self._guard:
            for tp in partitions:
                found = self._logs.get(tp)
                if found is not None:
                    self._close(tp, found.log)
                    found.log.abandon()
                    del self._logs[tp]  # not before: if this is interrupted, who closes the store closes it
                self.failures.pop(tp, None)
        self.traffic.pop(topic, None)

    def flush(self) -> None:
        """Brings the logs that are open, and the checkpoint files, to the disk. The first error is raised
        after all others are."""
        failure: OSError | KstoreError | None = None
        for _, log in self.open_now():
            try:
                log.flush()
            except LogClosedError:  # the topic was deleted meanwhile
                pass
            except (OSError, KstoreError) as e:
                if not log.maintenance.log_end.is_deleted:
                    failure = failure or e
        for directory in self.catalog.live():
            try:
                directory.held.store()
            except (OSError, LogFailedError) as e:
                failure = failure or e
        if failure is not None:
            raise failure

    def close(self) -> Exception | None:
        """Closes all; the first error of those that could not be closed."""
        failure: Exception | None = None
        with self._guard:
            while self._logs:
                tp = next(iter(self._logs))
                log = self._logs[tp].log
                error = self._close(tp, log)
                log.abandon()  # if it could not be closed
                failure = failure or error
                del self._logs[tp]
            self.is_closed = True
        return failure

    def abandon(self) -> None:
        """Closes all as if the process had died."""
        self.is_closed = True
        for tp, found in list(self._logs.items()):
            found.log.abandon()
            self._logs.pop(tp, None)
