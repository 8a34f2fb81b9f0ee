"""Records outside their batch's offsets, or of another count. All ways of reading agree."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers import forge
from tests.helpers.forge import Rec
from tests.hostile.material import LOG

pytestmark = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # what is left out is compared here


def batch(base: int, deltas: list[int], last: int, count: int | None = None, codec: str = "none") -> bytes:
    """A v2 batch whose header says anything, with a right checksum."""
    records = [Rec(b"%03d" % (delta % 1000), timestamp=base + delta, delta=delta) for delta in deltas]
    return forge.batch(
        *records,
        base=base,
        last_delta=last,
        count=count,
        codec=codec,
        base_timestamp=base,
        max_timestamp=base + 2000,
    )


def wrapper(offset: int, inner: list[int], magic: int) -> bytes:
    messages = [forge.message(o, b"%03d" % o, magic=magic, timestamp=o) for o in inner]
    return forge.wrapper(offset, messages, magic=magic, timestamp=offset)


FIRST = batch(0, [0, 1, 2, 3, 4], 4)
# What is between a batch of offsets 0 to 4 and one of 10 to 14; and its offsets before the wrong record.
WRONG: dict[str, tuple[bytes, list[int]]] = {
    "behind": (batch(5, [0, 1, 7, 3, 4], 4), [5, 6]),
    "behind, but not behind the log": (batch(5, [0, 1, 2, 3, 8], 4), [5, 6, 7, 8]),
    "far behind": (batch(5, [0, 1, 2, 3, 70_000], 4), [5, 6, 7, 8]),
    "before": (batch(5, [0, 1, -3, 3, 4], 4), [5, 6]),
    "first before": (batch(5, [-1, 0], 4), []),
    "packed, behind": (batch(5, [0, 1, 7, 3, 4], 4, codec="gzip"), [5, 6]),
    "packed, before": (batch(5, [0, 1, -3, 3, 4], 4, codec="gzip"), [5, 6]),
    "count too small": (batch(5, [0, 1, 2, 3, 4], 4, 3), [5, 6, 7]),
    "count too large": (batch(5, [0, 1, 2, 3, 4], 4, 6), [5, 6, 7, 8, 9]),
    "packed, count too small": (batch(5, [0, 1, 2, 3, 4], 4, 3, codec="gzip"), [5, 6, 7]),
    "packed, count too large": (batch(5, [0, 1, 2, 3, 4], 4, 6, codec="gzip"), [5, 6, 7, 8, 9]),
    "count below 0": (batch(5, [0, 1, 2, 3, 4], 4, -1), []),
    "magic 0, behind": (wrapper(9, [5, 6, 12], 0), []),
    "magic 0, far behind": (wrapper(9, [5, 6, 70_000], 0), []),
    "magic 0, falling": (wrapper(9, [5, 9, 7], 0), []),
    "magic 1, behind": (wrapper(9, [0, 1, 7, 2], 1), []),
    "magic 0, one behind": (wrapper(9, [12], 0), []),
    "magic 0, one far behind": (wrapper(9, [2**63 - 1], 0), []),
    "magic 0, up to another one": (wrapper(9, [5, 6, 8], 0), []),
}


def made(directory: Path, wrong: bytes) -> kstore.PartitionLog:
    partition = directory / "t-0"
    partition.mkdir()
    (partition / LOG).write_bytes(FIRST + wrong + batch(10, [0, 1, 2, 3, 4], 4))
    log = kstore.open(partition)
    assert log.log_end_offset == 15
    return log


def taken(rows: Iterable[int]) -> tuple[list[int], str]:
    """What an iterator returns before it raises, and the error's reason."""
    found: list[int] = []
    with pytest.raises(kstore.CorruptRecordError) as caught:
        found.extend(rows)
    assert caught.value.file.endswith(LOG)
    assert caught.value.position >= 0
    return found, caught.value.reason


