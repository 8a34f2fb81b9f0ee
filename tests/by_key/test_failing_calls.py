"""System calls fail, a process is killed, and there are few descriptors: key files are made or not, and never wrong."""

import contextlib
import errno
import multiprocessing
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from kstore.testing import count_calls, failing
from tests.helpers.calls import some_calls

OPTIONS = {"internal_segment_bytes": 700, "file_delete_delay_ms": 0, "cleanup_policy": "compact,delete"}
KEYS = [b"key-%d" % i for i in range(40)]


def opened(path: Path) -> kstore.LogWriter:
    return kstore.open(path, "a", **OPTIONS)


def fill(log: kstore.LogWriter) -> None:
    for i in range(24):
        log.extend([b"%d" % i] * 5, keys=[KEYS[(7 * i + j) % 40] for j in range(5)])


def check(log: kstore.PartitionLog) -> None:
    last = {record.key: record for record in log}
    for key in [*KEYS, b"nobody"]:
        assert log.last(key) == last.get(key)


def made(path: Path) -> None:
    with opened(path) as log:
        log.make_key_files()
        check(log)


def replaced(path: Path) -> None:
    with opened(path) as log:
        log.make_key_files()
        log.erase(keys=KEYS[:3], reason="asked")
        log.truncate_to(log.log_end_offset - 20)
        check(log)
        log.make_key_files()
        check(log)


@pytest.mark.parametrize("work", [made, replaced])
@pytest.mark.parametrize(
    ("error", "how"), [(errno.EIO, "error"), (errno.ENOSPC, "half"), (errno.EINTR, "error")]
)
def test_any_call_fails(ram: Path, work: Callable[[Path], None], error: int, how: str) -> None:
    def ready(name: str) -> Path:
        with opened(ram / name) as log:
            fill(log)
        return ram / name

    total = count_calls(lambda: work(ready("whole-0")))
    before = count_calls(lambda: ready("none-0"))
    for nth in some_calls(total - before, 3 if work is made else 9, (work.__name__, error)):
        path = ready(f"t{nth}-0")
        with contextlib.suppress(OSError, kstore.KstoreError), failing(nth, error, how):
            work(path)
        check(kstore.open(path))
        with opened(path) as log:
            assert not list(path.glob("*.tmp"))
            check(log)
            assert all(each.keys >= 0 for each in log.make_key_files())
            check(log)


def test_killed_at_any_call(ram: Path) -> None:
    def child(path: Path, nth: int) -> None:
        log = opened(path)
        with failing(nth, how="kill_half"):
            log.make_key_files()
        os._exit(0)

    with opened(ram / "t-0") as log:
        fill(log)
    path, nth, killed = ram / "t-0", 0, True
    context = multiprocessing.get_context("fork")
    while killed and nth < 200:
        nth += 1
        for file in path.glob("*.keys"):
            file.unlink()
        process = context.Process(target=child, args=(path, nth))
        process.start()
        process.join(60)
        killed = process.exitcode != 0
        check(kstore.open(path))
        with opened(path) as log:
            assert not list(path.glob("*.tmp"))
            check(log)
    assert 20 < nth < 200


def few_descriptors(path: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
    with opened(path) as log:
        for i in range(400):
            log.append(b"v" * 600, key=b"key-%d" % i)
        assert len(log.segments) == 400
        log.make_key_files()
        for way in (log, kstore.open(path)):
            assert way.last(b"nobody") is None
            for i in range(400):
                record = way.last(b"key-%d" % i)
                assert record is not None
                assert record.offset == i
    os._exit(7)


def test_more_segments_than_descriptors(ram: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=few_descriptors, args=(ram / "t-0",))
    process.start()
    process.join(200)
    assert process.exitcode == 7
