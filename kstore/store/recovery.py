"""What a store does with logs that were not closed cleanly: those with something to recover are opened and
closed, several at a time if there is much to do."""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable

from kstore.log.files.layout import TopicPartition
from kstore.log.threads.background import Background

_MUCH = 16 << 20  # bytes to read
_MANY = 64  # logs: files are brought to the disk, which several threads do in less time than one
_MOST_THREADS = 8


def threads_for(work: Iterable[int]) -> int:
    """How many threads are worth their while for logs of which so many bytes are to be read."""
    sizes = [size for size in work if size]
    if len(sizes) < _MANY and sum(sizes) < _MUCH:
        return 1
    return max(1, min(len(sizes), 2 * (os.cpu_count() or 1), _MOST_THREADS))


class ParallelWork:
    """The same done with each of some partitions, on this thread and others. What it raises ends it, and is
    raised here, when all threads are through."""

    def __init__(self, do: Callable[[TopicPartition], None], partitions: Iterable[TopicPartition]) -> None:
        self._do = do
        self._left = deque(partitions)
        self._failure: BaseException | None = None

    def run(self, threads: int) -> None:
        """Does it on so many threads, or on fewer, if there can be no more."""
        others = [
            Background(target=self._work, name="kstore-recovery", daemon=True) for _ in range(threads - 1)
        ]
        try:
            for other in others:
                with contextlib.suppress(RuntimeError):
                    other.start()
            self._work()
        finally:
            self._left.clear()
            for other in others:
                self._wait(other)
        failure, self._failure = self._failure, None  # which has frames that have this object, and logs
        try:
            if failure is not None:
                raise failure
        finally:
            del failure

    def _work(self) -> None:
        while self._failure is None:
            try:
                tp = self._left.popleft()
            except IndexError:
                return
            try:
                self._do(tp)
            except BaseException as e:  # noqa: BLE001 - it is raised on the thread that waits
                self._failure = self._failure or e

    def _wait(self, other: Background) -> None:
        """Waits for a thread; a signal that interrupts this is raised afterwards."""
        while other.is_begun and not (other.is_over or other.outside):
            try:
                other.wait()
            except BaseException as e:  # noqa: BLE001
                self._failure = self._failure or e