def offsets_of(scan: Iterable[Any]) -> Iterable[int]:
    for part in scan:
        yield from (int(offset) for offset in part.column("offset").values)


READERS: dict[str, Callable[[kstore.PartitionLog], Iterable[int]]] = {
    "records": lambda log: (r.offset for r in log.records()),
    "records from 5 on": lambda log: (r.offset for r in log.records(5)),
    "batches": lambda log: (r.offset for b in log.batches() for r in b),
    "read": lambda log: (r.offset for r in log.read(0)),
    "span": lambda log: (r.offset for r in log.span(0)),
    "follow": lambda log: (r.offset for r in log.follow(0, timeout=0)),
    "scan": lambda log: offsets_of(log.scan()),
    "scan of numbers": lambda log: offsets_of(log.scan(["offset", "timestamp"])),
    "scan of views": lambda log: offsets_of(log.scan(["offset", "value"], views=True)),
    "scan in small parts": lambda log: offsets_of(log.scan(["offset"], batch_rows=1)),
    "scan with two threads": lambda log: offsets_of(log.scan(threads=2)),
}


@pytest.mark.parametrize("name", WRONG)
def test_every_way_of_reading(tmp_path: Path, name: str) -> None:
    wrong, sound = WRONG[name]
    log = made(tmp_path, wrong)
    for reader, read in READERS.items():
        found, _ = taken(read(log))
        expected = [*range(0 if "from" not in reader else 5, 5), *sound]
        if reader in ("batches", "follow") or "packed, count" in name:  # these take a batch as a whole
            assert found in (expected, list(range(5)), []), reader
        else:
            assert found == expected, reader

    # Reading that ends before the wrong record, or at it, returns all that was asked for.
    for stop in range(16):
        for rows in ((r.offset for r in log.records(0, stop)), offsets_of(log.scan(stop=stop))):
            try:
                found = list(rows)
            except kstore.CorruptRecordError:
                assert stop > 5 or name.startswith("magic")  # only unpacking shows where it begins
            else:
                assert found == [*range(min(stop, 5)), *(o for o in sound if o < stop)]
                assert stop <= 5 or len(found) == stop, (stop, found)

    # An offset of the batch is found, or an error says why not; never another one.
    for offset in range(15):
        for find in (log.get, lambda o: log.find(offset=o)):
            try:
                assert find(offset).offset == offset  # type: ignore[union-attr]
            except kstore.CorruptRecordError as e:
                assert 5 <= offset < 10
                assert e.file.endswith(LOG)
            else:
                assert not 5 <= offset < 10 or offset in sound
    if sound:
        with pytest.raises(kstore.CorruptRecordError):
            log.find(timestamp=2000)  # the header says that the batch has one as late: all are parsed

    expected = [*range(5), *sound, *range(10, 15)]
    records, scan, follower = (
        log.records(on_error="skip"),
        log.scan(on_error="skip"),
        log.follow(0, timeout=0, on_error="skip"),
    )
    part = log.read(0, on_error="skip").records()
    assert [*offsets_of(scan)] == expected
    for source in (records, part, follower):
        assert [r.offset for r in source] == expected
    for skipped in (records.skipped, scan.skipped, part.skipped, follower.skipped):
        ((file, position, size, error),) = skipped
        assert file.endswith(LOG)
        assert (position, size) == (len(FIRST), len(wrong))
        assert isinstance(error, kstore.CorruptRecordError)


@pytest.mark.parametrize("reader", ["records", "batches", "follow", "scan"])
@pytest.mark.parametrize("outer", [5, 6])
def test_a_compressed_message_that_begins_in_the_batch_before(
    tmp_path: Path, reader: str, outer: int
) -> None:
    """No checksum covers its offset, by which those in a message of magic 1 are counted back."""
    log = made(tmp_path, wrapper(outer, [0, 1, 2], 1))
    found, reason = taken(READERS[reader](log))
    assert (found, reason) == (list(range(5)), "first offset in a compressed message")
