"""No name of a directory leads to another one's checkpoints, or spoils them."""

import os
from pathlib import Path

import pytest

import kstore

RAW = [
    b"plain", b"a b", b"a\tb", b"a\nb", b"a\x0bb", "a\u3000b".encode(), "a\u2028b".encode(), b"a\xffb", b"\xff-3",
    b"-1", b"x--1", b"t-01", b"t-00000000000000000000001", b"t-99999999999999999999", b"a" * 249 + b"-0",
    "é-0".encode(), b"'q\"", b".hid", b"a.b-c_1", "t-\u0661".encode(), b"topic-0.0123abc-delete", b"log", b"log-0",
]  # fmt: skip


def ten(path: str | Path) -> kstore.LogWriter:
    log = kstore.open(path, "a")
    for i in range(10):
        log.append(b"%d" % i)
    return log


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("raw", RAW, ids=ascii)
def test_a_deletion_is_remembered(tmp_path: Path, raw: bytes, shared: bool) -> None:
    if shared:
        (tmp_path / "meta.properties").touch()
        with ten(tmp_path / "beside-0") as log:
            log.delete_records(7)
    path = tmp_path / os.fsdecode(raw)
    with ten(path) as log:
        log.delete_records(4)
    for mode in ("r", "a"):
        with kstore.open(path, mode) as log:
            assert (log.log_start_offset, log.recovery.clean, log.recovery.findings) == (4, True, [])
    if shared:
        assert kstore.open(tmp_path / "beside-0").log_start_offset == 7


@pytest.mark.parametrize(
    ("one", "other"),
    [("foo", "foo-0"), ("a b", "a_b"), ("foo-0", "foo-00"), ("my log", "my_log-0"), ("log", "log-0")],
)
def test_two_directories_share_nothing(tmp_path: Path, one: str, other: str) -> None:
    (tmp_path / "meta.properties").touch()
    for name in (one, other):
        ten(tmp_path / name).close()
    with kstore.open(tmp_path / one, "a") as log:
        log.delete_records(7)
    assert kstore.open(tmp_path / other).log_start_offset == 0
    with kstore.open(tmp_path / one, "a") as log:
        log.truncate_fully_and_start_at(50)
        log.append(b"x")
        log.delete_records(51)
    with kstore.open(tmp_path / other, "a") as log:
        assert [record.offset for record in log] == list(range(10))


def test_a_directory_that_was_renamed(tmp_path: Path) -> None:
    """Where it keeps its own checkpoints, a new name forgets nothing."""
    with ten(tmp_path / "orders-0") as log:
        log.delete_records(4)
    (tmp_path / "orders-0").rename(tmp_path / "orders of last year")
    with kstore.open(tmp_path / "orders of last year", "a") as log:
        assert (log.log_start_offset, log.recovery.clean) == (4, True)
        log.delete_records(6)
    assert kstore.open(tmp_path / "orders of last year").log_start_offset == 6


def test_a_damaged_line_costs_the_others_nothing(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    for name in ("a-0", "b-0", "c-0"):
        with ten(tmp_path / name) as log:
            log.delete_records(3)
    path = tmp_path / "log-start-offset-checkpoint"
    path.write_text(path.read_text().replace("b 0 3", "b 0 3 3"))
    starts = [kstore.open(tmp_path / name).log_start_offset for name in ("a-0", "b-0", "c-0")]
    assert starts == [3, 0, 3]
    assert "nothing is known of b-0" in str(kstore.open(tmp_path / "b-0").recovery)
    with kstore.open(tmp_path / "c-0", "a") as log:
        log.delete_records(5)
    starts = [kstore.open(tmp_path / name).log_start_offset for name in ("a-0", "b-0", "c-0")]
    assert starts == [3, 0, 5]
