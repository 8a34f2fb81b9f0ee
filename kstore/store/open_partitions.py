"""The partitions that a store has open for writing: opened when they are needed, closed when others are
needed more."""

import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from weakref import WeakMethod

from kstore.engine.io.mutex import Mutex
from kstore.errors import KstoreError, LogClosedError, ReentrantCallError
from kstore.log.files.layout import TopicPartition
from kstore.log.writer import LogWriter

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
    CLOCK algorithm does. Threads may share it; to get a log that is open takes no lock.
    """

    def __init__(self, open_log: "WeakMethod[Callable[[TopicPartition], LogWriter]]", limit: int) -> None:
        self._open_log = open_log  # weak: the owner of this table must not wait for the garbage collector
        self.limit = limit
        self._logs: dict[TopicPartition, _Open] = {}
        self._guard = Mutex()
        self._closed = False
        self.failures: dict[TopicPartition, str] = {}
        self.unclean: set[TopicPartition] = set()  # those that could not be closed cleanly

    def get(self, tp: TopicPartition) -> LogWriter:
        """The log of a partition, opened now if need be. What opening it raises."""
        found = self._logs.get(tp)
        if found is not None and not found.log.is_closed:
            found.used = True
            return found.log
        with self._guard:
            self._check_open()
            found = self._logs.get(tp)
            if found is not None:
                if not found.log.is_closed:
                    return found.log
                self._close(tp, found.log)  # an interrupt may have kept its closing from giving up the lock
            self._make_room()
            open_log = self._open_log()
            assert open_log is not None
            try:
                log = open_log(tp)
            except (OSError, KstoreError) as e:
                self.failures[tp] = f"{type(e).__name__}: {e}"
                raise
            try:
                self.failures.pop(tp, None)
                self._logs[tp] = _Open(log)
                self._check_open()  # it may have been abandoned meanwhile
            except BaseException:  # who keeps the exception would keep it locked
                log.abandon()
                raise
            return log

    def keep(self, tp: TopicPartition, log: LogWriter) -> bool:
        """Takes a log that was opened just now, if there is room for it. Before the store is used."""
        with self._guard:
            if len(self._logs) >= self.limit or tp in self._logs or self._closed:
                return False
            self._logs[tp] = _Open(log)
            return True

    def peek(self, tp: TopicPartition) -> LogWriter | None:
        """The log of a partition if it is open, which does not count as use."""
        found = self._logs.get(tp)
        return None if found is None or found.log.is_closed else found.log

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError("the store is closed")

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
                if (
                    not found.log.maintenance.lease.has_left
                ):  # if this is interrupted, who needs it next closes it, or the store
                    self._logs[tp] = found

    def _close(self, tp: TopicPartition, log: LogWriter) -> None:
        """What fails is in `failures`: it is no fault of the call that needs another log. ReentrantCallError:
        it is not closed."""
        try:
            log.close()
        except ReentrantCallError:
            raise
        except (OSError, KstoreError) as e:
            self.unclean.add(tp)
            self.failures[tp] = f"{type(e).__name__}: {e}"

    def forget_failures(self, topic: str) -> None:
        """A topic of that name is new: what failed was another one's."""
        for tp in list(self.failures):
            if tp.topic == topic:
                self.failures.pop(tp, None)

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

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Closes the logs of partitions that are going to be deleted."""
        with self._guard:
            for tp in partitions:
                found = self._logs.get(tp)
                if found is not None:
                    self._close(tp, found.log)
                    found.log.abandon()
                    del self._logs[tp]  # not before: if this is interrupted, who closes the store closes it
                self.failures.pop(tp, None)

    def close(self) -> Exception | None:
        """Closes all; the first error of those that could not be closed."""
        failure: Exception | None = None
        with self._guard:
            while self._logs:
                tp = next(iter(self._logs))
                log = self._logs[tp].log
                try:
                    log.close()
                except (OSError, KstoreError) as e:
                    log.abandon()
                    self.unclean.add(tp)
                    self.failures[tp] = f"{type(e).__name__}: {e}"
                    failure = failure or e
                del self._logs[tp]
            self._closed = True
        return failure

    def abandon(self) -> None:
        """Closes all as if the process had died."""
        self._closed = True
        for tp, found in list(self._logs.items()):
            found.log.abandon()
            self._logs.pop(tp, None)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._logs))

    def __len__(self) -> int:
        return len(self._logs)
