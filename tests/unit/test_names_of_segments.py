"""Which files of a directory are segments, and what is said of those that only look so."""

import contextlib
import errno
from pathlib import Path

import pytest

import kstore

FIRST = "0" * 20


def filled(path: Path) -> list[Path]:
    with kstore.open(path, "a", internal_segment_bytes=500) as log:
        for i in range(20):
            log.append(b"%02d" % i * 20)
    return sorted(path.glob("*.log"))


@pytest.mark.parametrize("name", ["00.log", "0" * 21 + ".log", "4.log", "+0000000000000000004.log", "-4.log"])
@pytest.mark.parametrize("mode", ["r", "a"])
def test_kafka_reads_names_of_20_digits_only(tmp_path: Path, name: str, mode: str) -> None:
    """Kafka makes a number of the name, and opens the file that this number is called."""
    logs = filled(tmp_path / "t-0")
    odd = tmp_path / "t-0" / name
    odd.write_bytes(logs[1].read_bytes())
    with kstore.open(tmp_path / "t-0", mode) as log:
        assert [record.offset for record in log] == list(range(20))
        (finding,) = log.recovery.findings
        assert (finding.kind, finding.file) == ("orphan", str(odd))
        log.refresh()
        assert len(log.segments) == len(logs)
    assert odd.read_bytes() == logs[1].read_bytes()


def test_a_misnamed_segment_is_not_taken_in_by_a_refresh(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"x")
        reader = kstore.open(log.path)
        (tmp_path / "t-0" / "1.log").write_bytes(kstore.encode_batch([(1, None, b"v", None)], base_offset=1))
        assert not reader.refresh()
        assert reader.log_end_offset == 1


@pytest.mark.parametrize("name", ["notes.index", "my.notes.timeindex", "99999999999999999999.txnindex"])
def test_what_is_no_index_by_name_is_not_deleted(tmp_path: Path, name: str) -> None:
    filled(tmp_path / "t-0")
    (tmp_path / "t-0" / name).write_bytes(b"mine")
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert [finding.kind for finding in log.recovery.findings] == ["orphan"]
    assert (tmp_path / "t-0" / name).read_bytes() == b"mine"


def test_a_misnamed_swap_replaces_nothing(tmp_path: Path) -> None:
    logs = filled(tmp_path / "t-0")
    (tmp_path / "t-0" / "0.log.swap").write_bytes(logs[0].read_bytes())
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert [record.offset for record in log] == list(range(20))
        assert [finding.kind for finding in log.recovery.findings] == ["orphan"]
    assert (tmp_path / "t-0" / "0.log.swap").exists()


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize("which", [0, -1])
def test_a_link_to_nothing_is_called_so(tmp_path: Path, mode: str, which: int) -> None:
    logs = filled(tmp_path / "t-0")
    logs[which].unlink()
    logs[which].symlink_to(tmp_path / "gone.log")
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
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=500) as log:
        for i in range(20):
            log.append(b"%02d" % i * 20)
        log.abandon()
    logs = sorted((tmp_path / "t-0").glob("*.log"))
    damaged = logs[1]
    data = bytearray(damaged.read_bytes())
    position = 70 if which == "first" else len(data) // 2
    data[position] ^= 1
    damaged.write_bytes(data)
    # The background may have stored a recovery point behind it.
    with kstore.open(tmp_path / "t-0", recovery_point=0) as reader:
        end = reader.log_end_offset
        assert 4 <= end < 8
        follower = reader.follow(0, timeout=0.05)
        assert [record.offset for record in follower] == list(range(end))
        (tmp_path / "t-0" / "recovery-point-offset-checkpoint").touch()
        damaged.touch()
        with contextlib.suppress(StopIteration):
            assert next(follower) is None
        reader.refresh()
        assert reader.log_end_offset == end
        assert [record.offset for record in reader] == list(range(end))


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
        path = Path(log.path) / (FIRST + ".log")
        with path.open("ab") as file:
            file.write(marker + plain)
        assert list(follower) == []
        reader.refresh()
        assert reader.log_end_offset == kstore.open(log.path, clean=False).log_end_offset == 1
        log.abandon()
