"""Opening a partition of many sealed segments after a clean shutdown, and one whose writer lives."""

import os
import shutil

import kstore
from benchmarks.data import ROWS, Data, columns, copy_sealed
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.peers.process import Peer, Process


def bench_open(race: Race, data: Data, limit: Peer, kafka: Peer) -> None:
    """From the path to a log that knows its segments and its end; closing is not counted. kstore: read-only.
    C: readdir and stat of each .log, no more. Kafka: UnifiedLog.create on a copy of its own, for it
    writes."""
    if isinstance(kafka, Process):
        copy_sealed(data)

    def work(_: None) -> tuple[int, int]:
        log = kstore.open(data.sealed.path)
        assert log.log_end_offset == data.sealed.end_offset
        return 1, len(log.segments)

    race(
        f"open_{data.sealed.end_offset // 10 - 1}_segments",
        "open",
        InProcess("kstore", lambda: None, work),
        limit.contestant("C readdir+stat", "open"),
        kafka.contestant("Kafka", "open", warm_up=5),
        goals=(Goal("C readdir+stat", time=3),),
        rounds=min(race.rounds, 11),
    )


def bench_open_beside(race: Race, data: Data) -> None:
    """A log that is open for writing, with an active segment of KSTORE_BENCH_BESIDE_MIB (1024) in batches of
    16 KiB, opened for reading; or one of the same records that was closed ("closed")."""
    mib = int(os.environ.get("KSTORE_BENCH_BESIDE_MIB", "1024"))
    path = data.work / "beside"
    shutil.rmtree(path, ignore_errors=True)
    rows = columns(data)
    given = rows.values, rows.keys, rows.timestamps(0, ROWS)

    def written(name: str) -> kstore.LogWriter:
        log = kstore.open(path / name, "a", segment_bytes=(1 << 31) - 1)
        while log.active.size < mib << 20:
            log.extend(*given)
        return log

    with written("closed-0") as log:
        end = log.log_end_offset
    live = written("live-0")

    def opened(name: str) -> InProcess[None]:
        def work(_: None) -> tuple[int, int]:
            with kstore.open(path / f"{name}-0") as log:
                assert log.log_end_offset == end
                return 1, end

        return InProcess("kstore" if name == "live" else name, lambda *args: None, work)

    race(
        "open_beside",
        "open",
        opened("live"),
        opened("closed"),
        goals=(Goal("closed", time=3),),
        rounds=min(race.rounds, 11),
    )
    live.abandon()
    shutil.rmtree(path)
