"""One record a call, on the disk when it returns."""

from threading import Thread

import pytest

import kstore
from benchmarks.data import Data, columns
from benchmarks.interleave import Goal, Race
from benchmarks.peers.process import Peer
from benchmarks.peers.store import APPEND, writing
from benchmarks.stored import rows_of
from benchmarks.written import contestant

THREADS = 8
EACH = 100  # records of a thread in a turn


@pytest.mark.parametrize("threads", [THREADS, 1])
def bench_durable(race: Race, data: Data, limit: Peer, kafka: Peer, krabka: Peer, threads: int) -> None:
    """Records of 108 bytes from eight threads, or one; starting the threads is counted. kstore:
    durability="group". C: the thread that leads writes and syncs for all that wait. Kafka:
    UnifiedLog.appendAsLeader with flush.messages=1, which syncs the indexes too. krabka: flush_on_append
    under a lock. Neither joins syncs. From one thread also lmdb (a transaction each), rocksdict (sync=True)
    and sqlite3 (WAL, synchronous=full)."""
    rows = columns(data)
    count = threads * EACH
    values, keys = list(map(bytes, rows.values[:count])), list(map(bytes, rows.keys[:count]))
    timestamps = rows.timestamps(0, count).tolist()

    def some(log: kstore.LogWriter, first: int) -> None:
        append = log.append
        for i in range(first, count, threads):
            append(values[i], keys[i], timestamps[i])

    def work(log: kstore.LogWriter, _: None) -> int:
        if threads == 1:
            some(log, 0)
            return count
        started = [Thread(target=some, args=(log, first)) for first in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        return count

    alone = "_alone" if threads == 1 else ""
    race(
        f"durable_{threads}_threads",
        "record",
        contestant("kstore", data, lambda: None, work, durability="group"),
        limit.contestant("C", f"durable{alone}"),
        kafka.contestant("Kafka", f"durable{alone}"),
        *(
            writing(
                APPEND,
                data.work,
                lambda: rows_of(rows, count),
                ("lmdb", "rocksdict", "sqlite3"),
                durable=True,
            )
            if alone
            else [krabka.contestant("krabka", "durable")]
        ),
        goals=() if alone else (Goal("C", speed=0.5), Goal("Kafka", speed=3)),
        arguments=lambda turn: (count,),
        rounds=min(race.rounds, 11),
    )
