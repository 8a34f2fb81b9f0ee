"""Compaction of a log in which keys come again and again: KSTORE_BENCH_COMPACT_MIB, 128, and 1024 with --all."""

import os
import shutil

import pytest

import kstore
from benchmarks.data import Data, link_dirty, make_dirty
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.peers.process import Peer


def bench_compact(
    race: Race, data: Data, limit: Peer, kafka: Peer, krabka: Peer, pytestconfig: pytest.Config
) -> None:
    """Four sealed segments of 100 B records in 16 KiB batches, cached, with a thousand keys for each MiB, made one;
    opening is not counted, the result is synced. kstore: log.compact(). C: a table of keys, two passes of pread, the
    CRC of each batch, one file, no indexes. Kafka: Cleaner.clean with a map of 128 MiB, as kstore has. krabka:
    Log::compact. The result has the same size everywhere."""
    mib = int(os.environ.get("KSTORE_BENCH_COMPACT_MIB", "1024" if pytestconfig.getoption("all") else "128"))
    dirty = make_dirty(data, mib)
    path = data.work / "kstore" / "compact-0"
    log: list[kstore.LogWriter] = []

    def prepare(*args: int) -> int:
        link_dirty(dirty, path)
        log.append(
            kstore.open(
                path, "a", clean=True, cleanup_policy="compact", log_cleaner_dedupe_buffer_size=128 << 20
            )
        )
        return sum(segment.size for segment in log[0].segments[:-1])

    def work(size: int) -> tuple[int, int]:
        log[0].compact()
        return size, sum(segment.size for segment in log[0].segments[:-1])

    def clear(size: int) -> None:
        log.pop().close()
        shutil.rmtree(path.parent)

    race(
        "compact",
        "byte",
        InProcess("kstore", prepare, work, clear=clear),
        limit.contestant("C", "compact"),
        kafka.contestant("Kafka", "compact"),
        krabka.contestant("krabka", "compact"),
        goals=(Goal("C", speed=0.8), Goal("Kafka", speed=4.5)),
        arguments=lambda turn: (mib * 1000,),
        rounds=min(race.rounds, 5),
    )
