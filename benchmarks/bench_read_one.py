"""One record at a random offset of a cached segment of 16 KiB batches."""

import kstore
from benchmarks.data import Data
from benchmarks.interleave import Goal, Race
from benchmarks.lookups import gets
from benchmarks.peers.process import Peer

COUNT = 4_000  # reads a turn


def bench_read_one(race: Race, data: Data, limit: Peer, kafka: Peer) -> None:
    """By offset to the record and its value, CRC of its batch checked. kstore: log.get() from Python. C:
    search in the index, headers by pread to the batch, pread, CRC in three lanes (C folded: by carry-less
    multiplication, as kstore has it), walk to the record. Kafka: LogSegment.read, the same in memory."""
    log = kstore.open(data.batched.path)
    end = data.batched.end_offset

    race(
        "read_one",
        "record",
        gets(log),
        limit.contestant("C", "get"),
        limit.contestant("C folded", "get_folded"),
        kafka.contestant("Kafka", "get"),
        goals=(Goal("C", time=1.3),),
        arguments=lambda turn: (turn * COUNT + COUNT, COUNT, end),
    )
