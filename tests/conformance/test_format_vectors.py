"""The known bytes of spec 2.2 to 2.5, 3.2 to 3.5: the forge makes them, kstore reads them."""

import struct
from pathlib import Path

import pytest

import kstore
from kstore import Record, RecordBatch
from tests.helpers import forge
from tests.helpers.forge import T0, Rec, simple

A = bytes.fromhex("""
    00 00 00 00 00 00 00 00 00 00 00 49 00 00 00 00 02 f1 75 9b af 00 00 00 00 00 01 00 00 01 8b cf
    e5 68 00 00 00 01 8b cf e5 68 05 ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 02 1c 00 00
    00 04 6b 31 04 76 31 02 02 68 02 78 10 00 0a 02 04 6b 32 01 00
""")
B = bytes.fromhex("""
    00 00 00 00 00 00 00 00 00 00 00 4f 00 00 00 00 02 08 bb 9f 40 00 40 00 00 00 01 00 00 01 8b d5
    0b c7 e8 00 00 01 8b cf e5 68 05 ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 02 22 00 cf
    ff b2 52 00 04 6b 31 04 76 31 02 02 68 02 78 16 00 c5 ff b2 52 02 04 6b 32 01 00
""")
C = bytes.fromhex("""
    00 00 00 00 00 00 00 02 00 00 00 42 00 00 00 00 02 e5 c1 6b 79 00 30 00 00 00 00 00 00 01 8b cf
    e5 68 0a 00 00 01 8b cf e5 68 0a 00 00 00 00 00 00 00 09 00 03 ff ff ff ff 00 00 00 01 20 00 00
    00 08 00 00 00 00 0c 00 00 00 00 00 07 00
""")
D = bytes.fromhex("""
    00 00 00 00 00 00 00 0f 00 00 00 31 00 00 00 0f 02 5d 4e 3d 62 00 00 00 00 00 16 ff ff ff ff ff
    ff ff ff 00 00 01 8b cf e5 68 00 00 00 00 00 00 00 5b 7f 00 91 00 00 03 d7 00 00 00 00
""")
V0 = bytes.fromhex("""
    00 00 00 00 00 00 00 32 00 00 00 12 57 e7 49 6e 00 00 00 00 00 02 6b 31 00 00 00 02 76 31
""")
V1 = bytes.fromhex("""
    00 00 00 00 00 00 00 32 00 00 00 1a a5 da 6a 62 01 00 00 00 01 8b cf e5 68 00 00 00 00 02 6b 31
    00 00 00 02 76 31
""")
SNAPSHOT = bytes.fromhex("""
    00 01 03 f7 df 5d 00 00 00 01 00 00 00 00 00 00 00 09 00 03 00 00 00 04 00 00 00 00 00 00 00 6a
    00 00 00 04 00 00 01 8b cf e5 68 0a 00 00 00 07 ff ff ff ff ff ff ff ff
""")
TWO = (Rec(b"v1", b"k1", T0, (("h", b"x"),)), Rec(None, b"k2", T0 + 5))
TWO_READ = [
    Record(0, T0, "CreateTime", b"k1", b"v1", [("h", b"x")]),
    Record(1, T0 + 5, "CreateTime", b"k2", None),
]


def test_example_a() -> None:
    """Spec 2.3, example A: two records, a header, a null value; 85 bytes."""
    assert forge.batch(*TWO) == A
    batch = RecordBatch(A)
    assert batch.is_valid
    assert batch.records() == TWO_READ
    assert (batch.base_timestamp, batch.max_timestamp, batch.size) == (T0, T0 + 5, 85)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.records_count, batch.last_offset, batch.next_offset) == (2, 1, 2)
    assert batch.delete_horizon_ms is None


def test_example_b() -> None:
    """Spec 2.3, example B: with a delete horizon the records keep their timestamps."""
    horizon = T0 + 86401000
    assert forge.batch(*TWO, horizon=horizon) == B
    batch = RecordBatch(B)
    assert batch.records() == TWO_READ
    assert (batch.attributes, batch.delete_horizon_ms) == (0x40, horizon)


