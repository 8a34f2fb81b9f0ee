"""The first record of a random timestamp in a cached segment of 16 KiB batches."""

import kstore
from benchmarks.data import Data
from benchmarks.interleave import Goal, Race
from benchmarks.lookups import finds
from benchmarks.peers.process import Peer

COUNT = 4_000  # lookups a turn


def bench_find(race: Race, data: Data, limit: Peer, kafka: Peer) -> None:
    """By timestamp to the offset. kstore: log.find() from Python. C: time index, offset index, headers by
    pread to the batch, pread, CRC in three lanes (C folded: as kstore has it), walk to the record. Kafka:
    LogSegment.findOffsetByTimestamp, which checks no CRC."""
    log = kstore.open(data.batched.path)
    end = data.batched.end_offset

    race(
        "find_timestamp",
        "lookup",
        finds(log),
        limit.contestant("C", "find"),
        limit.contestant("C folded", "find_folded"),
        kafka.contestant("Kafka", "find"),
        goals=(Goal("C", time=1.3),),
        arguments=lambda turn: (turn * COUNT + COUNT, COUNT, end),
    )
