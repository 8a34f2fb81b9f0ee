"""Ranges and single offsets: what is cut, refused or found, below the log start and in old formats."""

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.unit.logs import offsets

T = 1_700_000_000_000


@pytest.fixture(params=["r", "a"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[kstore.PartitionLog]:
    """The log starts at 5; its files hold 0 to 4 too. Record 2 has the largest timestamp of its segment."""
    times = [1000 + n if n != 2 else 5000 for n in range(10)]
    with kstore.open(tmp_path / "t-0", "a") as made:
        made.extend([b"v"] * 10, timestamps=times)
        made.roll()
        made.extend([b"w"] * 2, timestamps=[6000, 6001])
        made.delete_records(5)
    with kstore.open(tmp_path / "t-0", request.param) as opened:
        assert opened.log_start_offset == 5
        yield opened


def scanned(log: kstore.PartitionLog, **options: Any) -> list[int]:
    return [
        int(offset) for batch in log.scan(["offset"], **options) for offset in batch.column("offset").values
    ]


# ---- below the log start -------------------------------------------------------------------------


def test_ranges_are_cut(log: kstore.PartitionLog) -> None:
    for start in (0, 4, 5):
        assert offsets(log.records(start, 7)) == [5, 6]
        assert [b.last_offset for b in log.batches(start, 7)] == [9]
        assert scanned(log, start=start, stop=7) == [5, 6]
        assert list(log.records(start, 5)) == []


@pytest.mark.parametrize("offset", [0, 4, 13])
def test_single_offsets_are_refused(log: kstore.PartitionLog, offset: int) -> None:
    for call in (
        log.get,
        log.read,
        log.span,
        lambda o: log.find(offset=o),
        lambda o: next(log.follow(o, timeout=0)),
    ):
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            call(offset)
        assert (caught.value.first, caught.value.end) == (5, 12)


def test_times_below_the_start_are_passed_over(log: kstore.PartitionLog) -> None:
    """Kafka's searchOffsetInLocalLog asks only the first segment whose largest timestamp reaches the time."""
    found = log.find(timestamp=1000)
    assert found.offset == 5
    found = log.find(timestamp=4000)  # record 2 would be it, in the first segment
    assert found.offset == 10
    assert scanned(log, since=4000) == [10, 11]
    latest = log.find(timestamp="max")
    assert latest[:2] == (11, 6001)


# ---- what the calls give -------------------------------------------------------------------------


def test_some_fields_of_headers(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for i in range(200):
            log.append(b"v" * (i % 7), timestamp=T + i)
        [segment] = log.segments
        whole = segment.read_headers()
        assert whole.dtype.names is not None
        for fields in (["crc"], ["last_offset", "max_timestamp"], list(reversed(whole.dtype.names))):
            some = segment.read_headers(fields=fields)
            assert some.dtype.names == tuple(fields)
            assert all((some[name] == whole[name]).all() for name in fields)
            assert len(segment.read_headers(int(whole["position"][5]), fields)) == 195


def test_a_single_offset_of_a_segment(log: kstore.PartitionLog) -> None:
    """Of its files: the log start does not count there."""
    segment = log.segments[0]
    assert segment.get(3).offset == 3
    assert segment.get(-(2**63)) == segment.get(0)


def test_old_messages_smaller_than_a_header(tmp_path: Path) -> None:
    """A slice of less than 61 bytes, with nothing after it."""
    (tmp_path / "t-0").mkdir()
    body = b"\0\0" + struct.pack(">i", -1) + struct.pack(">i", 1) + b"v"  # magic 0, no key
    message = struct.pack(">I", zlib.crc32(body)) + body
    entries = b"".join(struct.pack(">qi", offset, len(message)) + message for offset in range(2))
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(entries)
    log = kstore.open(tmp_path / "t-0")
    assert [r.value for r in log.read(0)] == [b"v", b"v"]
    assert log.read(0, 30).size == 30


# ---- damage --------------------------------------------------------------------------------------


def test_a_negative_base_offset_is_reported_with_the_expected_one(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for _ in range(5):
            log.append(b"v")
        at = log.segments[0].translate(3).position
    with (tmp_path / "t-0" / f"{0:020d}.log").open("r+b") as file:
        file.seek(at)
        file.write(b"\xff")
    log = kstore.open(tmp_path / "t-0")
    reads: list[Callable[[], object]] = [
        lambda: list(log),
        lambda: list(log.batches()),
        lambda: scanned(log),
        lambda: log.get(3),
    ]
    for read in reads:
        with pytest.raises(kstore.CorruptRecordError) as caught:
            read()
        assert (caught.value.expected, caught.value.found) == (3, 3 - 2**56)
