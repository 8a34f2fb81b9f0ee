"""Records as columns."""

from typing import Any

import pytest

import kstore
from benchmarks.data import BATCH_BYTES, BATCH_RECORDS, ROWS, Data, columns
from benchmarks.interleave import Goal, Race
from benchmarks.peers import Contestant, InProcess, Missing
from benchmarks.peers.process import Peer
from kstore.engine.record.codec import NAMES as CODECS

COLUMNS = ("offset", "timestamp", "key", "value")
BATCHES = 16_384  # a turn reads 256 MiB
PEER_BATCHES = 1024  # beside aiokafka 16 MiB
PACKED_ROWS = 2 * ROWS


def bench_scan(race: Race, data: Data, limit: Peer, kafka: Peer, krabka: Peer) -> None:
    """256 MiB of 16 KiB batches from the cached file to columns of offset, timestamp, key and value, CRC
    checked, in record batches that are let go one after the other. Kafka, krabka: 1 MiB at a time through
    their readers, CRC checked, the fields of each record touched. C: pread of 1 MiB, CRC, and the same
    columns, in memory used again and again, no other checks. C pread: that alone. Arrow IPC: the same columns
    in an uncompressed file, read into memory, nothing checked."""
    log, count = _part(data)
    race(
        "scan",
        "record",
        _scan("kstore", log, count),
        limit.contestant("C", "scan"),
        limit.contestant("C pread", "scan_pread"),
        kafka.contestant("Kafka", "scan"),
        krabka.contestant("krabka", "scan"),
        _scan("views", log, count, views=True),
        _scan("all columns", log, count, columns=None),
        _arrow(data, log, count),
        goals=(Goal("C", speed=0.85), Goal("Kafka", speed=1.7), Goal("Arrow IPC", speed=1)),
        arguments=lambda turn: (0, count),
    )


def bench_scan_threads(race: Race, data: Data, limit: Peer) -> None:
    """The same on two threads, against one; C 2 threads against C tells what the machine allows. Arrow IPC:
    as above, on one thread."""
    log, count = _part(data)
    race(
        "scan_2_threads",
        "record",
        _scan("kstore, 2 threads", log, count, threads=2),
        _scan("1 thread", log, count),
        limit.contestant("C 2 threads", "scan_two_threads"),
        limit.contestant("C", "scan"),
        _arrow(data, log, count),
        goals=(Goal("1 thread", speed=1.7),),
        arguments=lambda turn: (0, count),
    )


def bench_scan_two_columns(race: Race, data: Data, limit: Peer) -> None:
    """Columns of offset and timestamp alone, against those of key and value as well; and both in C."""
    log, count = _part(data)
    race(
        "scan_offset_timestamp",
        "record",
        _scan("kstore, two columns", log, count, columns=("offset", "timestamp")),
        _scan("four columns", log, count),
        limit.contestant("C two columns", "scan_two_columns"),
        limit.contestant("C", "scan"),
        goals=(Goal("four columns", speed=1.3),),
        arguments=lambda turn: (0, count),
    )


@pytest.mark.parametrize("codec", ["lz4", "snappy", "zstd", "gzip"])
def bench_scan_packed(race: Race, data: Data, kafka: Peer, krabka: Peer, codec: str) -> None:
    """JSON values of 100 bytes, keys of 8, in batches of 138 records packed about 3:1 by kstore, 276,000
    records a turn; who does it is as above. aiokafka: its codec, given the same bytes in memory."""
    path = data.work / f"packed-{codec}-0"
    rows = columns(data, packable=True)
    with kstore.open(path, "a", compression_type=codec) as log:
        while log.log_end_offset < PACKED_ROWS:
            log.extend(rows.values, rows.keys, rows.timestamps(log.log_end_offset, ROWS))
    reader = kstore.open(path)
    with next(path.glob("*.log")).open("rb") as f:
        raw = f.read()
    race(
        f"scan_{codec}",
        "record",
        _scan("kstore", reader, PACKED_ROWS),
        kafka.contestant("Kafka", "scan"),
        krabka.contestant("krabka", "scan"),
        _aiokafka(raw),
        goals=(Goal("Kafka", speed=1.3), Goal("krabka", speed=1.3)),
        arguments=lambda turn: (CODECS.index(codec), PACKED_ROWS),
        rounds=min(race.rounds, 11),
    )


def bench_scan_beside_aiokafka(race: Race, data: Data) -> None:
    """The same with 16 MiB a turn, beside aiokafka's codec, which is given the same bytes in memory: CRC
    checked, the four fields of each record touched."""
    log, count = _part(data, PEER_BATCHES)
    with next(data.batched.path.glob("*.log")).open("rb") as f:
        raw = f.read(count // BATCH_RECORDS * BATCH_BYTES)
    race(
        "scan_16_mib",
        "record",
        _scan("kstore", log, count),
        _aiokafka(raw),
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
    """Values of 10 KiB in 16 KiB batches, 128 MiB: copied, and as views. Beside it the same file read in
    pieces of 1 MiB, and nothing done with them but CRC-32C."""
    from kstore.engine.record.batch import crc32c

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
        for at in range(0, size, 1 << 20):
            crc32c(file.read(at, min(1 << 20, size - at)))
        return 12_800, 0

    race(
        f"scan_10_kib_{'views' if views else 'copies'}",
        "record",
        InProcess("kstore", lambda: None, work),
        InProcess("pread and CRC", lambda: None, bare),
        goals=(Goal("pread and CRC", speed=0.8),) if views else (),
    )


def _part(data: Data, batches: int = BATCHES) -> tuple[kstore.PartitionLog, int]:
    """The log, and how many of its records a turn reads."""
    return kstore.open(data.batched.path), min(batches * BATCH_RECORDS, data.batched.end_offset)


def _scan(name: str, log: kstore.PartitionLog, count: int, **options: Any) -> InProcess[None]:
    def work(_: None) -> tuple[int, int]:
        rows = 0
        for batch in log.scan(**{"columns": COLUMNS, "stop": count, **options}):
            rows += len(batch)
        return rows, rows

    return InProcess(name, lambda *_: None, work)


def _arrow(data: Data, log: kstore.PartitionLog, count: int) -> Contestant | Missing:
    try:
        import pyarrow
    except ImportError as e:
        return Missing("Arrow IPC", str(e))
    path = data.work / "columns.arrow"
    scan = log.scan(COLUMNS, stop=count)
    with pyarrow.OSFile(str(path), "wb") as out, pyarrow.ipc.new_stream(out, pyarrow.schema(scan)) as writer:
        for batch in scan:
            writer.write_batch(pyarrow.record_batch(batch))

    def work(_: None) -> tuple[int, int]:
        rows = 0
        with pyarrow.OSFile(str(path)) as file:
            for batch in pyarrow.ipc.open_stream(file):
                rows += len(batch)
        return rows, rows

    return InProcess("Arrow IPC", lambda *_: None, work)


def _aiokafka(raw: bytes) -> Contestant | Missing:
    try:
        from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]
    except ImportError as e:
        return Missing("aiokafka", str(e))

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

    return InProcess("aiokafka", lambda *_: MemoryRecords(raw), work)
