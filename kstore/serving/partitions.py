"""The partitions of a store as clients see them: logs as they are now, and waiting for the next change."""

from __future__ import annotations

import io
import threading
import weakref
from abc import ABC, abstractmethod
from time import monotonic
from typing import TYPE_CHECKING, cast

from kstore.errors import LogNotFoundError
from kstore.log.files.layout import TopicPartition
from kstore.log.follow.partition_watch import PartitionWatch
from kstore.log.follow.readable import wait_readable
from kstore.store import LogStore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kstore.engine.io.synchronization import EventFd
    from kstore.log.follow.sources import Source
    from kstore.log.partition import PartitionLog
    from kstore.log.writer import LogWriter

_LISTED_SECONDS = 0.4  # how long a list of the directories of others is used
_POLL_SECONDS = 0.05  # how often to ask where the system reports no changes


class Partitions(ABC):
    """The topics and the logs that are served. Threads share it.

    `longest_wait`: seconds after which to look at a partition even if nothing was reported.
    """

    longest_wait = 30.0

    def __init__(self, store: LogStore) -> None:
        self.store = store

    @abstractmethod
    def topics(self, wanted: Iterable[str] = ()) -> dict[str, list[int]]:
        """The numbers of the partitions of each topic. The list is up to date for the wanted names."""

    @abstractmethod
    def log(self, tp: TopicPartition) -> PartitionLog:
        """The log of a partition, as it is now. LogNotFoundError; KstoreError, OSError."""

    @abstractmethod
    def writer(self, tp: TopicPartition) -> LogWriter:
        """The log of a partition, to write to. io.UnsupportedOperation if the store is open for reading;
        LogNotFoundError; KstoreError, OSError."""

    @abstractmethod
    def arm(self, tp: TopicPartition, event: EventFd) -> None:
        """Set an event at the next change of a partition. LogNotFoundError; KstoreError, OSError."""

    def paths(self, topic: str) -> dict[int, Path]:
        """The directories of the partitions of a topic. LogNotFoundError."""
        return self.store.describe(topic).partitions

    @abstractmethod
    def close(self) -> None:
        """Nothing is served any more. The store stays open."""


class WrittenPartitions(Partitions):
    """The partitions of a store that is open for writing. Each append of this process reports itself; those
    of others, if the store is shared, are looked for."""

    def __init__(self, store: LogStore) -> None:
        super().__init__(store)
        if store.is_shared:
            self.longest_wait = 0.5

    def topics(self, wanted: Iterable[str] = ()) -> dict[str, list[int]]:
        return self.store.topics

    def log(self, tp: TopicPartition) -> PartitionLog:
        return self.writer(tp)

    def writer(self, tp: TopicPartition) -> LogWriter:
        if tp not in self.store:  # the error of the store looks for similar names, among all topics
            raise LogNotFoundError(f"no partition {tp} in {self.store.path}")
        return cast("LogWriter", self.store.log(*tp))

    def arm(self, tp: TopicPartition, event: EventFd) -> None:
        self.writer(tp).notify_at_change(event)

    def close(self) -> None:
        pass


class ReadPartitions(Partitions):
    """The partitions of directories that other processes may write. inotify reports their changes to one
    thread."""

    def __init__(self, store: LogStore) -> None:
        super().__init__(LogStore(*store.paths))  # `store` shows what it showed until its owner refreshes it
        self._lock = threading.Lock()
        self._sources: dict[TopicPartition, Source] = {}
        self._stale: set[TopicPartition] = set()
        self._waiting: dict[TopicPartition, weakref.WeakSet[EventFd]] = {}
        self._watch = PartitionWatch()
        self._listed_at = monotonic()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def topics(self, wanted: Iterable[str] = ()) -> dict[str, list[int]]:
        with self._lock:
            known = self.store.topics
            if monotonic() - self._listed_at > _LISTED_SECONDS or not known.keys() >= {*wanted}:
                self.store.refresh()
                self._listed_at = monotonic()
                known = self.store.topics
            return known

    def log(self, tp: TopicPartition) -> PartitionLog:
        with self._lock:
            source = self._sources.get(tp)
            if source is None:
                source = self._open(tp)
            elif tp in self._stale or self._watch.source is None:
                self._stale.discard(tp)
                try:
                    return cast("PartitionLog", source.view())
                except LogNotFoundError:  # it was deleted, and may have been created again
                    self._forget()
                    raise
            return cast("PartitionLog", source.known)

    def writer(self, tp: TopicPartition) -> LogWriter:
        raise io.UnsupportedOperation(f"{self.store.path} is served for reading only")

    def _open(self, tp: TopicPartition) -> Source:
        """Open a partition; changes are reported from before that on."""
        if tp not in self.store and monotonic() - self._listed_at > _LISTED_SECONDS:
            self.store.refresh()
            self._listed_at = monotonic()
        if tp not in self.store:  # opening it would read the directories
            raise LogNotFoundError(f"no partition {tp} in {self.store.path}")
        log = self.store.open(*tp)
        try:
            for _ in self._watch.add({tp: log.path}):
                pass
        except FileNotFoundError:
            raise LogNotFoundError(f"no partition directory at {log.path}") from None
        if self._watch.source is None:
            self.longest_wait = _POLL_SECONDS
        elif self._thread is None:
            self._thread = threading.Thread(target=self._hear, name="kstore-serve-watch", daemon=True)
            self._thread.start()
        source = self._sources[tp] = log.source()
        source.view()  # what was written before the watch
        return source

    def _forget(self) -> None:
        """A partition was deleted, whose number would go on to be reported: all are opened again."""
        self._watch.drop()
        self._sources.clear()
        self._stale.clear()
        for tp in list(self._waiting):
            self._wake(tp)

    def _wake(self, tp: TopicPartition) -> None:
        for event in self._waiting.pop(tp, ()):
            event.set()

    def arm(self, tp: TopicPartition, event: EventFd) -> None:
        with self._lock:
            self._waiting.setdefault(tp, weakref.WeakSet()).add(event)

    def _hear(self) -> None:
        """Take in what the system reports."""
        while not self._is_closed:
            with self._lock:
                watch = self._watch.source
            if watch is None:
                threading.Event().wait(_POLL_SECONDS)
                continue
            if not wait_readable([watch], 0.5):
                continue
            with self._lock:
                for tp, _ in self._watch.changes():
                    changed = list(self._sources) if tp is None else [tp]
                    self._stale.update(changed)
                    for each in changed:
                        self._wake(each)

    def close(self) -> None:
        self._is_closed = True
        if self._thread is not None:
            self._thread.join()
        self.store.close()
