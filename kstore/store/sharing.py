"""Changes of topics by processes that write one store together (`shared=True`)."""

from __future__ import annotations

import contextlib
import weakref
from functools import partial

from kstore.errors import LogClosedError, LogFailedError
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kstore.store.open_partitions import OpenPartitions
    from kstore.store.upkeep.upkeep import Upkeep


class Sharing:
    """The changes of topics of a store, by this process and others: one at a time.

    Each directory has a number in memory that all processes map. It is odd while its topics are changed, and
    still odd if the process that changes them has died. A process that finds that more changes have ended
    than before lists the directories again. The next one that locks the topics finishes a change that is
    left.
    """

    def __init__(self, logs: OpenPartitions, upkeep: Upkeep) -> None:
        self._catalog = logs.catalog
        self._logs = logs
        self._upkeep = upkeep
        self._is_shared = logs.catalog.is_shared
        self._seen = -1

    def look(self) -> None:
        """Takes in what other processes have changed. A change that is under way is not waited for. OSError,
        KstoreError."""
        if self._is_shared and self._seen != self._number() // 2:
            with self._catalog.changing, self._locked():
                self._take_in()

    def catch_up(self) -> None:
        """Waits until a change that is under way is finished, and takes it in. OSError, KstoreError."""
        with self._catalog.changing, self._locked():
            self._seen = -1
            self._take_in()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """For a change of topics by this process. OSError, KstoreError."""
        with self._catalog.changing, self._locked():
            self._take_in()
            self._note()
            try:
                yield
            finally:
                self._note()
                self._seen = self._number() // 2

    def load(self) -> None:
        """Reads the topics when the store is opened. The catalog asks for changes from then on."""
        if not self._is_shared:
            self._catalog.load()
            return
        with self._locked():
            for directory in self._catalog.live():
                directory.read_names()  # another process may have made some since
            self._catalog.load()
            self._end_what_is_left()
        this = weakref.ref(self)  # the catalog does not keep the logs alive: a forgotten store goes at once

        def of_this(call: Callable[[Sharing], None]) -> None:
            sharing = this()
            if sharing is not None:
                call(sharing)

        self._catalog.look = partial(of_this, Sharing.look)
        self._catalog.catch_up = partial(of_this, Sharing.catch_up)

    def _number(self) -> int:
        return self._catalog.directories[0].held.topic_changes

    def _note(self) -> None:
        """A change begins or ends."""
        if self._is_shared:
            self._catalog.live()[0].held.note_topic_change()

    def _end_what_is_left(self) -> None:
        """The catalog is as the directories are. If another process has left a change, the others look again,
        too."""
        if self._number() % 2:
            self._note()
        self._seen = self._number() // 2

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return self._catalog.directories[0].held.topics_locked()

    def _take_in(self) -> None:
        """The topics are locked, so a change that is not finished was left by a process that died."""
        number, catalog = self._number(), self._catalog
        if not self._is_shared or (self._seen == number // 2 and number % 2 == 0):
            return
        catalog.take_in()
        for tp, log in self._logs.all_open():
            if tp not in catalog.partitions or log.maintenance.log_end.is_deleted:
                self._logs.drop(tp.topic, [tp])
                self._upkeep.forget([tp])
                continue
            config = catalog.config_of(tp.topic)
            if config.given_options() != log.config.given_options():  # equal values do not say what is set
                self._upkeep.forget([tp])
                with contextlib.suppress(LogClosedError, LogFailedError):  # its next opening uses it
                    log.use_config(config)
        self._end_what_is_left()
        self._upkeep.start()
