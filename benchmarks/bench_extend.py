"""Many records, encoded into 16 KiB batches and appended."""

from typing import Any

import pytest

import kstore
from benchmarks.data import ROWS, Columns, Data, columns
from benchmarks.interleave import Goal, Race
from benchmarks.peers.process import Peer
from benchmarks.peers.store import EXTEND, writing
from benchmarks.stored import rows_of
from benchmarks.written import contestant
from kstore.engine.record.codec import NAMES as CODECS

CALLS = 4  # a call is given all rows of the columns


@pytest.mark.parametrize("given", ["arrays", "lists"])
def bench_extend(race: Race, data: Data, limit: Peer, kafka: Peer, krabka: Peer, given: str) -> None:
    """Values of 100 random bytes, keys of 8, to batches of 138 records; no sync. kstore: numpy arrays, or
    lists of bytes. Kafka: MemoryRecordsBuilder, then LogSegment.append (Kafka log:
    UnifiedLog.appendAsLeader). krabka: a Record object each, its only interface, and Log.append. C: encode,
    CRC, a pwrite for each batch."""

    def load() -> tuple[Any, Any, list[Any]]:
        rows = columns(data)
        stamps = [rows.timestamps(call * ROWS, ROWS) for call in range(CALLS)]
        if given == "arrays":
            return rows.values, rows.keys, stamps
        return list(map(bytes, rows.values)), list(map(bytes, rows.keys)), stamps

    def work(log: kstore.LogWriter, columns: tuple[Any, Any, list[Any]]) -> int:
        values, keys, stamps = columns
        for timestamps in stamps:
            log.extend(values, keys, timestamps)
        return CALLS * ROWS

    race(
        f"extend_{given}",
        "record",
        contestant("kstore", data, load, work),
        limit.contestant("C", "extend"),
        kafka.contestant("Kafka", "extend"),
        kafka.contestant("Kafka log", "extend_log"),
        krabka.contestant("krabka", "extend"),
        goals=(Goal("C", speed=1), Goal("Kafka", speed=2.2)) if given == "arrays" else (),
        arguments=lambda turn: (0, CALLS * ROWS),
    )


def bench_extend_stores(race: Race, data: Data, limit: Peer, kafka: Peer) -> None:
    """138,000 records in one call. kstore: lists of bytes. aiokafka: its codec and a write for each batch.
    lmdb: one transaction. rocksdict: WriteBatches of 1,000. sqlite3: transactions of 10,000. These take ready
    tuples; Arrow IPC and Parquet a ready table. C and Kafka as above."""

    def load() -> tuple[Any, Any, Any]:
        rows = columns(data)
        return list(map(bytes, rows.values)), list(map(bytes, rows.keys)), rows.timestamps(0, ROWS)

    def work(log: kstore.LogWriter, columns: tuple[Any, Any, Any]) -> int:
        log.extend(*columns)
        return ROWS

    race(
        "extend_stores",
        "record",
        contestant("kstore", data, load, work),
        limit.contestant("C", "extend"),
        kafka.contestant("Kafka", "extend"),
        *writing(EXTEND, data.work, lambda: rows_of(columns(data), ROWS)),
        arguments=lambda turn: (0, ROWS),
        rounds=min(race.rounds, 11),
    )


@pytest.mark.parametrize("codec", ["lz4", "snappy", "zstd", "gzip"])
def bench_extend_packed(race: Race, data: Data, kafka: Peer, krabka: Peer, codec: str) -> None:
    """JSON values of 100 bytes that pack about 3:1, keys of 8, to packed batches of 138 records, each at its
    default level; no sync. Who does it is as above."""

    def load() -> tuple[Columns, Any]:
        rows = columns(data, packable=True)
        return rows, rows.timestamps(0, ROWS)

    def work(log: kstore.LogWriter, loaded: tuple[Columns, Any]) -> int:
        rows, timestamps = loaded
        log.extend(rows.values, rows.keys, timestamps)
        return ROWS

    race(
        f"extend_{codec}",
        "record",
        contestant("kstore", data, load, work, by_end=True, compression_type=codec),
        kafka.contestant("Kafka", "extend"),
        krabka.contestant("krabka", "extend"),
        *writing(
            EXTEND,
            data.work,
            lambda: rows_of(columns(data, packable=True), ROWS),
            only=("aiokafka",),
            codec=CODECS.index(codec),
        ),
        goals=(Goal("Kafka", speed=1.2), Goal("krabka", speed=1.2)),
        arguments=lambda turn: (CODECS.index(codec), ROWS),
        rounds=min(race.rounds, 11),
    )
