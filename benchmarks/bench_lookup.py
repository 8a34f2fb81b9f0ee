"""Floor lookups in an offset index, random offsets. At 1024 MiB it has 65,949 entries."""

from typing import Any

import kstore
from benchmarks.data import Data, targets
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.peers.process import Peer

COUNT = 100_000  # lookups a turn


def bench_lookup(race: Race, data: Data, limit: Peer, kafka: Peer) -> None:
    """The position for an offset, looked up one by one and summed up: kstore by a call of OffsetIndex.locate
    from Python for each, which gives just that, Kafka by OffsetIndex.lookup, C by a binary search without
    branches. Drawing the offsets is not counted."""
    [segment] = kstore.open(data.batched.path).segments
    end = data.batched.end_offset

    def work(wanted: list[int]) -> tuple[int, int]:
        locate = segment.offset_index.locate
        total = 0
        for offset in wanted:
            total += locate(offset)
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


def bench_lookup_many(race: Race, data: Data, limit: Peer, kafka: Peer) -> None:
    """The same lookups, kstore's by one call with an array of offsets; for each lookup."""
    [segment] = kstore.open(data.batched.path).segments
    end = data.batched.end_offset

    def work(wanted: Any) -> tuple[int, int]:
        return len(wanted), int(segment.offset_index.lookup_many(wanted).sum())

    race(
        "index_lookup_many",
        "lookup",
        InProcess("kstore", targets, work),
        kafka.contestant("Kafka", "lookup"),
        limit.contestant("C", "lookup"),
        goals=(Goal("Kafka", time=0.3),),
        arguments=lambda turn: (turn * COUNT + COUNT, COUNT, end),
    )
