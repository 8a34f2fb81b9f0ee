"""DefaultRecordBatchTest, and what of MemoryRecordsTest and its builder's test can be read."""

import struct

import pytest

from kstore import CorruptRecordError, Record, RecordBatch, UnsupportedCodecError
from tests.helpers import forge
from tests.helpers.forge import MAX32, Rec

THREE = (Rec(b"v1", b"a", 1), Rec(b"v2", b"b", 2), Rec(b"v3", b"c", 3))


@pytest.mark.parametrize("flags", [0, 8, 16, 32, 8 | 16, 8 | 32, 16 | 32, 8 | 16 | 32])
def test_write_empty_header(flags: int) -> None:
    """The empty batch of example D with every combination of flags."""
    raw = forge.batch(
        base=15, last_delta=22, epoch=15, pid=23423, pid_epoch=145, sequence=983,
        max_timestamp=forge.T0, flags=flags,
    )  # fmt: skip
    batch = RecordBatch(raw)
    batch.ensure_valid()
    assert (batch.size, batch.records_count, batch.records()) == (61, 0, [])
    assert (batch.base_offset, batch.last_offset, batch.last_offset_delta) == (15, 37, 22)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (23423, 145, 983)
    assert (batch.last_sequence, batch.leader_epoch, batch.codec) == (983 + 22, 15, "none")
    assert (batch.base_timestamp, batch.max_timestamp) == (-1, forge.T0)
    assert batch.timestamp_type == ("LogAppendTime" if flags & 8 else "CreateTime")
    assert (batch.is_transactional, batch.is_control) == (bool(flags & 16), bool(flags & 32))


def test_base_offset_and_last_offset() -> None:
    """Base 1234567 and two records: last offset 1234568."""
    batch = RecordBatch(forge.simple(1234567, 2))
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (1234567, 1234568, 1234569)
    assert [record.offset for record in batch] == [1234567, 1234568]


def test_sequence_wrap_around() -> None:
    """Base sequence MAX32-1 and three records: MAX32-1, MAX32, 0."""
    batch = RecordBatch(forge.batch(*THREE, pid=1, pid_epoch=0, sequence=MAX32 - 1))
    assert [batch.sequence_of(record) for record in batch] == [MAX32 - 1, MAX32, 0]
    assert batch.last_sequence == 0


def test_increment_sequence() -> None:
    """inc(5,5)=10, inc(MAX32,1)=0, inc(MAX32-5,10)=4; no sequence stays none."""
    for sequence, n, after in ((5, 5, 10), (MAX32, 1, 0), (MAX32 - 5, 10, 4), (-1, 10, -1)):
        assert RecordBatch(forge.batch(sequence=sequence, last_delta=n)).last_sequence == after


def test_size_in_bytes() -> None:
    """The size is that of the bytes, and a batch needs 61 of them."""
    raw = forge.batch(*THREE)
    assert RecordBatch(raw).size == len(raw)
    assert RecordBatch(raw + b"next").data == raw
    with pytest.raises(CorruptRecordError):
        RecordBatch(raw[:-1])


def test_invalid_size_and_magic() -> None:
    """A length field of 10, or any below 49; spec 2.0: a magic below 0 or above 2."""
    wrong: list[dict[str, int]] = [{"length": length} for length in (10, 13, 48, 0, -1)]
    for fields in wrong + [{"magic": magic} for magic in (-1, 3, 127)]:
        with pytest.raises(CorruptRecordError):
            RecordBatch(forge.batch(*THREE, **fields)).ensure_valid()


def test_invalid_crc() -> None:
    """The last offset delta overwritten with 23: the checksum does not fit any more."""
    raw = forge.batch(*THREE)
    batch = RecordBatch(raw[:23] + struct.pack(">i", 23) + raw[27:])
    assert not batch.is_valid
    with pytest.raises(CorruptRecordError, match="checksum"):
        batch.ensure_valid()
    with pytest.raises(CorruptRecordError, match="checksum"):
        list(batch)


