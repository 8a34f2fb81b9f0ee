"""Run as `python many_segments.py DIRECTORY COUNT LIMIT`: one log of so many segments, written and read in
every way under so few descriptors. Prints a line for each step: the seconds it took, and how many descriptors
were open at its end."""

import random
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import kstore

TIME = 1_700_000_000_000
OPTIONS = {"internal_segment_bytes": 150, "segment_index_bytes": 64, "file_delete_delay_ms": 0}


def value(number: int) -> bytes:
    return b"%060d" % number  # two batches with such a value do not fit into a segment


def step(name: str, work: Callable[[], object]) -> None:
    begun = time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    descriptors = len(list(Path("/proc/self/fd").iterdir())) - 1
    print(f"{seconds:9.3f} s  {descriptors:4} descriptors  {name}", flush=True)


def append(log: kstore.LogWriter, numbers: range) -> None:
    for number in numbers:
        assert log.append(value(number), timestamp=TIME + number) == number


def check(log: kstore.PartitionLog, numbers: range) -> None:
    """Every way of reading shows these records, and no others."""
    chance = random.Random(7)
    some = [chance.choice(numbers) for _ in range(200)]
    assert (log.log_start_offset, log.log_end_offset) == (numbers.start, numbers.stop)
    step("  iterate", lambda: compare(list(log), numbers))
    step("  scan", lambda: compare_scan(log.scan(["offset"]), numbers))
    step("  scan, 2 threads", lambda: compare_scan(log.scan(["offset"], threads=2), numbers))
    step("  get", lambda: compare_each([log.get(number).value for number in some], some))
    step("  read", lambda: compare_each([next(iter(log.read(n).records())).value for n in some], some))
    step("  records", lambda: compare_each([next(iter(log.records(n, n + 1))).value for n in some], some))
    step("  find the last time", lambda: find(log, [numbers[-1]]))
    step("  find", lambda: find(log, some))


def compare(records: list[kstore.Record], numbers: range) -> None:
    assert [(record.offset, record.value) for record in records] == [(n, value(n)) for n in numbers]


def compare_scan(scan: Iterable[Any], numbers: range) -> None:
    assert [int(row) for batch in scan for row in batch.column("offset").values] == list(numbers)


def compare_each(values: list[bytes | None], numbers: list[int]) -> None:
    assert values == [value(n) for n in numbers]


def find(log: kstore.PartitionLog, numbers: list[int]) -> None:
    for number in numbers:
        found = log.find(timestamp=TIME + number)
        assert found.offset == number


def main(directory: str, count: int, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    options = {**OPTIONS, "message_timestamp_before_max_ms": 2**63 - 1}
    log = kstore.open(directory, "a", **options)
    for part in range(10):
        numbers = range(part * count // 10, (part + 1) * count // 10)
        step(f"append, {len(numbers)} rolls", lambda numbers=numbers: append(log, numbers))
    assert len(log.segments) == count
    last = count - 1
    step("read the last, 100 times", lambda: [log.get(last) for _ in range(100)])
    print("the writer")
    check(log, range(count))
    held = list(log.segments[:20])  # as a reader that goes on while they are deleted
    step("flush", log.flush)
    step("close", log.close)

    reader = None

    def open_reader() -> None:
        nonlocal reader
        reader = kstore.open(directory)

    step("open for reading", open_reader)
    check(reader, range(count))
    step("refresh", reader.refresh)
    step(
        "open for reading, all of it recovered", lambda: kstore.open(directory, clean=False, recovery_point=0)
    )
    step(
        "the last stable offset, all of it recovered",
        lambda: kstore.open(directory, clean=False, recovery_point=0).last_stable_offset(),
    )

    def open_writer() -> None:
        nonlocal log
        log = kstore.open(directory, "a", retention_bytes=131 * (count // 2), retention_ms=-1, **options)

    step("open for writing", open_writer)
    step("retain nothing more than half", log.retain)
    start = log.log_start_offset
    assert count // 4 < start < count
    assert [segment.base_offset for segment in held] == list(range(20))
    check(log, range(start, count))
    end = (start + count) // 2
    step("truncate half of it", lambda: log.truncate_to(end))
    check(log, range(start, end))
    step("append", lambda: append(log, range(end, end + 10)))
    step("close", log.close)
    step("open for writing, unclean", lambda: reopen(directory, options, range(start, end + 10)))
    step("start anew", lambda: start_anew(directory, options))


def reopen(directory: str, options: dict[str, int], numbers: range) -> None:
    for path in Path(directory).glob("*checkpoint"):
        path.unlink()
    Path(directory, ".kafka_cleanshutdown").unlink()
    with kstore.open(directory, "a", **options) as log:
        assert (log.log_start_offset, log.log_end_offset) == (numbers.start, numbers.stop)


def start_anew(directory: str, options: dict[str, int]) -> None:
    with kstore.open(directory, "a", **options) as log:
        log.truncate_fully_and_start_at(5)
        assert log.append(b"five") == 5


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
