"""DefaultRecordTest: records inside a v2 batch, spec 2.3."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import CorruptRecordError, Record, RecordBatch
from tests.helpers import forge
from tests.helpers.examples import examples
from tests.helpers.forge import Rec, blob, varint

HEADERS: tuple[tuple[str, bytes | None], ...] = (("foo", b"value"), ("bar", None), ("Aé▲", b"v"))


def read(body: bytes, count: int = 1, **fields: Any) -> list[Record]:
    """The records that kstore finds in these bytes."""
    return RecordBatch(forge.batch(body=body, count=count, **fields)).records()


def test_basic_serde() -> None:
    """Base offset 37, delta 10, base sequence 723, timestamp delta 323; nulls and headers."""
    for key, value, headers in product([b"key", b"", None], [b"value", b"", None], [HEADERS, ()]):
        rec = Rec(value, key, 100 + 323, headers, 10)
        raw = forge.batch(rec, base=37, base_timestamp=100, pid=1, pid_epoch=0, sequence=723)
        batch = RecordBatch(raw)
        (record,) = batch.records()
        assert record == Record(47, 423, "CreateTime", key, value, headers)
        assert batch.sequence_of(record) == 733


@pytest.mark.parametrize("field", ["offset", "timestamp", "timestamp_type", "key", "value", "headers"])
def test_fields_are_read_only(field: str) -> None:
    """Nobody can put another object into one, also where the interpreter has specialised the store."""
    record = Record(0, 5, "CreateTime", b"key", None, HEADERS)
    for _ in range(100):
        with pytest.raises(AttributeError):
            setattr(record, field, None)
    for _ in range(100):
        with pytest.raises(AttributeError):
            record.key = b"other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        delattr(record, field)
    assert record == Record(0, 5, "CreateTime", b"key", None, HEADERS)


def test_timestamps_may_change_from_record_to_record() -> None:
    """Equal ones in a row are one object; none is taken for another."""
    stamps = [forge.T0, forge.T0, 0, -1, forge.T0, forge.T0 + 1, forge.T0 + 1, 7]
    raw = forge.batch(*(Rec(b"v", None, t, (), d) for d, t in enumerate(stamps)), base_timestamp=forge.T0)
    records = RecordBatch(raw).records()
    assert [record.timestamp for record in records] == stamps
    assert records[0].timestamp is records[1].timestamp


def test_basic_serde_invalid_header_count() -> None:
    """A header count of 4 or of 2 where there are 3 (the byte 14 of Kafka's test)."""
    rec = forge.record(Rec(b"hi", b"hi", 0, HEADERS), 0, 0)
    at = rec.index(blob(b"hi") + b"\x06" + blob(b"foo")) + 3
    assert read(rec)[0].headers == HEADERS
    for count in (4, 2):
        with pytest.raises(CorruptRecordError):
            read(rec[:at] + varint(count) + rec[at + 1 :])


PREFIX = b"\0\0\0"  # attributes, timestamp delta, offset delta
HEADER = PREFIX + varint(-1) + varint(-1)  # no key, no value
SOUND = PREFIX + b"\1\1\0"
OUTSIDE = {  # in a body of 100 bytes
    "test_invalid_key_size": PREFIX + varint(105),
    "test_invalid_value_size": PREFIX + varint(5) + b"12345" + varint(105),
    "test_invalid_num_headers[-1]": HEADER + varint(-1),
    "test_invalid_num_headers[100]": HEADER + varint(100),
    "test_invalid_header_key": HEADER + varint(1) + varint(105),
    "test_null_header_key": HEADER + varint(1) + varint(-1),
    "test_invalid_header_value": HEADER + varint(1) + blob(b"a") + varint(105),
}
CUT = {  # a body that ends before or inside a field
    "test_underflow_reading_timestamp": b"\0",
    "test_underflow_reading_varlong": b"\0\xff\xff",
    "test_invalid_varlong": b"\0" + b"\xff" * 10 + b"\1",
    "test_underflow_reading_offset": b"\0\0",
    "test_underflow_reading_varint": b"\0\0\xff\xff",
    "test_invalid_varint": b"\0\0" + b"\xff" * 5 + b"\1",
    "no body": b"",
    "no key": b"\0\0\0",
    "no value": b"\0\0\0\1",
    "no headers": b"\0\0\0\1\1",
}
BROKEN = {
    **{name: varint(100) + body.ljust(100, b"\0") for name, body in OUTSIDE.items()},
    **{name: varint(len(body)) + body for name, body in CUT.items()},
    "length past the buffer": varint(len(SOUND) + 1) + SOUND,
    "length above what is used": varint(len(SOUND) + 1) + SOUND + b"\0",
    "length below what is used": varint(len(SOUND) - 1) + SOUND,
    "negative length": varint(-1) + SOUND,
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN)
def test_broken(raw: bytes) -> None:
    """Lengths outside the record, fields that are cut off, a record of another length than it says."""
    assert len(read(varint(len(SOUND)) + SOUND)) == 1
    with pytest.raises(CorruptRecordError):
        read(raw)


def test_any_negative_length_is_null() -> None:
    """Spec 2.3: a key or value length of -2 is null too; attributes are ignored."""
    body = b"\x7f\0\0" + varint(-2) + varint(-7) + varint(0)
    assert read(varint(len(body)) + body, base_timestamp=5) == [Record(0, 5, "CreateTime", None, None)]


names = st.text(st.characters(codec="utf-8"), max_size=5)
values = st.none() | st.binary(max_size=30)
records = st.builds(
    Rec,
    value=values,
    key=values,
    timestamp=st.integers(0, 2**62) | st.just(-1),
    headers=st.lists(st.tuples(names, values), max_size=3).map(tuple),
)


@examples(60)
@given(
    recs=st.lists(records, max_size=8),
    gaps=st.lists(st.integers(1, 1000), min_size=8, max_size=8),
    base=st.integers(0, 2**62),
    codec=st.sampled_from(forge.CODECS),
    epoch=st.integers(-1, 2**31 - 1),
    append_time=st.booleans(),
    horizon=st.none() | st.integers(0, 2**62),
)
def test_any_batch(
    recs: list[Rec],
    gaps: list[int],
    base: int,
    codec: str,
    epoch: int,
    append_time: bool,
    horizon: int | None,
) -> None:
    """Whatever batch is written is read: every codec, gaps, nulls, headers, timestamps."""
    deltas = [sum(gaps[:i]) for i in range(len(recs))]
    recs = [Rec(r.value, r.key, r.timestamp, r.headers, d) for r, d in zip(recs, deltas, strict=True)]
    flags = forge.LOG_APPEND_TIME if append_time else 0
    raw = forge.batch(*recs, base=base, codec=codec, epoch=epoch, flags=flags, horizon=horizon)
    batch = RecordBatch(raw)
    kind = "LogAppendTime" if append_time else "CreateTime"
    largest = max((r.timestamp for r in recs), default=-1)
    assert batch.records() == [
        Record(base + d, largest if append_time else r.timestamp, kind, r.key, r.value, r.headers)
        for r, d in zip(recs, deltas, strict=True)
    ]
    assert (batch.codec, batch.timestamp_type, batch.leader_epoch) == (codec, kind, epoch)
    assert (batch.last_offset, batch.max_timestamp) == (base + (deltas or [0])[-1], largest)
    assert batch.delete_horizon_ms == horizon
