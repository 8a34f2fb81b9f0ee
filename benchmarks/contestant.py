"""kstore as a contestant of an outside program, in the form and with the workloads of ../shared/rivals.

    python benchmarks/contestant.py GROUP --data DIR --work DIR [--reps N] [--warm S] [--mib N] [--port P]

GROUP is W1 to W12, or noop. Prints "workload<TAB>figure<TAB>unit" for each sample; exits 3 where kstore has
no such group. Its W1 is the checked path, for it has no other. Writes below --work only, and needs nothing
but kstore and numpy.
"""

import argparse
import os
import resource
import shutil
import socket
import struct
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread
from time import perf_counter, thread_time
from typing import Any, Literal

import numpy as np

import kstore

VALUE, SMALL, LARGE, T0 = 100, 138, 8_800, 1_700_000_000_000
CALL = 1000 * SMALL  # records of a call of extend
LOG = "00000000000000000000.log"


def show(workload: str, figure: float, unit: str) -> None:
    print(f"{workload}\t{figure:.6g}\t{unit}", flush=True)


class Contest:
    def __init__(self, data: Path, work: Path, reps: int, warm: float, mib: int, port: int) -> None:
        self.data, self.work, self.reps, self.warm, self.mib = data, work, reps, warm, mib
        self.port = port
        self.quick = 0 < mib < 1024

    # ---- taking samples ------------------------------------------------------------------------------------

    def measure(self, workload: str, unit: str, sample: Callable[[], float]) -> None:
        """The first sample is dropped, and all of the seconds of warm-up."""
        end = perf_counter() + self.warm
        sample()
        while perf_counter() < end:
            sample()
        for _ in range(self.reps):
            show(workload, sample(), unit)

    def fresh(self) -> Path:
        path = self.work / "log-0"
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        return path

    def log(self, durability: Literal["none", "group"] = "none", **config: Any) -> kstore.LogWriter:
        return kstore.open(self.fresh(), "a", durability=durability, **config)

    # ---- input ---------------------------------------------------------------------------------------------

    def values(self, name: str = "pool.bin") -> Any:
        raw = np.fromfile(self.data / name, dtype=np.uint8)
        rows = raw[: len(raw) // VALUE * VALUE].reshape(-1, VALUE)
        return np.resize(rows, (max(CALL, len(rows) // CALL * CALL), VALUE))

    def segment(self) -> kstore.PartitionLog:
        return kstore.open(self.data / "seg", clean=True)

    # ---- groups --------------------------------------------------------------------------------------------

    def W1(self) -> None:
        for name, records in (("16k", SMALL), ("1m", LARGE)):
            batch = self._batch(records)
            total = min(self.mib or 1024, 512) << 20

            def sample(batch: bytearray = batch, records: int = records, total: int = total) -> float:
                taken = 0.0
                with self.log() as log:
                    for base in range(0, total // len(batch) * records, records):
                        struct.pack_into(">q", batch, 0, base)
                        start = perf_counter()
                        log.append_batches(batch, keep_offsets=True)
                        taken += perf_counter() - start
                    size = log.active.size
                return size / taken / 1e9

            self.measure(f"W1-{name}-log", "GB/s", sample)

    def _batch(self, records: int) -> bytearray:
        with self.log(max_message_bytes=2 << 20) as log:
            log.extend(*self._columns(self.values(), 0, records), batch_bytes=2 << 20)
        return bytearray((self.work / "log-0" / LOG).read_bytes())

    @staticmethod
    def _columns(values: Any, first: int, count: int) -> tuple[Any, Any, Any]:
        numbers = np.arange(first, first + count, dtype=np.int64)
        keys = numbers.astype(">i8").view(np.uint8).reshape(count, 8)
        return values[first % len(values) :][:count], keys, T0 + numbers // 10

    def W2(self) -> None:
        self._extend("W2", "M rec/s", 1e-6, "pool.bin", (1 if self.quick else 4) * 1_000_000)

    def W11(self) -> None:
        for codec in ("lz4", "zstd") if self.quick else ("lz4", "zstd", "snappy", "gzip"):
            records = 300_000 if codec == "gzip" else 1_000_000
            self._extend(f"W11-{codec}", "MB/s", 108e-6, "json.bin", records, compression_type=codec)

    def _extend(self, name: str, unit: str, scale: float, column: str, records: int, **config: Any) -> None:
        values = self.values(column)

        def sample() -> float:
            taken = 0.0
            with self.log(**config) as log:
                for first in range(0, records, CALL):
                    columns = self._columns(values, first, CALL)
                    start = perf_counter()
                    log.extend(*columns)
                    taken += perf_counter() - start
                appended = log.log_end_offset
            return appended / taken * scale

        self.measure(name, unit, sample)

    def W3(self) -> None:
        rows = self._rows(100_000)

        def sample() -> float:
            with self.log() as log:
                append = log.append
                start = perf_counter()
                for value, key, timestamp in rows:
                    append(value, key, timestamp)
                return len(rows) / (perf_counter() - start) / 1e3

        self.measure("W3", "k rec/s", sample)
        self._durable(rows)
        self._grouped(rows)

    def _rows(self, count: int) -> list[tuple[bytes, bytes, int]]:
        values, keys, stamps = self._columns(self.values(), 0, count)
        return list(zip(map(bytes, values), map(bytes, keys), stamps.tolist(), strict=True))

    def _durable(self, rows: list[tuple[bytes, bytes, int]], many: int = 800) -> None:
        with self.log("group") as log:
            for turn in range(self.reps + 1):
                taken = []
                for row in rows[:many]:
                    start = perf_counter()
                    log.append(*row)
                    taken.append(perf_counter() - start)
                if turn:
                    show("W3f", many / sum(taken), "op/s")
                    _percentiles("W3f", taken)

    def _grouped(self, rows: list[tuple[bytes, bytes, int]], threads: int = 8) -> None:
        with self.log("group") as log:

            def work(end: float, done: list[int]) -> None:
                count = 0
                while perf_counter() < end:
                    log.append(*rows[count % len(rows)])
                    count += 1
                done.append(count)

            def sample() -> float:
                start, done = perf_counter(), list[int]()
                _together(lambda: work(start + 1, done), threads)
                return sum(done) / (perf_counter() - start)

            self.measure("W3g", "op/s", sample)

    def W4(self) -> None:
        for codec in ("none", "zstd") if self.quick else ("none", "lz4", "zstd", "snappy", "gzip"):
            log = kstore.open(self.data / f"read-{codec}", clean=True)
            for threads in (1, 2):
                self._walk(f"W4-{codec}-{threads}t", log, threads)

    def _walk(self, name: str, log: kstore.PartitionLog, threads: int = 1) -> None:
        """Of columns: offset, timestamp, sizes of key and value, first byte of the value."""
        expected = log.log_end_offset * threads

        def work(done: list[int]) -> None:
            seen = 0
            for batch in log.scan(["offset", "timestamp", "key", "value"]):
                key, value = batch.column("key"), batch.column("value")
                rows = len(batch.column("offset").values)
                assert rows == len(batch.column("timestamp").values)
                assert (np.diff(key.offsets) > 0).all()
                assert (np.diff(value.offsets) > 0).all()
                value.data[value.offsets[:-1]].max()
                seen += rows
            done.append(seen)

        def sample() -> float:
            start, done = perf_counter(), list[int]()
            _together(lambda: work(done), threads)
            taken = perf_counter() - start
            assert sum(done) == expected
            return expected / taken / 1e6

        self.measure(name, "M rec/s", sample)

    def W5(self) -> None:
        log = self.segment()
        for turn in range(self.reps + 1):
            taken = []
            for offset in _random(log.log_end_offset, 20_000):
                start = perf_counter()
                value = log.get(offset).value
                taken.append(perf_counter() - start)
                assert value is not None
                assert len(value) == VALUE
            if turn:
                _percentiles("W5", taken)

    def W6(self) -> None:
        log = self.segment()
        [segment] = log.segments
        offsets = _random(log.log_end_offset, 100_000)
        times = [T0 + offset // 10 for offset in offsets]
        for name, lookup, wanted in (
            ("offset", segment.offset_index.lookup, offsets),
            ("time", segment.time_index.lookup, times),
        ):
            self.measure(f"W6-{name}", "ns", partial(_each, lookup, wanted, 1e9))
        find = partial(_each, lambda timestamp: log.find(timestamp=timestamp), times[:10_000], 1e6)
        self.measure("W6-find", "us", find)

    def W7(self) -> None:
        def sample() -> float:
            path = self.fresh()
            path.mkdir()
            os.link(self.data / "seg" / LOG, path / LOG)
            start = perf_counter()
            log = kstore.open(path, "a")
            taken = perf_counter() - start
            with log:
                return log.active.size / taken / 1e9

        self.measure("W7", "GB/s", sample)

    def W8(self) -> None:
        for count in (1000,) if self.quick else (1000, 10000):
            path = self.data / f"many{count}-0"

            def sample(path: Path = path, count: int = count) -> float:
                start = perf_counter()
                log = kstore.open(path, clean=True)
                taken = perf_counter() - start
                assert len(log.segments) == count + 1
                return taken

            self.measure(f"W8-{count}", "s", sample)

    def W9(self) -> None:
        log = self.segment()
        size = log.segments[0].size
        for turn in range(self.reps + 2):
            with socket.create_connection(("127.0.0.1", self.port)) as sock:
                cpu, start = thread_time(), perf_counter()
                assert log.send(sock, 0, size).size == size
                sock.shutdown(socket.SHUT_WR)
                assert sock.recv(1) == b""
                taken, cpu = perf_counter() - start, thread_time() - cpu
            if turn > 1:
                show("W9", size / taken / 1e9, "GB/s")
                show("W9-cpu", cpu / size * 1e9, "s/GB")

    def W10(self) -> None:
        for turn in range(2):
            path = self.fresh()
            shutil.copytree(self.data / "compact-0", path)
            with kstore.open(
                path, "a", clean=True, cleanup_policy="compact", log_cleaner_dedupe_buffer_size=128 << 20
            ) as log:
                log.roll()
                before = sum(segment.size for segment in log.segments)
                start = perf_counter()
                log.compact()
                taken = perf_counter() - start
                after = sum(segment.size for segment in log.segments)
            if turn:
                show("W10", before / taken / 1e6, "MB/s")
                show("W10-s", taken, "s")
                show("W10-out", after / (1 << 20), "MiB")
        show("W10-rss", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB")

    def W12(self) -> None:
        log = kstore.open(self.data / "read-none", clean=True)

        def walk(batches: bool) -> float:
            start, seen = perf_counter(), 0
            runs = (batch.unverified() for batch in log.batches()) if batches else (log,)
            for run in runs:
                for record in run:
                    record.offset  # noqa: B018
                    record.timestamp  # noqa: B018
                    record.key  # noqa: B018
                    record.value  # noqa: B018
                    seen += 1
            assert seen == log.log_end_offset
            return seen / (perf_counter() - start) / 1e6

        self.measure("W12", "M rec/s", lambda: walk(False))
        self.measure("W12-nocrc", "M rec/s", lambda: walk(True))


def _percentiles(name: str, taken: list[float]) -> None:
    taken.sort()
    show(f"{name}-p50", taken[len(taken) // 2] * 1e6, "us")
    show(f"{name}-p99", taken[len(taken) * 99 // 100] * 1e6, "us")


def _random(span: int, count: int) -> list[int]:
    drawn: list[int] = np.random.default_rng(7).integers(0, span, count).tolist()
    return drawn


def _each(work: Callable[[int], Any], wanted: list[int], scale: float) -> float:
    """Time of a call, in so many parts of a second."""
    start = perf_counter()
    for each in wanted:
        work(each)
    return (perf_counter() - start) / len(wanted) * scale


def _together(work: Callable[[], None], threads: int) -> None:
    started = [Thread(target=work) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("group")
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--work", type=Path, default=Path("contestant-work"))
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--warm", type=float, default=0)
    parser.add_argument("--mib", type=int, default=0)
    parser.add_argument("--port", type=int, default=0, help="of the sink of W9")
    a = parser.parse_args()
    if a.group == "noop":
        return 0
    run = getattr(Contest(a.data, a.work / "kstore", a.reps, a.warm, a.mib, a.port), a.group, None)
    if run is None or not a.group.startswith("W"):
        return 3
    try:
        run()
    finally:
        shutil.rmtree(a.work / "kstore", ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
