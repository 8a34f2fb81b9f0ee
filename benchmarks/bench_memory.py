"""Memory while a log is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

import kstore
from benchmarks.data import BATCH_BYTES, BATCH_RECORDS, ROWS, Data, columns
from benchmarks.written import contestant

FLAT = 4 << 20  # bytes that it may grow by, once the first 256 MiB are written
SETTLED = 256 << 20


def anonymous() -> int:
    """This process's memory, without the mapped files (of kstore: the indexes of the active segment)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def bench_memory(
    benchmark: BenchmarkFixture, data: Data, written_mib: int, note: Callable[[str], None]
) -> None:
    """Records through extend() in segments of 256 MiB, of which retention keeps two; memory after each call."""
    rows = columns(data)
    total = written_mib << 20
    call_bytes = ROWS // BATCH_RECORDS * BATCH_BYTES
    seen: list[int] = []

    def work(log: kstore.LogWriter, _: None) -> int:
        for call in range(total // call_bytes):
            log.extend(rows.values, rows.keys, rows.timestamps(call * ROWS, ROWS))
            log.retain()
            if call * call_bytes >= min(SETTLED, total // 2):
                seen.append(anonymous())
        return len(seen)

    limits: dict[str, Any] = {
        "segment_bytes": 256 << 20,
        "retention_bytes": 512 << 20,
        "file_delete_delay_ms": 0,
    }
    ours = contestant("kstore", data, lambda: None, work, **limits)
    benchmark.pedantic(ours.turn, rounds=1)  # type: ignore[no-untyped-call]
    growth = max(seen) - seen[0]
    note(
        f"memory while {written_mib} MiB are written: {seen[0] >> 20} MiB, at most {growth / 1024:.0f} KiB more"
    )
    assert growth < FLAT
