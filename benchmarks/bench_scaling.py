"""Cost of a unit of work against size of log, segments, size of batch, size of value, threads. kstore alone.

KSTORE_BENCH_SCALE_MIB is the largest log (256; 20480 on demand: it is written once, and needs that much
disk)."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import kstore
from benchmarks import data as fixtures
from benchmarks.data import BATCH_BYTES, BATCH_RECORDS, ROWS, T0, Columns, Data, columns, targets
from benchmarks.scaling import Curve, logarithm, measure

MIB = int(os.environ.get("KSTORE_BENCH_SCALE_MIB", "256"))
SEGMENTS = int(os.environ.get("KSTORE_BENCH_SCALE_SEGMENTS", "10000"))
LOOKUPS = 2_000
STRETCH = 64 * BATCH_RECORDS  # records that are read at a time: 1 MiB
VALUES = (1, 10, 100, 1_000, 10_000, 100_000)
BATCHES = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1000 << 10)
THREADS = (1, 2, 4, 8)

Draw = Callable[..., Curve]


@pytest.fixture
def draw(curves: list[Curve]) -> Draw:
    def add(*args: Any, **more: Any) -> Curve:
        curve = Curve(*args, **more)
        curves.append(curve)
        return curve

    return add


@contextmanager
def new_log(data: Data, **config: Any) -> Iterator[kstore.LogWriter]:
    path = data.work / "scaling" / "log-0"
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    try:
        with kstore.open(path, "a", **config) as log:
            yield log
    finally:
        shutil.rmtree(path.parent)


def powers(end: int) -> list[int]:
    """1, 4, 16 ... and the end."""
    return [*(4**i for i in range(20) if 4**i < end), end]


def growing(log: kstore.LogWriter, rows: Columns, records: int) -> Callable[[], int]:
    """Whole batches appended to a log of such; gives bytes."""

    def more() -> int:
        log.extend(rows.values[:records], rows.keys[:records], rows.timestamps(log.log_end_offset, records))
        return records // BATCH_RECORDS * BATCH_BYTES

    return more


def getting(log: kstore.PartitionLog) -> Callable[[], int]:
    return over(log, lambda wanted: [log.get(offset).value for offset in wanted])


def finding(log: kstore.PartitionLog) -> Callable[[], int]:
    return over(log, lambda wanted: [log.find(timestamp=T0 + offset // 10) for offset in wanted])


def over(log: kstore.PartitionLog, work: Callable[[list[int]], Any]) -> Callable[[], int]:
    wanted: list[int] = targets(1, LOOKUPS, log.log_end_offset).tolist()

    def turn() -> int:
        work(wanted)
        return len(wanted)

    return turn


def walking(log: kstore.PartitionLog, start: int, stop: int | None = None) -> Callable[[], int]:
    def turn() -> int:
        seen = 0
        for record in log.records(start, stop):
            record.value  # noqa: B018
            seen += 1
        return seen

    return turn


def bench_size_of_log(data: Data, draw: Draw) -> None:
    """1 MiB to KSTORE_BENCH_SCALE_MIB in segments of 1 GiB: one log that is written on and on, looked at on
    the way."""
    rows = columns(data)
    append = draw("extend", "byte", "bytes of log", "calls of up to 1 MiB more to a log of that size")
    walk = draw("iterate", "record", "bytes of log", "the last 1 MiB of records")
    get = draw("get", "record", "bytes of log", "random offsets; fair is the logarithm", fair=logarithm)
    find = draw("find", "lookup", "bytes of log", "random timestamps; fair is the logarithm", fair=logarithm)
    headers = draw("headers", "batch", "bytes of log", "all batch headers of the active segment")
    beside = draw(
        "open beside writer", "open", "bytes of log", "no clean marker: walks the active segment's headers"
    )
    opening = draw("open", "open", "bytes of log", "read-only, after a clean close")
    path = data.work / "scaling" / "log-0"
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    for mib in powers(MIB):
        with kstore.open(path, "a") as log:
            more = growing(log, rows, STRETCH)
            while log.log_end_offset // BATCH_RECORDS * BATCH_BYTES < (mib << 20) - (9 << 20):
                more()
            while log.log_end_offset // BATCH_RECORDS * BATCH_BYTES < mib << 20:
                growing(log, rows, BATCH_RECORDS)()
            append.add(mib << 20, measure(growing(log, rows, min(STRETCH, mib * BATCH_RECORDS * 4))))
            size = log.log_end_offset // BATCH_RECORDS * BATCH_BYTES
            walk.add(size, measure(walking(log, max(log.log_end_offset - STRETCH, 0))))
            get.add(size, measure(getting(log)))
            find.add(size, measure(finding(log)))
            headers.add(size, measure(lambda: len(log.segments[-1].read_headers()), rounds=3))
            beside.add(size, measure(lambda: bool(kstore.open(path).log_end_offset)))
        opening.add(size, measure(lambda: bool(kstore.open(path).log_end_offset)))
    shutil.rmtree(path.parent)


def bench_segments(data: Data, draw: Draw) -> None:
    """1 to 10,000 sealed segments of ten records each, after a clean shutdown."""
    opening = draw("open", "segment", "segments", "read-only, from the path")
    writing = draw("open for writing", "segment", "segments", "and closed again")
    get = draw("get", "record", "segments", "random offsets; fair is the logarithm", fair=logarithm)
    find = draw("find", "lookup", "segments", "random timestamps; fair is the logarithm", fair=logarithm)
    walk = draw("iterate", "record", "segments", "all records")
    counts = [10**i for i in range(6) if 10**i < SEGMENTS] + [SEGMENTS]
    root = data.work / "scaling"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    fixtures.write(root, [fixtures.Shape(f"sealed{count}", 10, 1, count + 1) for count in counts])
    for count in counts:
        path = root / f"sealed{count}-0"

        def open_all(path: Path = path) -> int:
            return len(kstore.open(path).segments)

        def open_to_write(path: Path = path) -> int:
            with kstore.open(path, "a") as log:
                return len(log.segments)

        opening.add(count, measure(open_all))
        log = kstore.open(path)
        get.add(count, measure(getting(log)))
        find.add(count, measure(finding(log)))
        walk.add(count, measure(walking(log, 0), rounds=3))
        writing.add(count, measure(open_to_write, rounds=3))
    shutil.rmtree(root)


def bench_sizes_of_batches(data: Data, draw: Draw) -> None:
    """Batches of 1 KiB to 1,000 KiB of records of 108 bytes."""
    rows = columns(data)
    append = draw("extend", "record", "bytes of batch", "calls of 138,000 records; no sync")
    walk = draw("iterate", "record", "bytes of batch", "138,000 records")
    get = draw("get", "byte", "bytes of batch", "random offsets; a batch is read, checked and walked")
    for size in BATCHES:
        with new_log(data) as log:

            def more(log: kstore.LogWriter = log, size: int = size) -> int:
                stamps = rows.timestamps(log.log_end_offset, ROWS)
                log.extend(rows.values, rows.keys, stamps, batch_bytes=size)
                return ROWS

            append.add(size, measure(more, rounds=3))
            walk.add(size, measure(walking(log, 0, ROWS), rounds=3))
            few: list[int] = targets(1, 200, log.log_end_offset).tolist()

            def read(log: kstore.LogWriter = log, size: int = size, few: list[int] = few) -> int:
                for offset in few:
                    log.get(offset).value  # noqa: B018
                return size * len(few)

            get.add(size, measure(read))


def bench_sizes_of_values(data: Data, draw: Draw) -> None:
    """Values of 1 to 100,000 bytes, in batches of 16 KiB at least."""
    one = draw("append", "byte", "bytes of value", "a call a record; a byte on disk")
    many = draw("extend", "byte", "bytes of value", "lists; a byte on disk")
    walk = draw("iterate", "byte", "bytes of value", "a byte on disk")
    for size in VALUES:
        values = [bytes([i % 251]) * size for i in range(max(20, min(20_000, 4_000_000 // size)))]
        for curve, batched in ((one, False), (many, True)):
            with new_log(data) as log:

                def more(
                    log: kstore.LogWriter = log, values: list[bytes] = values, batched: bool = batched
                ) -> int:
                    before = log.active.size
                    if batched:
                        log.extend(values)
                    else:
                        for value in values:
                            log.append(value)
                    return log.active.size - before

                curve.add(size, measure(more, rounds=5))
                if batched:
                    walked, log_bytes = walking(log, 0), log.active.size

                    def read(walked: Callable[[], int] = walked, log_bytes: int = log_bytes) -> int:
                        walked()
                        return log_bytes

                    walk.add(size, measure(read, rounds=5))


def bench_threads(data: Data, draw: Draw) -> None:
    """1 to 8 threads; time of all over units of all, so half on two cores is the best there is."""
    rows = columns(data)
    reading = kstore.open(data.batched.path)
    count = min(100 * BATCH_RECORDS, reading.log_end_offset)
    walk = draw(
        "iterate", "record", "threads", "each reads the same 1.6 MB; Python objects, so one at a time"
    )
    get = draw("get", "record", "threads", "random offsets; time a record of all")
    append = draw("extend", "record", "threads", "calls of 13,800 records to one log")
    durable = draw("append, durable", "record", "threads", 'durability="group": waiting threads share a sync')

    def shared(work: Callable[[], int], threads: int) -> Callable[[], int]:
        def turn() -> int:
            done: list[int] = []
            started = [Thread(target=lambda: done.append(work())) for _ in range(threads)]
            for thread in started:
                thread.start()
            for thread in started:
                thread.join()
            assert len(done) == threads
            return sum(done)

        return turn

    few = 100 * BATCH_RECORDS
    for threads in THREADS:
        walk.add(threads, measure(shared(walking(reading, 0, count), threads)))
        get.add(threads, measure(shared(getting(reading), threads)))
        with new_log(data) as log:

            def more(log: kstore.LogWriter = log) -> int:
                log.extend(rows.values[:few], rows.keys[:few], rows.timestamps(0, few))
                return few

            append.add(threads, measure(shared(more, threads)))
        with new_log(data, durability="group") as log:

            def sure(log: kstore.LogWriter = log) -> int:
                for _ in range(50):
                    log.append(b"v" * 100, b"k" * 8)
                return 50

            durable.add(threads, measure(shared(sure, threads)))
