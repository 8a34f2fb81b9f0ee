"""What a log reports to Python's logging, under the name kstore.log: rolls, retention, recovery, truncation.
A store reports under kstore.store.

A report is kept while the log is locked, and passed on when it is not: handlers are code of others, which may
wait for a thread that waits for the log. After a truncation that is at the next roll, retention or close: a
handler that appends would get offsets that the caller of truncate_to does not expect to be given out already.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque

from kstore.errors import visible
from kstore.log.worker import after_job

_INFO, _WARNING = 20, 30  # levels of logging
_MOST = 1000  # that were not passed on yet; older ones are dropped


class Reports:
    """The reports of one log, or store. Any thread may call."""

    def __init__(self, name: str = "kstore.log") -> None:
        self._name = name
        self._kept: deque[tuple[int, str, tuple[object, ...]]] = deque(maxlen=_MOST)

    def info(self, text: str, *values: object) -> None:
        """Keeps a report of what is as it should be."""
        self._kept.append((_INFO, text, values))

    def warning(self, text: str, *values: object) -> None:
        """Keeps a report of what may need attention."""
        self._kept.append((_WARNING, text, values))

    def pass_on(self) -> None:
        """Gives the reports to the handlers. What those raise must not end what the log was doing."""
        if "logging" not in sys.modules:  # so the program has no handler
            self._kept.clear()
        if not self._kept or after_job(self.pass_on):  # who closes the log may wait for the job
            return
        import logging

        known = logging.getLogger("kstore")
        if not known.handlers:
            known.addHandler(logging.NullHandler())  # silent unless the program asks for it
        logger = logging.getLogger(self._name)
        while self._kept:
            with contextlib.suppress(Exception):
                level, text, values = self._kept.popleft()
                shown = (value if isinstance(value, int) else visible(value) for value in values)
                logger.log(level, text, *shown)
