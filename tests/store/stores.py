"""What the tests of stores share: small stores, their records, and what they hold."""

from pathlib import Path
from typing import Any

import kstore
from kstore import LogStore
from tests.helpers.store_clock import T

DAY = 86_400_000
Row = tuple[int, int, bytes | None, bytes | None]


def opened(*paths: Path, **options: Any) -> LogStore:
    """A store that does nothing in the background."""
    return LogStore(*paths, mode="a", **{"background": False, **options})


def with_small_segments(path: Path, clock: Any, **options: Any) -> LogStore:
    """A store whose segments have four records of `fill`, and whose maintenance a StoreClock runs."""
    return opened(path, clock=clock, **{"internal_segment_bytes": 300, "retention_ms": DAY, **options})


def compacting(path: Path, clock: Any, **options: Any) -> LogStore:
    """The same for compacted topics."""
    return with_small_segments(path, clock, retention_ms=-1, cleanup_policy="compact", **options)


def writer(store: LogStore, topic: str = "t", partition: int = 0) -> kstore.LogWriter:
    """The log of a partition, to write."""
    log = store.log(topic, partition)
    assert isinstance(log, kstore.LogWriter)
    return log


def fill(store: LogStore, topic: str = "t", count: int = 20, at: int = T, keys: int = 3) -> None:
    """Appends records to every partition, one batch each."""
    for partition in store.topics[topic]:
        log = writer(store, topic, partition)
        for number in range(count):
            log.append(b"%d" % number + b"." * 50, b"key-%d" % (number % keys), timestamp=at + number)


def rows(store: LogStore, topic: str = "t") -> list[Row]:
    """Partition, offset, key and value of each record of a topic."""
    columns = ["partition", "offset", "key", "value"]
    return [row for batch in store.scan(topic, columns) for row in batch.rows()]


def values(store: LogStore, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    """The values of one partition, read without a writer."""
    return [record.value for record in store.open(topic, partition)]


def count(store: LogStore, topic: str = "t", partition: int = 0) -> int:
    """How many records a partition has."""
    return len(values(store, topic, partition))


def starts(store: LogStore, topic: str = "t") -> list[int]:
    """The log start offset of each partition, read without a writer."""
    return [store.open(topic, partition).log_start_offset for partition in store.topics[topic]]


def names(path: Path, end: str) -> list[str]:
    """Names of files and directories below a path that end so."""
    return sorted(entry.name for entry in path.rglob(f"*{end}"))
