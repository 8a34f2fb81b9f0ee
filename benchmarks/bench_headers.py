"""Walking the batch headers of a cached segment of batches of one record."""

import kstore
from benchmarks.data import Data
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.peers.process import Peer


def bench_headers(race: Race, data: Data, limit: Peer, kafka: Peer) -> None:
    """Every batch of the segment from the file to its last offset and largest timestamp, summed up; no
    checksums. kstore gives the two fields of all headers as an array ("all fields": all fifteen). Kafka walks
    FileRecords.batches(), which reads a header again when a field behind the magic is asked for."""
    [segment] = kstore.open(data.single.path).segments

    def work(fields: list[str] | None) -> tuple[int, int]:
        headers = segment.read_headers(fields=fields)
        return len(headers), int(headers["last_offset"].sum() + headers["max_timestamp"].sum())

    race(
        "headers",
        "batch",
        InProcess("kstore", lambda: ["last_offset", "max_timestamp"], work),
        InProcess("all fields", lambda: None, work),
        kafka.contestant("Kafka", "headers"),
        limit.contestant("C", "headers"),
        goals=(Goal("Kafka", speed=10), Goal("C", time=1.5)),
    )


def bench_positions(race: Race, data: Data, kafka: Peer) -> None:
    """The same walk, but of Kafka only what FileRecords.batches() reads by itself: base offset and size,
    summed up. kstore still gives all fields."""
    [segment] = kstore.open(data.single.path).segments

    def work(_: None) -> tuple[int, int]:
        headers = segment.read_headers()
        return len(headers), int(headers["base_offset"].sum() + headers["size"].sum())

    race(
        "headers_base_offset_only",
        "batch",
        InProcess("kstore", lambda: None, work),
        kafka.contestant("Kafka", "positions"),
        goals=(Goal("Kafka", speed=10),),
    )
