"""What the processes that write one store together (`shared=True`) tell each other of its topics."""

from __future__ import annotations

import contextlib
import weakref

from kstore.errors import LogClosedError, LogFailedError
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstore.store.open_partitions import OpenPartitions
    from kstore.store.upkeep.upkeep import Upkeep


class Sharing:
    """The changes of topics of a store, by this process and others: one at a time.

    Each directory counts the changes of its topics, in memory that all processes map. A process that finds
    another number than before lists the directories again.
    """

    def __init__(self, logs: OpenPartitions, upkeep: Upkeep) -> None:
        self._catalog = logs.catalog
        self._logs = logs
        self._upkeep = upkeep
        self._is_shared = logs.catalog.is_shared
        self._seen = -1

    def look(self) -> None:
        """Takes in what other processes have changed. OSError, KstoreError."""
        if self._is_shared and self._seen != self._count():
            with self._catalog.changing, self._locked():
                self._take_in()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """For a change of topics by this process. OSError, KstoreError."""
        with self._catalog.changing, self._locked():
            self._take_in()
            try:
                yield
            finally:
                if self._is_shared:
                    self._catalog.live()[0].held.note_topic_change()
                    self._seen = self._count()

    def load(self) -> None:
        """Reads the topics when the store is opened. The catalog asks for changes from then on."""
        if not self._is_shared:
            self._catalog.load()
            return
        with self._locked():
            for directory in self._catalog.live():
                directory.list_again()  # another process may have made some since
            self._catalog.load()
            self._seen = self._count()
        this = weakref.ref(self)  # the catalog does not keep the logs alive: a forgotten store goes at once

        def look() -> None:
            sharing = this()
            if sharing is not None:
                sharing.look()

        self._catalog.look = look

    def _count(self) -> int:
        return self._catalog.directories[0].held.topic_changes

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return self._catalog.directories[0].held.topics_locked()

    def _take_in(self) -> None:
        """The topics are locked, so a change that is not finished was left by a process that died."""
        if not self._is_shared or self._seen == self._count():
            return
        seen, catalog = self._count(), self._catalog
        catalog.take_in()
        for tp, log in self._logs.all_open():
            if tp not in catalog.partitions:
                self._logs.drop(tp.topic, [tp])
                self._upkeep.forget([tp])
                continue
            config = catalog.config_of(tp.topic)
            if config.given_options() != log.config.given_options():  # equal values do not say what is set
                self._upkeep.forget([tp])
                with contextlib.suppress(LogClosedError, LogFailedError):  # its next opening uses it
                    log._use(config)
        self._seen = seen
        self._upkeep.start()
