"""CRC-32C over a cached buffer."""

import pytest

from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.peers.process import Peer
from kstore.engine.record.batch import crc32c

TOTAL = 128 << 20  # bytes a turn


@pytest.mark.parametrize("size", [16 << 10, 1 << 20], ids=["16KiB", "1MiB"])
def bench_crc32c(race: Race, limit: Peer, kafka: Peer, size: int) -> None:
    """The checksum of the same buffer again and again. kstore: a call from Python each. C three lanes: the
    CRC instruction, lanes never joined. C folded: kstore's own loop without Python. Kafka: the JVM's
    intrinsic."""
    buffer = b"\x07" * size  # bytes(size) would be one page of zeros, mapped many times

    def work(given: tuple[int, int]) -> tuple[int, int]:
        size, times = given
        for _ in range(times):
            crc32c(buffer)
        return size * times, size * times

    race(
        f"crc32c_{size >> 10}KiB",
        "byte",
        InProcess("kstore", lambda *args: args, work),
        limit.contestant("C three lanes", "crc32c"),
        limit.contestant("C folded", "crc32c_folded"),
        kafka.contestant("Kafka (JVM)", "crc32c"),
        goals=(Goal("C three lanes", speed=0.9),),
        arguments=lambda turn: (size, TOTAL // size),
    )