@pytest.mark.parametrize("codec", forge.CODECS)
def test_invalid_record_count(codec: str) -> None:
    """A count of 5, 2 or -1 for three records, plain and compressed; one byte after the last record."""
    body = forge.record(THREE[0], 0, 1)
    wrong = [forge.batch(*THREE, count=count, codec=codec) for count in (5, 2, -1)]
    for raw in [*wrong, forge.batch(body=body + b"\0", count=1, codec=codec)]:
        batch = RecordBatch(raw)
        batch.ensure_valid()  # which does not look inside
        with pytest.raises(CorruptRecordError):
            batch.records()
    # spec 2.3: with a count of 0 nobody looks at the body
    assert RecordBatch(forge.batch(count=0, packed=b"garbage", codec=codec)).records() == []


def test_set_last_offset_and_leader_epoch() -> None:
    """Last offset set to 500, three records: base 498; leader epoch set to 500: the checksum still fits."""
    raw = struct.pack(">q", 498) + forge.batch(*THREE)[8:]
    batch = RecordBatch(raw[:12] + struct.pack(">i", 500) + raw[16:])
    batch.ensure_valid()
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (498, 500, 500)
    assert [record.offset for record in batch] == [498, 499, 500]


@pytest.mark.parametrize("codec", forge.CODECS)
def test_set_log_append_time(codec: str) -> None:
    """Log append time 15: every record has it, whatever its delta."""
    batch = RecordBatch(forge.batch(*THREE, codec=codec, flags=8, max_timestamp=15))
    batch.ensure_valid()
    assert (batch.timestamp_type, batch.max_timestamp) == ("LogAppendTime", 15)
    assert {(r.timestamp, r.timestamp_type) for r in batch} == {(15, "LogAppendTime")}


def test_unknown_codec() -> None:
    """Spec 2.1: codec ids 5 to 7 are refused."""
    for codec in (5, 6, 7):
        batch = RecordBatch(forge.batch(*THREE, flags=codec))
        with pytest.raises(UnsupportedCodecError):
            batch.records()
        with pytest.raises(UnsupportedCodecError):
            _ = batch.codec


def test_unused_attribute_bits() -> None:
    """Spec 2.1: only the low byte of the attributes means anything."""
    batch = RecordBatch(forge.batch(*THREE, flags=0x7F00))
    assert (batch.codec, batch.is_control, batch.delete_horizon_ms) == ("none", False, None)
    assert len(batch.records()) == 3


@pytest.mark.parametrize("codec", forge.CODECS)
def test_base_timestamp_to_delete_horizon_conversion(codec: str) -> None:
    """MemoryRecordsTest: a horizon MAX32/2, or 100 as in the builder's test, leaves the timestamps."""
    for horizon, stamps in ((MAX32 // 2, [5, 10, 15]), (100, [50, 100, 150])):
        recs = (Rec(b"0", b"0", stamps[0]), Rec(None, b"1", stamps[1]), Rec(b"2", b"2", stamps[2]))
        batch = RecordBatch(forge.batch(*recs, codec=codec, horizon=horizon))
        assert batch.delete_horizon_ms == batch.base_timestamp == horizon
        assert [record.timestamp for record in batch] == stamps
        assert batch.max_timestamp == stamps[-1]


def test_build_end_txn_marker() -> None:
    """MemoryRecordsTest: pid 73, epoch 13, offset 983, coordinator 347, leader epoch 29."""
    batch = RecordBatch(forge.marker(983, 73, forge.COMMIT, pid_epoch=13, coordinator=347, epoch=29))
    assert (batch.size, batch.is_control, batch.is_transactional) == (78, True, True)
    assert (batch.producer_id, batch.producer_epoch, batch.leader_epoch) == (73, 13, 29)
    assert (batch.base_sequence, batch.last_offset, batch.records_count) == (-1, 983, 1)
    value = struct.pack(">hi", 0, 347)
    assert list(batch) == [Record(983, forge.T0, "CreateTime", b"\0\0\0\1", value)]
