"""Records as Python objects."""

import kstore
from benchmarks.data import BATCH_RECORDS, Data
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.peers.store import SCAN
from benchmarks.stored import Stored

BATCHES = 512  # a turn reads 8 MiB


def bench_records(race: Race, data: Data, stored: Stored) -> None:
    """The first 8 MiB of 16 KiB batches, record by record: offset, timestamp, key and value touched, CRC
    checked. kstore reads the cached file; aiokafka's codec is given the same bytes in memory, for it does not
    read files. The stores hold about a million records and give what they have: lmdb and rocksdict key and
    value, the others all four."""
    log = kstore.open(data.batched.path)
    batches = min(BATCHES, data.batched.end_offset // BATCH_RECORDS)
    stop = batches * BATCH_RECORDS

    def work(_: None) -> tuple[int, int]:
        seen = last = 0
        for record in log.records(0, stop):
            last = record.offset
            record.timestamp  # noqa: B018
            record.key  # noqa: B018
            record.value  # noqa: B018
            seen += 1
        return seen, last

    race(
        "iterate_records",
        "record",
        InProcess("kstore", lambda: None, work),
        *stored.contestants(SCAN, lambda: None, lambda store, _: store.scan(stop)),
        goals=(Goal("aiokafka", speed=1.6),),
    )
