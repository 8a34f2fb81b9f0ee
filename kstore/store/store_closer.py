"""The end of a store: closing it, or giving its directories up."""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref

from kstore.errors import KstoreError, LogFailedError, visible
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.store.open_partitions import OpenPartitions
    from kstore.store.topic_appender import TopicAppender
    from kstore.store.upkeep.upkeep import Upkeep

_closers: weakref.WeakSet[StoreCloser] = weakref.WeakSet()  # of stores that write


class StoreCloser:
    """What a store gives back when it is closed: its logs, its jobs, its directories.

    It belongs to one LogStore. `has_left`: nothing is left to give back.
    """

    def __init__(self, logs: OpenPartitions, upkeep: Upkeep, appender: TopicAppender) -> None:
        self._catalog = logs.catalog
        self._logs = logs
        self._upkeep = upkeep
        self._appender = appender
        self.has_left = True

    def begin(self) -> None:
        """The directories are taken from here on."""
        self.has_left = False
        if self._catalog.is_writing:
            _closers.add(self)

    def close(self) -> None:
        """Closes the store, as LogStore.close does."""
        if self.has_left:
            return
        with contextlib.suppress(OSError, KstoreError):
            self._catalog.look()  # logs of topics that another process has deleted are closed
        self._catalog.changing.refuse_reentrance()
        for _, log in self._logs.all_open():
            log.maintenance.refuse_reentrance()
        self._appender.close()  # now: what it appends may have to wait for a change of topics
        with self._catalog.changing:
            if self.has_left:
                return
            self._upkeep.stop()
            failure = self._logs.close()
            for tp in self._logs.unclean:
                if tp in self._catalog.partitions:
                    self._catalog.partitions[tp].held.failed(tp)
            self._catalog.remove_due(None)
            try:
                self.leave(clean=True)
            except (OSError, LogFailedError) as e:
                failure = failure or e
        # not before: it may wait for a log in which a signal handler interrupted this thread
        self._upkeep.stop(wait=True)
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Closes the store without flushing, as LogStore.abandon does."""
        if not self.has_left:
            self.leave(clean=False)

    def leave(self, *, clean: bool) -> None:
        """Gives the directories up. OSError, LogFailedError: that of the first that could not be marked as
        clean."""
        self._upkeep.stop()
        self._logs.abandon()  # after close() none is open
        failure: OSError | LogFailedError | None = None
        for directory in self._catalog.directories:
            try:
                directory.leave(clean=clean)
            except (OSError, LogFailedError) as e:
                failure = failure or e
        self.has_left = True
        if failure is not None:
            raise failure

    def finalize(self, store: object) -> None:
        """The store is garbage: warns if it was not closed."""
        if self.has_left or self._logs.is_closed or not self._catalog.is_writing:
            return
        warnings.warn(
            f"the store of {visible(self._catalog.named())} was open for writing and never closed: the next "
            "opening must recover",
            ResourceWarning,
            source=store,
            stacklevel=3,
        )

    def after_fork(self) -> None:
        """In a child of fork nothing is written: the store is the parent's."""
        self._logs.is_closed = self.has_left = True


def _forked() -> None:
    """A child of fork must not write: the store is its parent's."""
    for closer in list(_closers):
        closer.after_fork()
    _closers.clear()


os.register_at_fork(after_in_child=_forked)
