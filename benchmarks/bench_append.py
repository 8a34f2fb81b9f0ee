"""One record a call."""

import kstore
from benchmarks.data import SINGLE_BYTES, Data, columns
from benchmarks.interleave import Goal, Race
from benchmarks.peers.process import Peer
from benchmarks.peers.store import APPEND, writing
from benchmarks.stored import rows_of
from benchmarks.written import contestant

COUNT = 50_000  # records a turn


def records_of(data: Data) -> list[tuple[bytes, bytes, int]]:
    rows = columns(data)
    values, keys = map(bytes, rows.values[:COUNT]), map(bytes, rows.keys[:COUNT])
    return list(zip(values, keys, rows.timestamps(0, COUNT).tolist(), strict=True))


def single(log: kstore.LogWriter, records: list[tuple[bytes, bytes, int]]) -> int:
    append = log.append
    for value, key, timestamp in records:
        append(value, key, timestamp)
    return COUNT


def bench_append(race: Race, data: Data, limit: Peer, kafka: Peer, krabka: Peer) -> None:
    """A record of 108 bytes, encoded and written before the call returns; no sync. kstore: log.append() from
    Python. C pwrite: that many bytes and nothing else; C: encoded too. Kafka: MemoryRecordsBuilder and
    UnifiedLog.appendAsLeader (Kafka segment: LogSegment.append). krabka: Log.append."""

    race(
        "append",
        "record",
        contestant("kstore", data, lambda: records_of(data), single),
        limit.contestant("C pwrite", "pwrites"),
        limit.contestant("C", "append"),
        kafka.contestant("Kafka", "append_log"),
        kafka.contestant("Kafka segment", "append"),
        krabka.contestant("krabka", "append"),
        goals=(Goal("C pwrite", speed=0.5), Goal("Kafka", speed=2), Goal("krabka", speed=1)),
        arguments=lambda turn: (COUNT, SINGLE_BYTES),
    )


def bench_appender(race: Race, data: Data) -> None:
    """The same through log.appender(), from one thread, all of it in the log at the end; beside
    log.append()."""

    def gathered(log: kstore.LogWriter, records: list[tuple[bytes, bytes, int]]) -> int:
        with log.appender() as out:
            append = out.append
            for value, key, timestamp in records:
                append(value, key, timestamp)
        return COUNT

    race(
        "appender",
        "record",
        contestant("kstore", data, lambda: records_of(data), gathered, by_end=True),
        contestant("kstore append", data, lambda: records_of(data), single, by_end=True),
        goals=(Goal("kstore append", speed=3),),
    )


def bench_append_stores(race: Race, data: Data, limit: Peer) -> None:
    """The same beside what else a Python program would take. aiokafka: its codec and a write. lmdb,
    rocksdict, sqlite3: a commit each. A race of its own, because of the threads that some of them leave in
    this process: with them, every system call costs more."""
    race(
        "append_stores",
        "record",
        contestant("kstore", data, lambda: records_of(data), single),
        limit.contestant("C", "append"),
        *writing(APPEND, data.work, lambda: rows_of(columns(data), COUNT)),
        arguments=lambda turn: (COUNT, SINGLE_BYTES),
    )