def test_example_c() -> None:
    """Spec 2.4, example C: an ABORT marker is 78 bytes."""
    made = forge.marker(2, 9, forge.ABORT, pid_epoch=3, coordinator=7, timestamp=T0 + 10)
    assert made == C
    batch = RecordBatch(C)
    assert (batch.is_control, batch.is_transactional, batch.producer_epoch) == (True, True, 3)
    assert batch.records() == [Record(2, T0 + 10, "CreateTime", bytes(4), b"\0\0\0\0\0\7")]


def test_example_d() -> None:
    """Spec 2.3, example D: an empty batch as compaction leaves it."""
    made = forge.batch(
        base=15, last_delta=22, epoch=15, pid=23423, pid_epoch=145, sequence=983, max_timestamp=T0
    )
    assert made == D
    batch = RecordBatch(D)
    assert batch.records() == []
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (15, 37, 15)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (23423, 145, 983)
    assert (batch.base_timestamp, batch.max_timestamp) == (-1, T0)


@pytest.mark.parametrize(("magic", "expected"), [(0, V0), (1, V1)])
def test_legacy_examples(magic: int, expected: bytes) -> None:
    """Spec 2.5: offset 50, key k1, value v1 as messages of magic 0 and 1."""
    assert forge.message(50, b"v1", b"k1", magic=magic, timestamp=T0) == expected
    batch = RecordBatch(expected)
    assert (batch.is_valid, batch.magic, batch.leader_epoch, batch.producer_id) == (True, magic, -1, -1)
    kind, timestamp = ("NoTimestampType", -1) if magic == 0 else ("CreateTime", T0)
    assert batch.records() == [Record(50, timestamp, kind, b"k1", b"v1")]


def test_index_examples(tmp_path: Path) -> None:
    """Spec 3.2 to 3.5: the bytes of three indexes and two snapshots, written out and read from a log."""
    offsets = bytes.fromhex("00 00 00 0a 00 00 00 00 00 00 00 19 00 00 10 92")
    assert forge.offset_index(45, [(55, 0), (70, 4242)]) == offsets
    times = bytes.fromhex("00 00 01 8b cf e5 68 00 00 00 00 0a")
    assert forge.time_index(45, [(T0, 55)]) == times
    txns = struct.pack(">hqqqq", 0, 983493, 137, 299, 200)
    assert forge.txn_index([(983493, 137, 299, 200)]) == txns
    assert forge.snapshot([(9, 3, 4, 106, 4, T0 + 10, 7, -1)]) == SNAPSHOT
    empty = bytes.fromhex("00 01 48 67 4b c7 00 00 00 00")
    assert forge.snapshot([]) == empty
    padded = forge.batch(*[Rec(timestamp=T0)] * 10, Rec(bytes(4062), timestamp=T0), base=45)
    assert len(padded) == 4242
    batches = {45: [padded, simple(56, 15)], 500: []}
    path = forge.partition(tmp_path, batches, snapshots={45: empty, 500: SNAPSHOT})
    for kind, data in ((".index", offsets), (".timeindex", times), (".txnindex", txns)):
        (path / f"{forge.stem(45)}{kind}").write_bytes(data)
    log = kstore.open(path, clean=True)
    segment = log.segments[0]
    assert list(segment.offset_index) == [(55, 0), (70, 4242)]
    assert list(segment.time_index) == [(T0, 55)]
    assert list(segment.transaction_index) == [(983493, 137, 299, 200, 0)]
    (state,) = log.producers().values()
    assert (state.producer_id, state.producer_epoch, state.coordinator_epoch) == (9, 3, 7)
    assert [tuple(batch) for batch in state.batches] == [(4, 106, 4, T0 + 10)]
    assert (state.last_timestamp, state.current_txn_first_offset) == (T0 + 10, None)
