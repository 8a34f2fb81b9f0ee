"""Which files of a directory are segments, and what a log does with files that only look like one."""

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.unit.logs import filled, flip, offsets

STRANGE = [
    f"{2**63:020d}.log", f"{2**63:020d}.log.swap", f"{2**64:020d}.log", "00.log", "0" * 21 + ".log", "4.log",
    "+0000000000000000004.log", "-4.log", "0000000000000000000x.log", "00000000000000000001log", f"{1:020d}.",
    f"{1:020d}", f"{1:020d}.lo", "größe", os.fsdecode(b"\xff\xfe"), "notes.index", "my.notes.timeindex",
    "99999999999999999999.txnindex", "0.log.swap",
]  # fmt: skip


@pytest.mark.parametrize("mode", ["r", "a"])
def test_kafka_reads_names_of_20_digits_only(tmp_path: Path, mode: Any) -> None:
    """Kafka makes a number of any name, and opens the file that this number is called.

    A file with another name is no segment, replaces none and is not deleted. A .log or an index is reported.
    """
    filled(tmp_path / "t-0", 20).close()
    logs = sorted((tmp_path / "t-0").glob("*.log"))
    content = logs[1].read_bytes()
    for name in STRANGE:
        odd = tmp_path / "t-0" / name
        odd.write_bytes(content)
        with kstore.open(tmp_path / "t-0", mode) as log:
            assert offsets(log) == list(range(20))
            found = [(finding.kind, finding.file) for finding in log.recovery.findings]
            assert found == ([("orphan", str(odd))] if name.endswith((".log", "index", ".swap")) else []), (
                name
            )
            log.refresh()
            assert len(log.segments) == len(logs)
        assert odd.read_bytes() == content
        odd.unlink()


def test_many_segments_and_other_files(tmp_path: Path) -> None:
    """They are listed in the order of their offsets, whatever the file system's order is."""
    filled(tmp_path / "t-0", 90, internal_segment_bytes=110).close()
    for i in reversed(range(90)):
        (tmp_path / "t-0" / f"other {i}").touch()
    log = kstore.open(tmp_path / "t-0")
    assert [segment.base_offset for segment in log.segments] == list(range(90))
    assert offsets(log) == list(range(90))


def test_a_misnamed_segment_is_not_taken_in_by_a_refresh(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"x")
        reader = kstore.open(log.path)
        (tmp_path / "t-0" / "1.log").write_bytes(kstore.encode_batch([(1, None, b"v", None)], base_offset=1))
        assert not reader.refresh()
        assert reader.log_end_offset == 1


def test_a_stray_swap_of_a_swap_replaces_nothing(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"x"] * 5)
    (path,) = (tmp_path / "t-0").glob("*.log")
    shutil.copy(path, f"{path}.swap.swap")
    for first in (5, 55, 105):
        with kstore.open(tmp_path / "t-0", "a") as log:
            assert log.extend([b"y"] * 50) == range(first, first + 50)
    assert len(list(kstore.open(tmp_path / "t-0"))) == 155


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("has_index", [True, False])
def test_a_link_to_nothing_is_called_so(tmp_path: Path, mode: Any, which: int, has_index: bool) -> None:
    filled(tmp_path / "t-0").close()
    file = sorted((tmp_path / "t-0").glob("*.log"))[which]
    file.unlink()
    if not has_index:
        file.with_suffix(".index").unlink()
    file.symlink_to(tmp_path / "gone.log")
    with (
        pytest.raises(OSError, match=r"symbolic link to .*gone\.log, where no file is") as caught,
        kstore.open(tmp_path / "t-0", mode) as log,
    ):
        list(log)
    assert caught.value.errno == errno.EINVAL
    assert not isinstance(caught.value, FileNotFoundError)  # the log is there


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("which", ["first", "middle"])
def test_a_view_of_a_damaged_log_stays_at_the_damage(tmp_path: Path, which: str) -> None:
    """Neither refresh nor follow goes on with segments that recovery would delete."""
    filled(tmp_path / "t-0", 20).abandon()
    damaged = sorted((tmp_path / "t-0").glob("*.log"))[1]
    flip(damaged, 70 if which == "first" else damaged.stat().st_size // 2)
    # The background may have stored a recovery point behind it.
    with kstore.open(tmp_path / "t-0", recovery_point=0) as reader:
        end = reader.log_end_offset
        assert 4 <= end < 8
        follower = reader.follow(0, timeout=0.05)
        assert offsets(follower) == list(range(end))
        (tmp_path / "t-0" / "recovery-point-offset-checkpoint").touch()
        damaged.touch()
        with contextlib.suppress(StopIteration):
            assert next(follower) is None
        reader.refresh()
        assert reader.log_end_offset == end
        assert offsets(reader) == list(range(end))


def test_a_follower_stops_at_a_marker_that_recovery_cuts_off(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"0")
        log.flush()
        reader = kstore.open(log.path)
        follower = reader.follow(0, timeout=0.05)
        assert next(follower).offset == 0
        marker = kstore.encode_batch(
            [(-1, b"\xff\xff\0\1", b"\0" * 6, ())],
            producer_id=7,
            producer_epoch=0,
            transactional=True,
            control=True,
            base_offset=1,
        )
        plain = kstore.encode_batch([(1, None, b"behind", None)], base_offset=2)
        path = Path(log.path) / f"{0:020d}.log"
        with path.open("ab") as file:
            file.write(marker + plain)
        assert list(follower) == []
        reader.refresh()
        assert reader.log_end_offset == kstore.open(log.path, clean=False).log_end_offset == 1
        log.abandon()
