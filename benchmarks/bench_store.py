"""A store of many partitions, beside one log and beside the bare file system."""

import os
import shutil
from typing import Any

import kstore
from benchmarks.data import ROWS, Data, columns
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.written import contestant

PARTITIONS = 16


def bench_store_extend(race: Race, data: Data) -> None:
    """138,000 records in one call, numpy arrays with keys of 8 random bytes, to 16 partitions by key; without a key to
    one of them ("keyless"); or to one log."""
    path = data.work / "kstore" / "store"

    def load() -> tuple[Any, Any, Any]:
        rows = columns(data)
        return rows.values, rows.keys, rows.timestamps(0, ROWS)

    def prepare(*args: int) -> tuple[kstore.LogStore, tuple[Any, Any, Any]]:
        shutil.rmtree(path.parent, ignore_errors=True)
        path.mkdir(parents=True)
        store = kstore.LogStore(path, mode="a", background=False)
        store.create_topic("t", PARTITIONS)
        for number in range(PARTITIONS):
            store.append("t", b"", key=b"%d" % number)
        for number in range(PARTITIONS):
            store.log("t", number)  # opened, and not counted
        return store, load()

    def clear(given: tuple[kstore.LogStore, Any]) -> None:
        given[0].close()
        shutil.rmtree(path.parent)

    def by_key(given: tuple[kstore.LogStore, tuple[Any, Any, Any]]) -> tuple[int, int]:
        store, (values, keys, timestamps) = given
        store.extend("t", values, keys, timestamps)
        return ROWS, ROWS

    def keyless(given: tuple[kstore.LogStore, tuple[Any, Any, Any]]) -> tuple[int, int]:
        store, (values, _, timestamps) = given
        store.extend("t", values, None, timestamps)
        return ROWS, ROWS

    def one(log: kstore.LogWriter, given: tuple[Any, Any, Any]) -> int:
        log.extend(*given)
        return ROWS

    race(
        "store_extend",
        "record",
        InProcess("kstore", prepare, by_key, clear=clear),
        InProcess("keyless", prepare, keyless, clear=clear),
        contestant("one log", data, load, one, by_end=True),
        goals=(Goal("one log", speed=0.8),),
    )


def bench_store_open(race: Race, data: Data) -> None:
    """A directory of 1,000 partitions that was closed cleanly: opened for writing and closed;
    or walked through, with a stat of each file."""
    count = int(os.environ.get("KSTORE_BENCH_PARTITIONS", "1000"))
    path = data.work / "partitions"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    with kstore.LogStore(path, mode="a", background=False) as store:
        store.create_topic("t", count)
        store.extend("t", [b"v"] * 10 * count, [b"%d" % i for i in range(10 * count)])

    def opened(_: None) -> tuple[int, int]:
        with kstore.LogStore(path, mode="a", background=False) as store:
            return count, len(store)

    def walked(_: None) -> tuple[int, int]:
        found = 0
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir():
                    found += 1
                    with os.scandir(entry.path) as files:
                        for file in files:
                            file.stat()
        return count, found

    race(
        "store_open",
        "partition",
        InProcess("kstore", lambda *args: None, opened),
        InProcess("a walk", lambda *args: None, walked),
        goals=(Goal("a walk", time=5),),
        rounds=min(race.rounds, 11),
    )
    shutil.rmtree(path)
