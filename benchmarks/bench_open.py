"""Opening a partition of many sealed segments after a clean shutdown."""

import kstore
from benchmarks.data import Data, copy_sealed
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.peers.process import Peer, Process


def bench_open(race: Race, data: Data, limit: Peer, kafka: Peer) -> None:
    """From the path to a log that knows its segments and its end; closing is not counted. kstore: read-only. C: readdir
    and stat of each .log, no more. Kafka: UnifiedLog.create on a copy of its own, for it writes."""
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
