"""What a store does with logs that were not closed cleanly: those with something to recover are opened,
several at a time if there is much to do."""

from __future__ import annotations

import contextlib
import os
from collections import deque

from kstore.errors import KstoreError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.recovery.work_left import work_left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from kstore.store.open_partitions import OpenPartitions
    from kstore.store.store_directory import StoreDirectory

_MUCH = 16 << 20  # bytes to read
_MANY = 64  # logs: files are brought to the disk, which several threads do in less time than one
_MOST_THREADS = 8


def recover(logs: OpenPartitions) -> None:
    """Does what a broker does with logs that were not closed cleanly: each is loaded once, unless there is
    nothing to do. Before the store is used."""
    for directory in logs.catalog.live():
        if directory.was_clean:
            continue
        work: dict[TopicPartition, int] = {}
        for tp in sorted(directory.partitions):
            if tp.topic != layout.CLUSTER_METADATA:
                with _noting_failures(logs, tp, directory):
                    path = directory.path_of(tp)
                    interval = logs.catalog.config_of(tp.topic).index_interval_bytes
                    work[tp] = work_left(path, directory.held.state_of(path, tp), interval)
                    # a file that processes have left which died
                    work[tp] += os.path.exists(f"{path}/{layout.SHARED}")

        def recover_one(tp: TopicPartition, directory: StoreDirectory = directory) -> None:
            with _noting_failures(logs, tp, directory):
                logs.recover(tp)

        todo = [tp for tp, size in work.items() if size]
        _call_for_all(recover_one, todo, _threads_for(work.values()))
        for name in directory.others:
            if name.endswith(("-future", "-stray")):  # these were not read
                directory.held.failed(TopicPartition(name, 0))
        directory.held.all_recovered()


@contextlib.contextmanager
def _noting_failures(logs: OpenPartitions, tp: TopicPartition, directory: StoreDirectory) -> Iterator[None]:
    """`health` reports a partition that cannot be recovered, and its directory is not clean."""
    topic = logs.catalog.topics.get(tp.topic)
    try:
        yield
    except (OSError, KstoreError) as e:
        if topic is None or not logs.catalog.was_deleted(topic):
            directory.held.failed(tp)
            logs.failed(tp, e)


def _threads_for(work: Iterable[int]) -> int:
    """How many threads are worth their while for logs of which so many bytes are to be read."""
    sizes = [size for size in work if size]
    if len(sizes) < _MANY and sum(sizes) < _MUCH:
        return 1
    return max(1, min(len(sizes), 2 * (os.cpu_count() or 1), _MOST_THREADS))


def _call_for_all(
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
    from concurrent.futures import ThreadPoolExecutor

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
