"""Records as Python objects."""

from typing import Any

import kstore
from benchmarks.data import BATCH_BYTES, BATCH_RECORDS, Data
from benchmarks.interleave import Goal, Race
from benchmarks.peers import Contestant, InProcess, Missing

BATCHES = 512  # a turn reads 8 MiB


def bench_records(race: Race, data: Data) -> None:
    """The first 8 MiB of 16 KiB batches, record by record: offset, timestamp, key and value touched, CRC checked.
    kstore reads the cached file; aiokafka's codec is given the same bytes in memory, for it does not read files."""
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
        _aiokafka(data, batches),
        goals=(Goal("aiokafka", speed=1.6),),
    )


def _aiokafka(data: Data, batches: int) -> Contestant | Missing:
    try:
        from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]
    except ImportError as e:
        return Missing("aiokafka", str(e))
    with next(data.batched.path.glob("*.log")).open("rb") as f:
        raw = f.read(batches * BATCH_BYTES)

    def work(records: Any) -> tuple[int, int]:
        seen = last = 0
        while (batch := records.next_batch()) is not None:
            if not batch.validate_crc():
                raise ValueError("wrong CRC")
            for record in batch:
                last = record.offset
                record.timestamp  # noqa: B018
                record.key  # noqa: B018
                record.value  # noqa: B018
                seen += 1
        return seen, last

    return InProcess("aiokafka", lambda: MemoryRecords(raw), work)
