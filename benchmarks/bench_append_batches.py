"""Batches that are encoded already, appended with their CRC checked."""

import kstore
from benchmarks.data import Data, batches
from benchmarks.interleave import Goal, Race
from benchmarks.peers.process import Peer
from benchmarks.written import contestant

TOTAL = 64 << 20  # bytes a turn
MANY = 64  # batches of 16 KiB in one call


def bench_append_batches(race: Race, data: Data, limit: Peer, kafka: Peer, krabka: Peer) -> None:
    """64 MiB of 16 KiB batches to a new log, one a call, each with its CRC checked; no sync. kstore and
    Kafka: as a follower, which keeps offsets (UnifiedLog.appendAsFollower). krabka: validate_one_v2_batch and
    append_verbatim. C: CRC and pwrite, no index."""

    def work(log: kstore.LogWriter, encoded: list[bytes]) -> int:
        append_batches = log.append_batches
        for batch in encoded:
            append_batches(batch, keep_offsets=True)
        return 0

    race(
        "append_batches",
        "byte",
        contestant("kstore", data, lambda: batches(data, TOTAL), work, by_bytes=True),
        limit.contestant("C", "append_batches"),
        kafka.contestant("Kafka", "append_batches"),
        krabka.contestant("krabka", "append_batches"),
        goals=(Goal("C", speed=0.85), Goal("Kafka", speed=1.3)),
        arguments=lambda turn: (TOTAL, 1),
    )


def bench_append_batches_many(race: Race, data: Data, limit: Peer, kafka: Peer) -> None:
    """The same, 64 batches in one call, also for Kafka; and Kafka with one a call, as above."""

    def work(log: kstore.LogWriter, encoded: list[bytes]) -> int:
        for joined in encoded:
            log.append_batches(joined, keep_offsets=True)
        return 0

    race(
        "append_batches_many",
        "byte",
        contestant("kstore", data, lambda: batches(data, TOTAL, MANY), work, by_bytes=True),
        limit.contestant("C", "append_batches"),
        kafka.contestant("Kafka", "append_batches"),
        kafka.contestant("Kafka one a call", "append_batches_single"),
        goals=(Goal("Kafka one a call", speed=2),),
        arguments=lambda turn: (TOTAL, MANY),
    )


def bench_append_batches_leader(race: Race, data: Data, kafka: Peer) -> None:
    """The same as a leader, one a call: every record is checked too, and the batch gets its offsets."""

    def load() -> list[bytes]:
        return [bytes(8) + batch[8:] for batch in batches(data, TOTAL)]

    def work(log: kstore.LogWriter, encoded: list[bytes]) -> int:
        append_batches = log.append_batches
        for batch in encoded:
            append_batches(batch)
        return 0

    race(
        "append_batches_leader",
        "byte",
        contestant("kstore", data, load, work, by_bytes=True),
        kafka.contestant("Kafka", "append_batches_leader"),
        goals=(Goal("Kafka", speed=1.3),),
        arguments=lambda turn: (TOTAL, 1),
    )
