"""A sign of life in staging: what a running job has staged is not swept, however slow the job is."""

import contextlib
import os
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

BEAT_S = 60.0


class Heartbeat:
    """Renews the time of directories every minute, in a thread of its own, as long as the `with` block runs.

    A directory that does not exist yet, or not any more, is skipped.
    """

    def __init__(self, directories: Iterable[str]) -> None:
        self._directories = tuple(directories)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="kstore-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while True:
            for directory in self._directories:
                with contextlib.suppress(OSError):
                    os.utime(directory)
            if self._ended.wait(BEAT_S):
                return
