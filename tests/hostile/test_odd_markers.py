"""Control batches of a producer that are no transaction markers: refused by appends, skipped by readers.
Markers that are damaged."""

import struct
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers import forge
from tests.helpers.forge import Rec
from tests.helpers.markers import transactional
from tests.hostile.material import LOG, resealed

T0 = 1711530458631
KEYS = [None, b"k", struct.pack(">hh", 0, 7), struct.pack(">hh", 0, 2), struct.pack(">hh", -1, 0)]


def control_batch(key: bytes | None, base_offset: int, count: int = 1) -> bytes:
    flags = forge.TRANSACTIONAL | forge.CONTROL
    return forge.batch(*[Rec(b"\0" * 6, key, T0)] * count, base=base_offset, flags=flags, pid=3, pid_epoch=0)


@pytest.mark.parametrize("key", KEYS)
def test_refused_before_anything_is_written(tmp_path: Path, key: bytes | None) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"."] * 5)
        options: list[Any] = [{"keep_offsets": True}, {"origin": "coordinator", "transaction_version": 1}]
        for given in options:
            with pytest.raises((kstore.InvalidRecordError, kstore.CorruptRecordError)):
                log.append_batches(control_batch(key, 5), **given)
        assert log.append(b"after") == 5
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert (log.recovery.clean, log.log_end_offset) == (True, 6)


@pytest.mark.parametrize(
    ("key", "clean"), [(key, True) for key in KEYS] + [(key, False) for key in KEYS[2:4]]
)  # recovery cuts the log at a key that cannot be read, as Kafka does
def test_a_log_that_has_one_can_be_opened(tmp_path: Path, key: bytes | None, clean: bool) -> None:
    """By both kinds of opening, and what others have committed can be read."""
    directory = tmp_path / "t-0"
    with kstore.open(directory, "a") as log:
        log.extend([b"."] * 5)
    with (directory / LOG).open("ab") as f:
        f.write(control_batch(key, 5))
        f.write(kstore.encode_batch([(T0, None, b"behind", None)], base_offset=6))
    for path in directory.glob("*.snapshot"):
        path.unlink()
    options = {} if clean else {"clean": False, "recovery_point": 0}
    with kstore.open(directory, **options) as log:  # type: ignore[arg-type]
        assert [record.offset for record in log] == [0, 1, 2, 3, 4, 6]
        assert [r.offset for r in log.records(isolation="read_committed")] == [0, 1, 2, 3, 4, 6]
        assert log.last_stable_offset() == 7
        assert list(log.producers()) == [3]
    with kstore.open(directory, "a", **options) as log:  # type: ignore[call-overload]
        assert log.append(b"more") == 7


def two_markers(base_offset: int, *, broken: int) -> bytes:
    """An abort marker and a record behind it, one of which says that it has a header, and has none."""
    batch = bytearray(control_batch(struct.pack(">hh", 0, 0), base_offset, count=2))
    size = (len(batch) - 61) // 2
    batch[61 + size * (broken + 1) - 1] = 2
    return resealed(bytes(batch))


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("broken", [0, 1])
@pytest.mark.parametrize("distrusts", [False, True])
def test_records_that_cannot_be_read(tmp_path: Path, broken: int, distrusts: bool) -> None:
    """The first record of a marker counts. If it is unreadable, it ends no transaction and the log."""
    directory = tmp_path / "t-0"
    with kstore.open(directory, "a") as log:
        log.extend([b"."] * 5)
    with (directory / LOG).open("ab") as f:
        f.write(two_markers(5, broken=broken))
        f.write(kstore.encode_batch([(T0, None, b"behind", None)], base_offset=7))
    for path in directory.glob("*.snapshot"):
        path.unlink()
    options: Any = {"clean": False, "recovery_point": 0} if distrusts else {}
    offsets = [0, 1, 2, 3, 4] if broken == 0 and distrusts else [0, 1, 2, 3, 4, 7]
    log = kstore.open(directory, **options)
    for records in (log.records(), log.records(isolation="read_committed", on_error="skip")):
        assert [record.offset for record in records] == offsets
    follower = log.follow(0, timeout=0, isolation="read_committed", on_error="skip")
    assert [record.offset for record in follower] == offsets
    with kstore.open(directory, "a", **options) as writer:
        assert writer.append(b"more") == offsets[-1] + 1
    assert bool(list(directory.glob("*.cut"))) == (len(offsets) == 5)


def transactions(log: kstore.LogWriter, *ends: bool, first: int = 0) -> None:
    """Two records of each, of one producer, and its marker. `first`: the first sequence number."""
    for at, commits in enumerate(ends):
        records = [(T0, None, b"%d" % at, None)] * 2
        log.append_batches(transactional(*records, producer=3, sequence=first + 2 * at))
        marker = control_batch(struct.pack(">hh", 0, commits), 0)
        log.append_batches(marker, origin="coordinator", transaction_version=1)


def with_damaged_marker(directory: Path) -> kstore.RecordBatch:
    """The first marker, which has another last byte now."""
    marker = next(batch for batch in kstore.open(directory).batches() if batch.is_control)
    with Path(marker.file).open("r+b") as file:
        file.seek(marker.position + marker.size - 1)
        file.write(b"\xff")
    return marker


def test_an_abort_marker_is_damaged(tmp_path: Path) -> None:
    """Readers that skip it return what the producer committed after it."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        transactions(log, False, True, False, True)
        log.append(b"tail")
    sound = list(kstore.open(tmp_path / "t-0").records(isolation="read_committed"))
    assert [record.offset for record in sound] == [3, 4, 9, 10, 12]
    marker = with_damaged_marker(tmp_path / "t-0")
    log = kstore.open(tmp_path / "t-0", recover=False)
    options: Any = {"isolation": "read_committed", "on_error": "skip"}
    records = log.records(**options)
    assert list(records) == sound
    assert [(skipped.position, skipped.size) for skipped in records.skipped] == [
        (marker.position, marker.size)
    ]
    assert list(log.follow(0, timeout=0, **options)) == sound
    assert [r for batch in log.scan(["offset"], **options) for (r,) in batch.rows()] == [
        r.offset for r in sound
    ]


def test_the_last_stable_offset_cannot_be_known(tmp_path: Path) -> None:
    """The end of a transaction is damaged, and there is no snapshot: what is committed cannot be known."""
    directory = tmp_path / "t-0"
    with kstore.open(directory, "a") as log:
        transactions(log, True, True)
    with_damaged_marker(directory)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    log = kstore.open(directory)
    options: Any = {"isolation": "read_committed", "on_error": "skip"}
    for read in (log.records, log.scan, log.batches, lambda **options: log.follow(0, timeout=0, **options)):
        with pytest.raises(kstore.CorruptRecordError, match="checksum"):
            list(read(**options))
