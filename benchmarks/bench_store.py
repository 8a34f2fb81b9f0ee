"""A store of many partitions, beside one log and beside the bare file system."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kstore
from benchmarks.data import ROWS, Data, columns
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.peers.process import Peer

PARTITIONS = 16


def bench_store_extend(race: Race, data: Data, limit: Peer) -> None:
    """138,000 records in one call, numpy arrays with keys of 8 random bytes, to 16 partitions by key; without
    a key to one of them ("keyless"); or to one log. Each log has a record before. C: murmur2, batches of 16
    files in memory, CRC, a pwrite for each file; or, to one file, a pwrite for each MiB ("C one log")."""
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
            log = store.log("t", number)
            assert isinstance(log, kstore.LogWriter)
            log.append(b"")  # its files are made, and not counted
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

    def prepare_one(*args: int) -> tuple[kstore.LogWriter, tuple[Any, Any, Any]]:
        shutil.rmtree(path.parent, ignore_errors=True)
        path.mkdir(parents=True)
        log = kstore.open(path / "log-0", "a")
        log.append(b"")
        return log, load()

    def clear_one(given: tuple[kstore.LogWriter, Any]) -> None:
        given[0].close()
        shutil.rmtree(path.parent)

    def one(given: tuple[kstore.LogWriter, tuple[Any, Any, Any]]) -> tuple[int, int]:
        log, columns_of_one = given
        log.extend(*columns_of_one)
        return ROWS, ROWS

    race(
        "store_extend",
        "record",
        InProcess("kstore", prepare, by_key, clear=clear),
        InProcess("keyless", prepare, keyless, clear=clear),
        InProcess("one log", prepare_one, one, clear=clear_one),
        limit.contestant("C", "deal"),
        limit.contestant("C one log", "deal_one"),
        goals=(Goal("one log", speed=0.8), Goal("C", speed=0.9)),
        arguments=lambda turn: (ROWS,),
    )


_DIES = """
import os, sys, kstore
store = kstore.LogStore(sys.argv[1], mode="a", background=False, max_open_partitions=16)
for number in store.topics["t"]:
    store.log("t", number).append(b"v")
for directory in store._catalog.directories:
    directory.held.store()  # as the background does every minute
os._exit(0)
"""


def partitions(path: Path) -> int:
    """Makes a store of so many partitions with ten records each: KSTORE_BENCH_PARTITIONS (1000)."""
    count = int(os.environ.get("KSTORE_BENCH_PARTITIONS", "1000"))
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    with kstore.LogStore(path, mode="a", background=False) as store:
        store.create_topic("t", count)
        store.extend("t", [b"v"] * 10 * count, [b"%d" % i for i in range(10 * count)])
    return count


def walk(path: Path) -> int:
    """Looks at every file; how many directories there are."""
    found = 0
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir():
                found += 1
                with os.scandir(entry.path) as files:
                    for file in files:
                        file.stat()
    return found


def bench_store_open(race: Race, data: Data) -> None:
    """A directory of KSTORE_BENCH_PARTITIONS (1,000) that was closed cleanly: opened for writing and closed;
    or walked through, with a stat of each file."""
    path = data.work / "partitions"
    count = partitions(path)

    def opened(_: None) -> tuple[int, int]:
        with kstore.LogStore(path, mode="a", background=False) as store:
            return count, len(store)

    race(
        "store_open",
        "partition",
        InProcess("kstore", lambda *args: None, opened),
        InProcess("a walk", lambda *args: None, lambda _: (count, walk(path))),
        goals=(Goal("a walk", time=5),),
        rounds=min(race.rounds, 11),
    )
    shutil.rmtree(path)


def bench_store_open_unclean(race: Race, data: Data) -> None:
    """The same after the program was killed that had appended to each partition, and 16 of them open: opened
    for writing; closing is not counted. Or walked through."""
    path = data.work / "partitions"
    count = partitions(path)
    stores: list[kstore.LogStore] = []

    def kill(*args: int) -> None:
        subprocess.run([sys.executable, "-c", _DIES, str(path)], check=True)

    def opened(_: None) -> tuple[int, int]:
        stores.append(kstore.LogStore(path, mode="a", background=False))
        return count, len(stores[-1])

    race(
        "store_open_unclean",
        "partition",
        InProcess("kstore", kill, opened, warm_up=0, clear=lambda _: stores.pop().close()),
        InProcess("a walk", lambda *args: None, lambda _: (count, walk(path))),
        rounds=min(race.rounds, 5),
    )
    shutil.rmtree(path)
