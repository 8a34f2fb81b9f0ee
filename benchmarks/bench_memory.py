"""Memory while a log is written, and while it is scanned."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import kstore
from benchmarks.data import BATCH_BYTES, BATCH_RECORDS, ROWS, Data, columns
from benchmarks.written import contestant

FLAT = 4 << 20  # bytes that it may grow by, once the first 256 MiB are written
SETTLED = 256 << 20
SCAN_MOST = 200 << 20  # bytes of a process that scans, whatever the size of the log
SCAN = """
import sys, kstore
from pathlib import Path
rows = 0
for batch in kstore.open(sys.argv[1]).scan(threads=int(sys.argv[2]), views=sys.argv[3] == "views"):
    rows += len(batch)
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(rows, int(peak.split()[1]) << 10)
"""


def anonymous() -> int:
    """This process's memory, without the mapped files (of kstore: the indexes of the active segment)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def bench_memory(
    benchmark: BenchmarkFixture, data: Data, written_mib: int, note: Callable[[str], None]
) -> None:
    """Records through extend() in segments of 256 MiB, of which retention keeps two; memory after each
    call."""
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
        "retention_ms": -1,
        "file_delete_delay_ms": 0,
    }
    ours = contestant("kstore", data, lambda: None, work, **limits)
    benchmark.pedantic(ours.turn, rounds=1)  # type: ignore[no-untyped-call]
    growth = max(seen) - seen[0]
    note(
        f"memory while {written_mib} MiB are written: {seen[0] >> 20} MiB, at most {growth / 1024:.0f} KiB more"
    )
    assert growth < FLAT


@pytest.mark.parametrize("views", ["copies", "views"])
@pytest.mark.parametrize("threads", [1, 2])
def bench_memory_of_scan(
    benchmark: BenchmarkFixture,
    written_log: tuple[Path, int],
    written_mib: int,
    note: Callable[[str], None],
    threads: int,
    views: str,
) -> None:
    """All columns of a log of so many MiB, in a process of its own: the most memory that it has at a time."""
    path, rows = written_log
    command = [sys.executable, "-c", SCAN, str(path), str(threads), views]
    env = os.environ | {"PYTHONPATH": str(Path(kstore.__file__).parents[1])}

    def scan() -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout

    found, peak = map(int, benchmark.pedantic(scan, rounds=1).split())  # type: ignore[no-untyped-call]
    note(f"memory of a scan of {written_mib} MiB, {threads} threads, {views}: {peak >> 20} MiB at most")
    assert found == rows
    assert peak < SCAN_MOST


@pytest.fixture(scope="module")
def written_log(data: Data, written_mib: int) -> Iterator[tuple[Path, int]]:
    """A log of so many MiB, removed in the end."""
    path = data.work / "scanned-0"
    rows = columns(data)
    with kstore.open(path, "a", segment_bytes=1 << 30) as log:
        for _ in range((written_mib << 20) // (ROWS // BATCH_RECORDS * BATCH_BYTES)):
            log.extend(rows.values, rows.keys, rows.timestamps(log.log_end_offset, ROWS))
        end = log.log_end_offset
    yield path, end
    shutil.rmtree(path)
