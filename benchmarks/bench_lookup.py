"""Floor lookups in an offset index, random offsets. At 1024 MiB it has 65,949 entries."""

import kstore
from benchmarks.data import Data, targets
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.peers.process import Peer

COUNT = 100_000  # lookups a turn


def bench_lookup(race: Race, data: Data, limit: Peer, kafka: Peer) -> None:
    """The position for an offset, looked up one by one and summed up: kstore by a call of OffsetIndex.lookup
    from Python for each, Kafka by OffsetIndex.lookup, C by a binary search without branches. Drawing the
    offsets is not counted."""
    [segment] = kstore.open(data.batched.path).segments
    end = data.batched.end_offset

    def work(wanted: list[int]) -> tuple[int, int]:
        lookup = segment.offset_index.lookup
        total = 0
        for offset in wanted:
            total += lookup(offset)[1]
        return len(wanted), total

    race(
        "index_lookup",
        "lookup",
        InProcess("kstore", lambda *args: targets(*args).tolist(), work),
        kafka.contestant("Kafka", "lookup"),
        limit.contestant("C", "lookup"),
        goals=(Goal("Kafka", time=0.5),),
        arguments=lambda turn: (turn * COUNT + COUNT, COUNT, end),
    )
