"""Threads share a store; and more partitions than a process may have descriptors."""

from functools import partial
from pathlib import Path
from typing import Any

from kstore import LogStore
from tests.helpers.effort import times
from tests.helpers.processes import run_python
from tests.helpers.waiting import threads_doing

THREADS, EACH = 6, times(30)


def test_threads_append_to_many_partitions(ram: Path) -> None:
    """Of which few logs may be open, beside a busy background: each record is where its append said."""
    placed: list[list[tuple[int, int, bytes]]] = [[] for _ in range(THREADS)]

    def work(store: LogStore, me: int) -> None:
        for i in range(EACH):
            value = b"%d of %d" % (i, me)
            if i % 10:
                placed[me].append((*store.append("t", value, b"%d" % (i * me)), value))
            else:
                values = [value + b" %d" % n for n in range(20)]
                keys = [b"%d" % n for n in range(20)]
                for number, offsets in store.extend("t", values, keys).items():
                    log = store.log("t", number)
                    placed[me] += [(number, offset, log.get(offset).value or b"") for offset in offsets]
            if i % 25 == 24:
                topic = f"of.{me}.{i}"
                store.create_topic(topic, 2)
                assert store.append(topic, b"x") in ((0, 0), (1, 0))
                store.delete_topic(topic)

    busy: dict[str, Any] = {"flush_ms": 5, "segment_ms": 5, "idle_roll_ms": 1, "file_delete_delay_ms": 0}
    busy |= {"log_retention_check_interval_ms": 1, "retention_ms": -1, "internal_segment_bytes": 2000}
    with LogStore(ram, mode="a", max_open_partitions=3, **busy) as store:
        store.create_topic("t", 12)
        with threads_doing(*(partial(work, store, me) for me in range(THREADS))):
            pass
        assert store.health().ok
        expected = sorted(place for places in placed for place in places)
        assert len(expected) == THREADS * (EACH - EACH // 10 + 20 * EACH // 10)
        assert len({place[:2] for place in expected}) == len(expected)
    reader = LogStore(ram)
    assert reader.closed_cleanly
    found = [row for batch in reader.scan("t", ["partition", "offset", "value"]) for row in batch.rows()]
    assert sorted(found) == expected


FEW_DESCRIPTORS = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import kstore

path, count = sys.argv[1], 100
with kstore.LogStore(path, mode="a") as store:
    store.create_topic("t", count)
    kept = store.log("t", 7)  # a log that the program uses stays open
    for turn in range(2):
        for number in range(count):
            assert store.log("t", number).append(b"%d" % number) == turn
    assert not kept.is_closed
    offsets = store.extend("t", [b"v"] * 2000, [b"%d" % i for i in range(2000)])
    assert sum(map(len, offsets.values())) == 2000
    assert len(os.listdir("/proc/self/fd")) < 60
    rows = sum(len(batch) for batch in store.scan("t", ["value"]))
    assert rows == 2000 + 2 * count, rows
    assert store.health().ok, store.health()
    assert store.metrics().open_partitions < 20
store = kstore.LogStore(path)
assert store.closed_cleanly
assert sum(len(batch) for batch in store.scan("t", ["value"])) == rows
assert all(store.open("t", number).recovery.clean for number in range(count))
"""


def test_more_partitions_than_descriptors(ram: Path) -> None:
    done = run_python(FEW_DESCRIPTORS, ram / "data", options=["-W", "error"], timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
