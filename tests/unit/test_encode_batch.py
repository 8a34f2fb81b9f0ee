"""What encode_batch refuses."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.record.hashes import crc32c

INTS: list[tuple[str, Callable[[Any], object]]] = [
    ("base_offset", lambda n: kstore.encode_batch([], base_offset=n)),
    ("leader_epoch", lambda n: kstore.encode_batch([], leader_epoch=n)),
    ("producer_id", lambda n: kstore.encode_batch([], producer_id=n, producer_epoch=0, base_sequence=0)),
    ("producer_epoch", lambda n: kstore.encode_batch([], producer_id=1, producer_epoch=n, base_sequence=0)),
    ("base_sequence", lambda n: kstore.encode_batch([], producer_id=1, producer_epoch=0, base_sequence=n)),
    ("level", lambda n: kstore.encode_batch([], codec="gzip", level=n)),
    ("last_offset_delta", lambda n: kstore.encode_batch([], last_offset_delta=n)),
    ("offset delta", lambda n: kstore.encode_batch([(1, None, b"", None)], offset_deltas=[n])),
]


@pytest.mark.parametrize("number", [1.0, float("nan"), True, "1"])
@pytest.mark.parametrize(("name", "call"), INTS)
def test_what_is_no_int(name: str, call: Callable[[Any], object], number: object) -> None:
    with pytest.raises(TypeError, match=f"{name} is an int"):
        call(number)


@pytest.mark.parametrize("number", [-2, 2**63, 2**70])
@pytest.mark.parametrize(("name", "call"), INTS)
def test_what_is_out_of_range(name: str, call: Callable[[Any], object], number: int) -> None:
    with pytest.raises(ValueError, match=name):
        call(number)


def test_what_does_not_fit_into_two_bytes_is_not_cut() -> None:
    with pytest.raises(ValueError, match="producer_epoch is from -1 to 32767, not 70000"):
        kstore.encode_batch([], producer_id=1, producer_epoch=70000, base_sequence=0)


def test_offsets_end_where_the_format_does() -> None:
    records = [(1, None, b"v", None)] * 2
    assert kstore.RecordBatch(kstore.encode_batch(records, base_offset=2**63 - 2)).last_offset == 2**63 - 1
    with pytest.raises(ValueError, match="offsets"):
        kstore.encode_batch(records, base_offset=2**63 - 1)
    with pytest.raises(ValueError, match="offset_deltas: fewer"):
        kstore.encode_batch(records, offset_deltas=[0])


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("deltas", [(0, 3), (1, 2), (-1, 1)])
def test_offset_deltas_outside_of_the_batch_are_refused(
    tmp_path: Path, codec: str, deltas: tuple[int, int]
) -> None:
    """Kafka appends such a batch if it is not compressed, and what is read of it afterwards is damage."""
    made = bytearray(kstore.encode_batch([(1, None, b"v", None)] * 2))
    for at, delta in zip((64, 64 + (len(made) - 61) // 2), deltas, strict=True):
        made[at] = 2 * delta if delta >= 0 else -2 * delta - 1  # a zigzag varint
    payload = bytes(made[61:])
    if codec == "gzip":
        made[61:] = gzip.compress(payload)
        made[22] = 1
        struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    with kstore.open(tmp_path / "t-0", "a") as log:
        with pytest.raises(kstore.InvalidRecordError, match="offset"):
            log.append_batches(bytes(made))
        assert log.log_end_offset == 0
