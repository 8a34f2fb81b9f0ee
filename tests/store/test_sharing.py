"""Threads share a store, of which few logs may be open: each record is where its append said."""

import threading
from pathlib import Path

from kstore import LogStore

THREADS, EACH = 6, 150


def test_threads_append_to_many_partitions(ram: Path) -> None:
    told: list[list[tuple[int, int, bytes]]] = [[] for _ in range(THREADS)]
    failures: list[BaseException] = []

    def work(store: LogStore, me: int) -> None:
        try:
            for i in range(EACH):
                value = b"%d of %d" % (i, me)
                if i % 10:
                    told[me].append((*store.append("t", value, b"%d" % (i * me)), value))
                else:
                    values = [value + b" %d" % n for n in range(20)]
                    keys = [b"%d" % n for n in range(20)]
                    for number, offsets in store.extend("t", values, keys).items():
                        log = store.log("t", number)
                        told[me] += [(number, offset, log.get(offset).value or b"") for offset in offsets]
                if i % 50 == 49:
                    topic = f"of.{me}.{i}"
                    store.create_topic(topic, 2)
                    assert store.append(topic, b"x") in ((0, 0), (1, 0))
                    store.delete_topic(topic)
        except BaseException as e:  # noqa: BLE001 - told to the test
            failures.append(e)

    with LogStore(ram, mode="a", max_open_partitions=3) as store:
        store.create_topic("t", 12)
        threads = [threading.Thread(target=work, args=(store, me)) for me in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert store.health().ok
        expected = sorted(place for places in told for place in places)
        assert len(expected) == THREADS * (EACH - EACH // 10 + 20 * EACH // 10)
        assert len({place[:2] for place in expected}) == len(expected)
    reader = LogStore(ram)
    assert reader.closed_cleanly
    found = [row for batch in reader.scan("t", ["partition", "offset", "value"]) for row in batch.rows()]
    assert sorted(found) == expected
