"""Control batches of a producer that are no transaction markers: refused, and passed over where they are there."""

import struct
from pathlib import Path

import pytest

import kstore
from tests.hostile.test_forged import resealed

T0 = 1711530458631
CONTROL = 0x20
KEYS = [None, b"k", struct.pack(">hh", 0, 7), struct.pack(">hh", 0, 2), struct.pack(">hh", -1, 0)]


def control_batch(key: bytes | None, base_offset: int) -> bytes:
    batch = bytearray(
        kstore.encode_batch(
            [(T0, key, b"\0" * 6, None)],
            base_offset=base_offset,
            producer_id=3,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
    )
    batch[22] |= CONTROL
    batch[53:57] = struct.pack(">i", -1)  # markers have no sequence
    return resealed(bytes(batch))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", ["replication", "coordinator"])
def test_refused_before_anything_is_written(tmp_path: Path, key: bytes | None, kind: str) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"."] * 5)
        given = (
            {"keep_offsets": True} if kind == "replication" else {"origin": kind, "transaction_version": 1}
        )
        with pytest.raises((kstore.InvalidRecordError, kstore.CorruptRecordError)):
            log.append_batches(control_batch(key, 5), **given)  # type: ignore[arg-type]
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
    with (directory / f"{0:020}.log").open("ab") as f:
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
