"""Zeros that a log with durable appends has written behind its end: neither readers nor recovery take them for
records or for damage."""

import warnings
from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import times
from tests.shared.processes import ended, started

LOG = f"{0:020d}.log"


def durable(directory: Path, *, shared: bool = False, **options: object) -> kstore.LogWriter:
    return kstore.open(directory, "a", durability="group", shared=shared, **options)  # type: ignore[call-overload, no-any-return]


def left(directory: Path) -> tuple[kstore.LogWriter, int]:
    """A log that was not closed, and the size of its batches."""
    log = durable(directory)
    for n in range(3):
        log.append(b"%d" % n)
    size = log.active.size
    log.abandon()
    return log, size


@pytest.mark.parametrize("shared", [False, True])
def test_rolling_and_closing_cut_them_off(ram: Path, *, shared: bool) -> None:
    path = ram / "t-0"
    with durable(path, shared=shared) as log:
        for first in (0, 1):
            log.append(b"x" * 1000)
            file = path / f"{first:020d}.log"
            assert file.stat().st_size > log.active.size
            reader = kstore.open(path)
            assert (reader.segments[-1].size, len(list(reader))) == (log.active.size, first + 1)
            size = log.active.size
            if first == 0:
                log.roll()
                assert file.stat().st_size == size
    assert file.stat().st_size == size


def test_they_are_no_finding(ram: Path) -> None:
    path = ram / "t-0"
    _, size = left(path)
    assert not any((path / LOG).read_bytes()[size:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mode in ("r", "a"):
            log = kstore.open(path, mode)  # type: ignore[call-overload]
            assert not log.recovery.findings
            assert not log.recovery.truncated_bytes
            assert [record.value for record in log] == [b"0", b"1", b"2"]
    assert (path / LOG).stat().st_size == size
    assert not list(path.glob("*.cut"))


def test_a_torn_batch_within_them_is_found(ram: Path) -> None:
    path = ram / "t-0"
    _, size = left(path)
    content = (path / LOG).read_bytes()
    with (path / LOG).open("r+b") as file:
        file.seek(size)
        file.write(content[: size // 3 - 5])
    assert [finding.kind for finding in kstore.open(path).recovery.findings] == ["corrupt_batch"]
    with kstore.open(path, "a") as log:
        assert log.append(b"3") == 3
        assert [record.value for record in log] == [b"0", b"1", b"2", b"3"]


def test_zeros_before_a_sound_batch_are_a_loss(ram: Path) -> None:
    path = ram / "t-0"
    _, size = left(path)
    with (path / LOG).open("r+b") as file:
        file.seek(size // 3)
        file.write(bytes(size // 3))
    log = kstore.open(path)
    assert "1 sound batch" in str(log.recovery.losses)
    with pytest.warns(kstore.DataLossWarning):
        kstore.open(path, "a").close()
    assert list(path.glob("*.cut"))


@pytest.mark.parametrize("shared", [False, True])
def test_readers_beside_the_writer(ram: Path, *, shared: bool) -> None:
    """Batches of several pages: a reader may see a part of one."""
    path, count = ram / "t-0", times(1500)

    def write() -> None:
        with durable(path, shared=shared, internal_segment_bytes=4 << 20) as log:
            for n in range(count):
                log.append(b"%d " % n + b"v" * (0 if n % 3 else 20_000))

    durable(path, shared=shared).close()
    child = started(write)
    follower = kstore.open(path).follow(0, timeout=60)
    end = 0
    while end < count:
        assert next(follower).value.split()[0] == b"%d" % end  # type: ignore[union-attr]
        if end % 7 == 0:
            log = kstore.open(path)
            assert not log.recovery.findings, log.recovery.findings
            assert not log.recovery.losses
            assert log.log_end_offset > end
        end += 1
    assert ended(child) == 0
