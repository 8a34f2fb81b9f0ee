"""What an object shows of itself: its class, where it is from, its offsets; and it shows it whenever it is asked."""

from pathlib import Path

import pytest

import kstore

T = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=200) as log:
        for i in range(4):
            log.append(b"x" * 50, timestamp=T + i)
    return tmp_path / "t-0"


def test_what_a_log_gives_out(path: Path) -> None:
    log = kstore.open(path)
    first = log.segments[0].path
    size = log.segments[0].size
    for given, text in [
        (log.segments[0], f"<Segment {first!r}: base_offset=0, end_offset=1>"),
        (log.segments[-1], f"<Segment {log.segments[-1].path!r}: base_offset=3>"),
        (log.records(1), f"<RecordReader of {path}: offsets 1 to 4 (exclusive)>"),
        (log.batches(1, 2), f"<BatchReader of {path}: offsets 1 to 2 (exclusive)>"),
        (log.scan(["key"]), f"<Scan of {path}: offsets 0 to 4 (exclusive), columns key>"),
        (log.read(0), f"<Slice of {first}, from byte 0: {size} bytes, from offset 0 on>"),
        (log.span(0), f"<Span of {path}: {4 * size} bytes in 4 slices, from offset 0 on>"),
        (log.follow(2), f"<Follower of {path}: at offset 2>"),
        (log, f"PartitionLog({str(path)!r}, log_start_offset=0, log_end_offset=4)"),
        (kstore.LogStore(path.parent), f"LogStore({str(path.parent)!r}, 1 partitions)"),
    ]:
        assert repr(given) == text


def test_of_a_writer(path: Path) -> None:
    with kstore.open(path, "a") as log:
        with log.appender(linger_ms=10_000) as out:
            assert repr(out) == f"<Appender of {path}: linger_ms=10000>"
            ticket = out.append(b"v")
            assert repr(ticket) == f"<Ticket of {path}: not appended yet>"
        assert repr(out) == f"<Appender of {path}: closed>"
        assert repr(ticket) == f"<Ticket of {path}: offset 4>"
        with log.follow() as follower:
            assert repr(follower) == f"<Follower of {path}: at offset 5>"
        assert repr(follower) == f"<Follower of {path}: at offset 5, closed>"


def test_of_an_empty_log(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert repr(log.span(0)) == "<Span of no slices>"
    for file in (tmp_path / "t-0").glob("0*"):
        file.unlink()
    empty = kstore.open(tmp_path / "t-0")
    assert repr(empty.records()) == "<RecordReader of an empty log: offsets 0 to 0 (exclusive)>"
    assert repr(empty.scan()).startswith("<Scan of an empty log: offsets 0 to 0")
    assert repr(empty.read(0)) == "<Slice of an empty log: 0 bytes, from offset 0 on>"


@pytest.mark.parametrize("mode", ["r", "a"])
def test_of_a_closed_log(path: Path, mode: str) -> None:
    log = kstore.open(path, mode)  # type: ignore[call-overload]
    log.close()
    assert repr(log) == f"{type(log).__name__}({str(path)!r}, closed)"
