"""Records as columns."""

from typing import Any

import pytest

import kstore
from benchmarks.data import BATCH_BYTES, BATCH_RECORDS, Data
from benchmarks.interleave import Goal, Race
from benchmarks.peers import Contestant, InProcess, Missing

COLUMNS = ("offset", "timestamp", "key", "value")
BATCHES = 16_384  # a turn reads 256 MiB
PEER_BATCHES = 1024  # beside aiokafka 16 MiB


def bench_scan(race: Race, data: Data) -> None:
    """256 MiB of 16 KiB batches from the cached file to columns of offset, timestamp, key and value, CRC checked, in
    record batches that are let go one after the other. On two threads; with views of values; two columns alone; all
    columns. Arrow IPC: the same columns in an uncompressed file, read into memory as we do, nothing checked."""
    log = kstore.open(data.batched.path)
    batches = min(BATCHES, data.batched.end_offset // BATCH_RECORDS)

    def scan(name: str, **options: Any) -> Contestant:
        def work(_: None) -> tuple[int, int]:
            rows = 0
            for batch in log.scan(**{"columns": COLUMNS, "stop": batches * BATCH_RECORDS, **options}):
                rows += len(batch)
            return rows, rows

        return InProcess(name, lambda: None, work)

    ours = scan("kstore")
    assert isinstance(ours, InProcess)
    race(
        "scan",
        "record",
        ours,
        scan("2 threads", threads=2),
        scan("views", views=True),
        scan("offset, timestamp", columns=("offset", "timestamp")),
        scan("all columns", columns=None),
        _arrow(data, log, batches),
        goals=(Goal("Arrow IPC", speed=1),),
    )


def bench_scan_beside_aiokafka(race: Race, data: Data) -> None:
    """The same with 16 MiB a turn, beside aiokafka's codec, which is given the same bytes in memory: CRC checked, the
    four fields of each record touched."""
    log = kstore.open(data.batched.path)
    batches = min(PEER_BATCHES, data.batched.end_offset // BATCH_RECORDS)

    def work(_: None) -> tuple[int, int]:
        rows = 0
        for batch in log.scan(COLUMNS, stop=batches * BATCH_RECORDS):
            rows += len(batch)
        return rows, rows

    race(
        "scan_16_mib",
        "record",
        InProcess("kstore", lambda: None, work),
        _aiokafka(data, batches),
        goals=(Goal("aiokafka", speed=8),),
    )


def bench_scan_time_range(race: Race, data: Data) -> None:
    """The last 1 % of a log by time, to columns; a unit is a whole scan. The other reads all of it."""
    log = kstore.open(data.batched.path)
    since = log.get(int(0.99 * data.batched.end_offset)).timestamp

    def scan(name: str, **options: Any) -> InProcess[None]:
        def work(_: None) -> tuple[int, int]:
            last = 0
            for batch in log.scan(("offset", "value"), **options):
                last = int(batch.column("offset").values[-1])
            return 1, last

        return InProcess(name, lambda: None, work)

    race(
        "scan_last_percent",
        "scan",
        scan("kstore", since=since),
        scan("all of it"),
        goals=(Goal("all of it", time=0.02),),
        rounds=5,
    )


@pytest.mark.parametrize("views", [False, True])
def bench_scan_large_values(race: Race, data: Data, views: bool) -> None:
    """Values of 10 KiB in 16 KiB batches, 128 MiB: copied, and as views. Beside it the same file read in pieces of 256
    KiB, and nothing done with them but CRC-32C."""
    from kstore.engine.crc32c import crc32c

    path = data.work / "large-0"
    with kstore.open(path, "a", max_message_bytes=1 << 20) as log:
        if log.log_end_offset == 0:
            for _ in range(6400):
                log.extend([b"v" * 10_240] * 2)
    reader = kstore.open(path)
    file = reader.segments[0].file()
    size = reader.segments[0].size

    def work(_: None) -> tuple[int, int]:
        rows = 0
        for batch in reader.scan(["value"], views=views):
            rows += len(batch)
        return 12_800, 0

    def bare(_: None) -> tuple[int, int]:
        for at in range(0, size, 256 << 10):
            crc32c(file.read(at, min(256 << 10, size - at)))
        return 12_800, 0

    race(
        f"scan_10_kib_{'views' if views else 'copies'}",
        "record",
        InProcess("kstore", lambda: None, work),
        InProcess("pread and CRC", lambda: None, bare),
        goals=(Goal("pread and CRC", speed=0.8),) if views else (),
    )


def _arrow(data: Data, log: kstore.PartitionLog, batches: int) -> Contestant | Missing:
    try:
        import pyarrow
    except ImportError as e:
        return Missing("Arrow IPC", str(e))
    path = data.work / "columns.arrow"
    scan = log.scan(COLUMNS, stop=batches * BATCH_RECORDS)
    with pyarrow.OSFile(str(path), "wb") as out, pyarrow.ipc.new_stream(out, pyarrow.schema(scan)) as writer:
        for batch in scan:
            writer.write_batch(pyarrow.record_batch(batch))

    def work(_: None) -> tuple[int, int]:
        rows = 0
        with pyarrow.OSFile(str(path)) as file:
            for batch in pyarrow.ipc.open_stream(file):
                rows += len(batch)
        return rows, rows

    return InProcess("Arrow IPC", lambda: None, work)


def _aiokafka(data: Data, batches: int) -> Contestant | Missing:
    try:
        from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]
    except ImportError as e:
        return Missing("aiokafka", str(e))
    with next(data.batched.path.glob("*.log")).open("rb") as f:
        raw = f.read(batches * BATCH_BYTES)

    def work(records: Any) -> tuple[int, int]:
        rows = 0
        while (batch := records.next_batch()) is not None:
            if not batch.validate_crc():
                raise ValueError("wrong CRC")
            for record in batch:
                record.offset  # noqa: B018
                record.timestamp  # noqa: B018
                record.key  # noqa: B018
                record.value  # noqa: B018
                rows += 1
        return rows, rows

    return InProcess("aiokafka", lambda: MemoryRecords(raw), work)
