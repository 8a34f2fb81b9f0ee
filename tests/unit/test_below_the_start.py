"""Offsets below the log start, where retention or delete_records has been: ranges are cut, single places are refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore


@pytest.fixture(params=["r", "a"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[kstore.PartitionLog]:
    """Offsets 5 to 9 are left of 0 to 9; the files still hold the others. Record 2 has the largest timestamp."""
    times = [1000 + n if n != 2 else 5000 for n in range(10)]
    with kstore.open(tmp_path / "t-0", "a") as made:
        made.extend([b"v"] * 10, timestamps=times)
        made.roll()
        made.extend([b"w"] * 2, timestamps=[6000, 6001])
        made.delete_records(5)
    with kstore.open(tmp_path / "t-0", request.param) as opened:
        assert opened.log_start_offset == 5
        yield opened


@pytest.mark.parametrize("start", [0, 4, 5])
def test_ranges_are_cut(log: kstore.PartitionLog, start: int) -> None:
    assert [r.offset for r in log.records(start, 7)] == [5, 6]
    assert [b.last_offset for b in log.batches(start, 7)] == [9]
    assert [int(o) for b in log.scan(["offset"], start=start, stop=7) for o in b.column("offset").values] == [
        5,
        6,
    ]
    assert list(log.records(start, 5)) == []


@pytest.mark.parametrize("offset", [0, 4, 13])
def test_single_places_are_refused(log: kstore.PartitionLog, offset: int) -> None:
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


def test_times_are_found_as_kafka_finds_them(log: kstore.PartitionLog) -> None:
    """Kafka's searchOffsetInLocalLog asks the first segment that reaches the time, and no other; its largest timestamp
    is that of the files."""
    found = log.find(timestamp=1000)
    assert found is not None
    assert found.offset == 5
    assert log.find(timestamp=4000) is None  # record 2 would be it, in the first segment
    assert [int(o) for b in log.scan(["offset"], since=4000) for o in b.column("offset").values] == [10, 11]
    latest = log.find(timestamp="max")
    assert latest is not None
    assert latest[:2] == (11, 6001)


def test_the_largest_timestamp_may_lie_below_the_start(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 4, timestamps=[1, 9, 2, 3])
        log.delete_records(2)
        found = log.find(timestamp="max")
        assert found is not None
        assert found[:2] == (1, 9)
