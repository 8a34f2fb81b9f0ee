"""Compaction of a log in which keys come again and again: KSTORE_BENCH_COMPACT_MIB, 128, and 1024 with
--all."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import kstore
from benchmarks.data import ROWS, Data, columns, link_dirty, make_dirty, targets
from benchmarks.interleave import Goal, Race
from benchmarks.peers import SELF_CHECKED, InProcess
from benchmarks.peers.process import Peer
from kstore.engine.record.codec import NAMES as CODECS

BUFFER = 128 << 20  # log_cleaner_dedupe_buffer_size
MORE = 32 << 20  # bytes that a compaction may take beside it
COMPACT = """
import sys, kstore
from pathlib import Path

def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))

with kstore.open(
    sys.argv[1], "a", clean=True, cleanup_policy="compact", log_cleaner_dedupe_buffer_size=int(sys.argv[2])
) as log:
    before = status("VmRSS")
    log.compact()
    print(status("VmHWM") - before)
"""


def _mib(pytestconfig: pytest.Config) -> int:
    return int(os.environ.get("KSTORE_BENCH_COMPACT_MIB", "1024" if pytestconfig.getoption("all") else "128"))


class _Dirty:
    """A copy, in `path`, of the partition `dirty`, made again for each round and open for writing."""

    def __init__(self, dirty: Path, path: Path) -> None:
        self._dirty = dirty
        self._path = path

    def prepare(self, *args: int) -> int:
        link_dirty(self._dirty, self._path)
        self.writer = kstore.open(
            self._path, "a", clean=True, cleanup_policy="compact", log_cleaner_dedupe_buffer_size=BUFFER
        )
        return self.sealed_bytes()

    def sealed_bytes(self) -> int:
        return sum(segment.size for segment in self.writer.segments[:-1])

    def clear(self, size: int) -> None:
        self.writer.close()
        shutil.rmtree(self._path.parent)


def bench_compact(
    race: Race, data: Data, limit: Peer, kafka: Peer, krabka: Peer, pytestconfig: pytest.Config
) -> None:
    """Four sealed segments of 100 B records in 16 KiB batches, cached, with a thousand keys for each MiB,
    made one; opening is not counted, the result is synced. kstore: log.compact(). C: a table of keys, two
    passes of pread, the CRC of each batch, one file, no indexes. Kafka: Cleaner.clean with a map of 128 MiB,
    as kstore has. krabka: Log::compact. The result has the same size everywhere."""
    mib = _mib(pytestconfig)
    dirty = make_dirty(data, mib)
    log = _Dirty(dirty, data.work / "kstore" / "compact-0")

    def work(size: int) -> tuple[int, int]:
        log.writer.compact()
        return size, log.sealed_bytes()

    race(
        "compact",
        "byte",
        InProcess("kstore", log.prepare, work, clear=log.clear),
        limit.contestant("C", "compact"),
        kafka.contestant("Kafka", "compact"),
        krabka.contestant("krabka", "compact"),
        goals=(Goal("C", speed=0.8), Goal("Kafka", speed=4.5)),
        arguments=lambda turn: (mib * 1000,),
        rounds=min(race.rounds, 5),
    )


@pytest.mark.parametrize("codec", ["lz4", "snappy", "zstd", "gzip"])
def bench_compact_packed(
    race: Race, data: Data, kafka: Peer, pytestconfig: pytest.Config, codec: str
) -> None:
    """The same of JSON values in batches of 138 records packed about 3:1 by kstore, an eighth as many; for
    each byte as it is packed. What is left is packed by each with its own libraries, at its default level."""
    mib = _mib(pytestconfig) // 8
    dirty, keys = data.work / f"dirty-{codec}-0", mib * 1000
    distinct = _write_packed(data, dirty, codec, mib, keys)
    log = _Dirty(dirty, data.work / "kstore" / "compact-0")

    def work(size: int) -> tuple[int, int]:
        done = log.writer.compact()
        assert sum(each.records_after for each in done.segments) == distinct
        return size, SELF_CHECKED

    race(
        f"compact_{codec}",
        "byte",
        InProcess("kstore", log.prepare, work, clear=log.clear),
        kafka.contestant("Kafka", "compact_packed"),
        goals=(Goal("Kafka", speed=2),),
        arguments=lambda turn: (CODECS.index(codec),),
        rounds=min(race.rounds, 5),
    )
    shutil.rmtree(dirty)


def _write_packed(data: Data, path: Path, codec: str, mib: int, keys: int) -> int:
    """A partition of four sealed segments and an active one; how many keys the sealed ones have."""
    rows = columns(data, packable=True)
    quarter = max((mib << 18) // 118 // ROWS, 1)
    seen: set[int] = set()
    shutil.rmtree(path, ignore_errors=True)
    with kstore.open(path, "a", compression_type=codec) as log:  # type: ignore[call-overload]
        for _ in range(4):
            for _ in range(quarter):
                start = log.log_end_offset
                chosen = targets(start, ROWS, keys)
                seen.update(chosen.tolist())
                log.extend(
                    rows.values,
                    chosen.astype(">i8").view("u1").reshape(ROWS, 8),
                    rows.timestamps(start, ROWS),
                )
            log.roll()
        log.append(b"the last", key=b"of the active segment")
    return len(seen)


def bench_memory_of_compaction(
    benchmark: BenchmarkFixture, data: Data, pytestconfig: pytest.Config, note: Callable[[str], None]
) -> None:
    """A compaction in a process of its own: the most memory that it takes beside what it had, with a buffer
    of keys in which they fit, and with one that they fill."""
    mib = _mib(pytestconfig)
    dirty = make_dirty(data, mib)
    path = data.work / "kstore" / "compact-0"
    env = os.environ | {"PYTHONPATH": str(Path(kstore.__file__).parents[1])}
    filled = max(mib * 1000 * 24 // 3, 2 << 20)

    def compact(buffer: int) -> int:
        link_dirty(dirty, path)
        command = [sys.executable, "-c", COMPACT, str(path), str(buffer)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout)

    for buffer in (BUFFER, filled):
        taken = compact(buffer)
        note(
            f"memory of a compaction of {mib} MiB, with a buffer of {buffer >> 20} MiB: {taken >> 20} MiB more"
        )
        assert taken <= buffer + MORE
    benchmark.pedantic(compact, args=(BUFFER,), rounds=1)  # type: ignore[no-untyped-call]
    shutil.rmtree(path.parent)
