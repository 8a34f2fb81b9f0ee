"""One writer that appends, rolls, retains; readers in its own threads and in other processes (for KSTORE_STRESS seconds)."""

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

from reading import check, value_of

import kstore

SECONDS = float(os.environ.get("KSTORE_STRESS", "4"))


def test_readers_beside_a_writer(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    log = kstore.open(
        directory,
        "a",
        internal_segment_bytes=200_000,
        index_interval_bytes=1000,
        retention_bytes=2_000_000,
        file_delete_delay_ms=0,
    )
    log.append(value_of(0, 10))
    until = time.monotonic() + SECONDS
    errors: list[BaseException] = []
    seen = [0, 0, 0]

    def guarded(work: object, *args: int) -> threading.Thread:
        def run() -> None:
            try:
                work(*args)  # type: ignore[operator]
            except BaseException as e:  # noqa: BLE001 - reported by the test
                errors.append(e)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def write() -> None:
        rng = random.Random(1)
        number = 1
        while time.monotonic() < until:
            if rng.random() < 0.5:
                log.append(value_of(number, rng.randrange(300)))
                number += 1
            else:
                many = rng.randrange(1, 200)
                log.extend([value_of(number + i, 100) for i in range(many)], batch_bytes=2000)
                number += many
            if rng.random() < 0.02:
                log.retain()
            if rng.random() < 0.01:
                log.roll()

    def iterate(which: int) -> None:
        while time.monotonic() < until:
            last = -1
            for record in log:
                check(record)
                assert record.offset > last
                last = record.offset
                seen[which] += 1

    def jump() -> None:
        rng = random.Random(2)
        while time.monotonic() < until:
            start, end = log.log_start_offset, log.log_end_offset
            offset = rng.randrange(start, end)
            try:
                record = log.get(offset)
                check(record)
                assert record.offset == offset
                found = log.find(timestamp=record.timestamp)
                assert found is None or found.offset <= offset or found.timestamp >= record.timestamp
            except kstore.OffsetOutOfRangeError:
                assert log.log_start_offset > offset
            seen[2] += 1

    readers = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("reading.py")), str(directory), str(SECONDS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(kstore.__file__).parents[1])},
        )
        for _ in range(2)
    ]
    threads = [guarded(write), guarded(iterate, 0), guarded(iterate, 1), guarded(jump)]
    for thread in threads:
        thread.join()
    for reader in readers:
        out, err = reader.communicate(timeout=60)
        assert reader.returncode == 0, err.decode()
        assert int(out) > 0
    assert not errors, errors
    assert min(seen) > 0
    log.close()
    for record in kstore.open(directory):
        check(record)
