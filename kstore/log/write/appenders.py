"""The appenders of one log: those that gather records, and the one for asyncio."""

from __future__ import annotations

from kstore.errors import KstoreError, ReentrantCallError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.later import later

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kstore.engine.append.log_appender import LogAppender
    from kstore.engine.append.log_end import LogEnd
    from kstore.log.write.appender import Appender
    from kstore.log.write.async_appender import AsyncAppender, Touch
else:
    later(globals(), {"kstore.log.write.async_appender": "AsyncAppender"})


class Appenders:
    """What else appends to a log: closing the log closes it first.

    Appenders are kept here, so that their records are appended after the program has dropped them.
    """

    def __init__(self, path: str, log_end: LogEnd) -> None:
        self._path = path
        self.gathering: set[Appender] = set()
        self._log_end = log_end
        self._async: dict[str, AsyncAppender] = {}  # one, or none

    @property
    def gathered_count(self) -> int:
        """How many records are gathered, and not in the log yet. Takes no lock."""
        return sum(appender.gathered_count for appender in self.gathering)

    async def append_later(self, log: LogAppender, append: Callable[[], object]) -> Any:
        """The result of a call that appends to the log, made by a thread."""
        self._log_end.refuse_reentrance()  # the other thread would wait for this one

        def work(touch: Touch) -> object:
            touch(self._log_end, log)
            return append()

        appender = self._async.get("") or self._async.setdefault("", AsyncAppender())
        return await appender.append(self._path, work)

    def close(self) -> Exception | None:
        """Appends what was gathered, and what tasks wait for. The error if that cannot be written: the log is
        closed nevertheless. ReentrantCallError."""
        failure: Exception | None = None
        for appender in list(self.gathering):
            try:
                appender.close()
            except ReentrantCallError:
                raise
            except (OSError, KstoreError) as e:
                failure = e
        for each in self._async.values():
            each.close()
        return failure

    def after_fork(self) -> None:
        """In a child of fork: the thread is the parent's."""
        self._async.clear()
