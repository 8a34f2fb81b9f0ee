"""Reading beside the stores that a Python user would take instead: about a million records in each."""

from typing import Any

import pytest

import kstore
from benchmarks.data import Data
from benchmarks.interleave import Race
from benchmarks.lookups import finds, gets, offsets, timestamps
from benchmarks.peers import InProcess
from benchmarks.peers.process import Peer
from benchmarks.peers.store import COLUMNS, FIND, GET, Store
from benchmarks.stored import Stored

COUNT = 4_000  # lookups a turn


def bench_get_stores(race: Race, data: Data, limit: Peer, kafka: Peer, stored: Stored) -> None:
    """A value by its offset, of the first million records. kstore: log.get() in the whole segment, CRC of the
    16 KiB batch checked; so do C and Kafka. lmdb, rocksdict, sqlite3: lookup by key. Arrow: its record
    batches are held, a row is taken by its number. The stores check no CRC."""
    log = kstore.open(data.batched.path)

    def theirs(store: Store, wanted: list[int]) -> tuple[int, int]:
        get = store.get
        total = 0
        for offset in wanted:
            if get(offset):
                total += offset
        return len(wanted), total

    race(
        "get_stores",
        "record",
        gets(log),
        limit.contestant("C", "get_folded"),
        kafka.contestant("Kafka", "get"),
        *stored.contestants(GET, offsets, theirs),
        arguments=lambda turn: (turn * COUNT + COUNT, COUNT, stored.stop),
    )


def bench_find_stores(race: Race, data: Data, limit: Peer, kafka: Peer, stored: Stored) -> None:
    """The first offset of a random timestamp, of the first million records. kstore, C, Kafka: in the whole
    segment, sparse indexes and a batch. sqlite3: an index on the column. lmdb, rocksdict: a second one, an
    entry a timestamp. Arrow: first timestamps of its record batches in a list, then a search in one."""
    log = kstore.open(data.batched.path)

    def theirs(store: Store, wanted: list[int]) -> tuple[int, int]:
        return len(wanted), sum(map(store.find, wanted))

    race(
        "find_stores",
        "lookup",
        finds(log),
        limit.contestant("C", "find_folded"),
        kafka.contestant("Kafka", "find"),
        *stored.contestants(FIND, timestamps, theirs),
        arguments=lambda turn: (turn * COUNT + COUNT, COUNT, stored.stop),
    )


def bench_columns(race: Race, data: Data, stored: Stored) -> None:
    """Every record as columns, which pyarrow looks at: sums, lengths, the largest value. kstore: a scan, CRC
    checked. Arrow maps its file, Parquet reads it, both in blocks of 10,000 rows, one thread, no CRC."""
    pa = pytest.importorskip("pyarrow")
    from benchmarks.peers.arrow import look_at

    log = kstore.open(data.batched.path)

    def work(_: Any) -> tuple[int, int]:
        seen = total = 0
        for batch in log.scan(("offset", "timestamp", "key", "value"), stop=stored.stop):
            rows, offsets = look_at(pa.record_batch(batch))
            seen += rows
            total += offsets
        return seen, total

    race(
        "read_columns",
        "record",
        InProcess("kstore", lambda *args: None, work),
        *stored.contestants(COLUMNS, lambda *args: None, lambda store, _: store.columns()),
        rounds=min(race.rounds, 11),
    )
