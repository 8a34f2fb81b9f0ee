"""What a log reports to Python's logging, under the name kstore.log: rolls, retention, recovery, truncation.
A store reports under kstore.store.

A report is kept while the log is locked, and passed on when it is not: handlers are code of others, which may
wait for a thread that waits for the log. After a truncation that is at the next roll, retention or close: a
handler that appends would get offsets that the caller of truncate_to does not expect to be given out already.
"""

import contextlib
import logging
from collections import deque

from kstore.errors import visible
from kstore.log.worker import after_job

_LOGGER = logging.getLogger("kstore.log")
logging.getLogger("kstore").addHandler(logging.NullHandler())  # silent unless the program asks for it
_MOST = 1000  # that nobody has passed on yet; older ones are dropped


class Reports:
    """The reports of one log, or store. Any thread may call."""

    def __init__(self, logger: logging.Logger = _LOGGER) -> None:
        self._logger = logger
        self._kept: deque[tuple[int, str, tuple[object, ...]]] = deque(maxlen=_MOST)

    def info(self, text: str, *values: object) -> None:
        """Keeps a report of what is as it should be."""
        self._kept.append((logging.INFO, text, values))

    def warning(self, text: str, *values: object) -> None:
        """Keeps a report of what somebody may have to look at."""
        self._kept.append((logging.WARNING, text, values))

    def pass_on(self) -> None:
        """Gives the reports to the handlers. What those raise must not end what the log was doing."""
        if not self._kept or after_job(self.pass_on):  # who closes the log may wait for the job
            return
        while self._kept:
            with contextlib.suppress(Exception):
                level, text, values = self._kept.popleft()
                shown = (value if isinstance(value, int) else visible(value) for value in values)
                self._logger.log(level, text, *shown)
