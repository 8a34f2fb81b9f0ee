"""Appends and syncs fail, or a disk of 4 MB fills up: an error that says so, an unchanged log, and writing
again, at once or after the log was opened again."""

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.testing import failing
from tests.helpers.forge import T0
from tests.helpers.processes import run_python


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = tmp_path / "disk"
    mounted.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mounted)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.decode().strip()}")
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


def fill(log: kstore.LogWriter, size: int) -> None:
    while True:
        log.append(os.urandom(size))


@pytest.mark.parametrize("size", [1000, 100_000])
def test_a_full_disk(small_disk: Path, size: int) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(500_000))
    log = kstore.open(small_disk / "t-0", "a", internal_segment_bytes=1_000_000)
    with pytest.raises(OSError, match="space") as caught:
        fill(log, size)
    assert caught.value.errno == errno.ENOSPC
    for attempt in (lambda: log.append(bytes(size)), lambda: log.extend([bytes(size)] * 100)):
        end = log.log_end_offset
        try:
            attempt()
        except OSError as e:
            assert e.errno == errno.ENOSPC
            assert log.log_end_offset - end < 100  # batches that still found room stay
    count = log.log_end_offset
    assert [r.offset for r in log] == list(range(count))
    ballast.unlink()
    assert log.append(b"there is room") == count
    log.close()
    again = kstore.open(small_disk / "t-0")
    assert again.recovery.clean
    assert [r.offset for r in again] == list(range(count + 1))
    assert again.get(count).value == b"there is room"


KILLED = """
import os, sys, kstore
log = kstore.open(sys.argv[1], "a", shared=sys.argv[2] == "True", internal_segment_bytes=20_000)
for i in range(500):
    log.append(b"x" * 100)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("shared", [False, True])
def test_recovery_on_a_full_disk(small_disk: Path, shared: bool) -> None:
    ballast = small_disk / "ballast"
    assert run_python(KILLED, small_disk / "t-0", shared).returncode == -9
    with contextlib.suppress(OSError), ballast.open("wb", 0) as file:
        while True:
            file.write(bytes(4096))
    for _ in range(2):
        with pytest.raises(OSError, match="space") as caught:
            kstore.open(small_disk / "t-0", "a", shared=shared)
        assert caught.value.errno == errno.ENOSPC
    assert kstore.open(small_disk / "t-0").log_end_offset == 500
    ballast.unlink()
    with kstore.open(small_disk / "t-0", "a", shared=shared) as log:
        assert log.append(b"there is room") == 500


def test_a_full_disk_is_nothing_to_reopen_for(ram: Path) -> None:
    """Whatever call of an append finds a full disk: the log is unchanged, and appends once there is room."""
    with kstore.open(ram / "t-0", "a", internal_segment_bytes=1000, index_interval_bytes=100) as log:
        expected = [(log.append(b"%04d" % i) and b"%04d" % i) or b"%04d" % i for i in range(3)]
        for how in ("error", "half"):
            for nth in range(1, 40):
                before = [r.value for r in log]
                try:
                    with failing(
                        nth, errno.ENOSPC, how, this_thread=True
                    ):  # a sync that fails in the background is for good
                        log.append(b"%04d" % len(expected))
                except OSError as e:
                    assert e.errno == errno.ENOSPC
                    assert [r.value for r in log] == before
                else:
                    expected.append(b"%04d" % len(expected))
                assert log.append(b"%04d" % len(expected)) == len(expected)
                expected.append(b"%04d" % len(expected))
        assert [r.value for r in log] == expected
    assert [r.value for r in kstore.open(ram / "t-0")] == expected


@pytest.mark.parametrize("shared", [False, True])
def test_batches_that_found_room_stay(ram: Path, shared: bool) -> None:
    """A follower in another process may have read them before the write of the others failed."""
    values = [b"%d" % i + b"." * 50 for i in range(40)]
    with kstore.open(ram / "t-0", "a", shared=shared) as log:
        log.append(values[0])
        with pytest.raises(OSError, match="space"), failing(1, errno.ENOSPC, "half"):
            log.extend(values[1:], batch_bytes=500)
        count = log.log_end_offset
        assert 1 < count < len(values)
        assert [r.value for r in log] == [r.value for r in kstore.open(ram / "t-0")] == values[:count]
    with kstore.open(ram / "u-0", "a", shared=shared) as log:
        batches = b"".join(
            kstore.encode_batch([(T0, None, value, None)], producer_id=1, producer_epoch=0, base_sequence=i)
            for i, value in enumerate(values[:4])
        )
        log.append(values[-1])
        with pytest.raises(OSError, match="space"), failing(1, errno.ENOSPC, "half"):
            log.append_batches(batches)
        assert log.log_end_offset == 3
        log.append_batches(batches)  # as a producer does, which sends again what was not acknowledged
        assert [r.value for r in log] == [values[-1], *values[:4]]


def test_after_a_failed_sync_nothing_is_written(ram: Path) -> None:
    log = kstore.open(ram / "t-0", "a")
    log.append(b"one")
    for nth in range(1, 20):
        try:
            with failing(nth, errno.EIO):
                log.flush()
        except OSError:
            break
    with pytest.raises(kstore.LogFailedError, match="opened again"):
        log.append(b"two")
    with pytest.raises(kstore.LogFailedError):
        log.flush()
    assert [r.value for r in log] == [b"one"]
    log.close()
    with kstore.open(ram / "t-0", "a") as again:
        assert not again.recovery.clean
        assert again.append(b"two") == 1
