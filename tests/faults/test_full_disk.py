"""A disk of 4 MB fills up: an error that says so, an unchanged log, and writing again later."""

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
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
