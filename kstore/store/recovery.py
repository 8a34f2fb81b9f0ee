"""What a store does with logs that were not closed cleanly: those with something to recover are opened and
closed, several at a time if there is much to do."""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable

from kstore.log.files.layout import TopicPartition

_MUCH = 16 << 20  # bytes to read
_MANY = 64  # logs: files are brought to the disk, which several threads do in less time than one
_MOST_THREADS = 8


def threads_for(work: Iterable[int]) -> int:
    """How many threads are worth their while for logs of which so many bytes are to be read."""
    sizes = [size for size in work if size]
    if len(sizes) < _MANY and sum(sizes) < _MUCH:
        return 1
    return max(1, min(len(sizes), 2 * (os.cpu_count() or 1), _MOST_THREADS))


def recover_all(
    recover: Callable[[TopicPartition], None], partitions: Iterable[TopicPartition], threads: int
) -> None:
    """Recovers these partitions, on this thread and others. What one raises is raised here; those that were
    not begun then are not recovered."""
    left = deque(partitions)

    def work() -> None:
        while True:
            try:
                tp = left.popleft()
            except IndexError:
                return
            recover(tp)

    if threads == 1:
        work()
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    with ThreadPoolExecutor(threads - 1, "kstore-recovery") as pool:
        others: list[Future[None]] = []
        with contextlib.suppress(RuntimeError):  # there can be no more threads
            while len(others) < threads - 1:
                others.append(pool.submit(work))
        try:
            work()
        finally:
            left.clear()
        for other in others:
            other.result()
