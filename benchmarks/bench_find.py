"""The first record of a random timestamp in a cached segment of 16 KiB batches."""

import kstore
from benchmarks.data import T0, Data, targets
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.peers.process import Peer

COUNT = 4_000  # lookups a turn


def bench_find(race: Race, data: Data, limit: Peer, kafka: Peer) -> None:
    """By timestamp to the offset. kstore: log.find() from Python. C: time index, offset index, headers by pread to the
    batch, pread, CRC in three lanes (C folded: as kstore has it), walk to the record. Kafka: LogSegment.findOffsetByTimestamp, which checks no CRC."""
    log = kstore.open(data.batched.path)
    end = data.batched.end_offset

    def prepare(seed: int, count: int, span: int) -> list[int]:
        wanted: list[int] = (T0 + targets(seed, count, span) // 10).tolist()
        return wanted

    def work(wanted: list[int]) -> tuple[int, int]:
        find = log.find
        total = 0
        for timestamp in wanted:
            found = find(timestamp=timestamp)
            assert found is not None
            total += found.offset
        return len(wanted), total

    race(
        "find_timestamp",
        "lookup",
        InProcess("kstore", prepare, work),
        limit.contestant("C", "find"),
        limit.contestant("C folded", "find_folded"),
        kafka.contestant("Kafka", "find"),
        goals=(Goal("C", time=1.3),),
        arguments=lambda turn: (turn * COUNT + COUNT, COUNT, end),
    )
