"""AbstractLegacyRecordBatchTest and SimpleLegacyRecordTest: messages of magic 0 and 1, spec 2.5."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import CorruptRecordError, Record, RecordBatch
from tests.helpers.examples import examples
from tests.helpers.forge import LOG_APPEND_TIME, message, wrapper

CODECS = ("gzip", "snappy", "lz4")
KINDS = ("NoTimestampType", "CreateTime", "LogAppendTime")


def three(magic: int) -> list[bytes]:
    return [message(i, b"%d" % i, b"k", magic=magic, timestamp=i + 1) for i in range(3)]


def offsets(raw: bytes) -> list[int]:
    return [record.offset for record in RecordBatch(raw)]


@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_of_a_wrapper_with_offset_zero(magic: int) -> None:
    """Three records in a wrapper of offset 0, as old librdkafka wrote it: 0, 1, 2."""
    for codec in CODECS:
        assert offsets(wrapper(0, three(magic), magic=magic, codec=codec)) == [0, 1, 2]


def test_set_last_offset() -> None:
    """Magic 1, wrapper offset 500: 498, 499, 500, and the checksum does not cover it."""
    raw = struct.pack(">q", 500) + wrapper(0, three(1))[8:]
    batch = RecordBatch(raw)
    batch.ensure_valid()
    assert offsets(raw) == [498, 499, 500]
    assert (batch.base_offset, batch.last_offset) == (498, 500)


def test_absolute_inner_offsets_of_magic_0() -> None:
    """Spec 2.5: inner offsets of magic 0 are absolute."""
    inner = [message(500 + i, b"v", magic=0) for i in range(3)]
    batch = RecordBatch(wrapper(502, inner, magic=0))
    assert [record.offset for record in batch] == [500, 501, 502]
    assert (batch.base_offset, batch.last_offset, batch.max_timestamp) == (500, 502, -1)


def test_set_log_append_time() -> None:
    """Magic 1: log append time of the wrapper overrides the inner timestamps."""
    batch = RecordBatch(wrapper(2, three(1), timestamp=500, flags=LOG_APPEND_TIME))
    assert [(r.timestamp, r.timestamp_type) for r in batch] == [(500, "LogAppendTime")] * 3
    assert (batch.timestamp_type, batch.max_timestamp) == ("LogAppendTime", 500)


def test_set_create_time() -> None:
    """Magic 1: with create time the inner timestamps stand, and the type is the wrapper's."""
    inner = [message(0, b"v", timestamp=7, attributes=LOG_APPEND_TIME)]
    batch = RecordBatch(wrapper(0, inner, timestamp=9))
    assert [(r.timestamp, r.timestamp_type) for r in batch] == [(7, "CreateTime")]


@pytest.mark.parametrize("magic", [0, 1])
def test_broken_wrappers(magic: int) -> None:
    """Zstd, no value, nothing inside, a wrapper inside; with magic 1 an offset below the count."""
    wrong = [
        wrapper(2, three(magic), magic=magic, codec="zstd"),
        message(0, None, magic=magic, attributes=1),
        *(wrapper(0, [], magic=magic, codec=codec) for codec in CODECS),
        wrapper(2, [wrapper(2, three(magic), magic=magic)], magic=magic),
        *([wrapper(1, three(1))] if magic else []),
    ]
    for raw in wrong:
        with pytest.raises(CorruptRecordError):
            RecordBatch(raw).records()


@pytest.mark.parametrize("magic", [0, 1])
def test_partial_inner_message(magic: int) -> None:
    """Spec 2.5: a trailing partial inner entry is ignored."""
    inner = three(magic)
    for cut in (1, 11, 12, 17, len(inner[0]) - 1):
        assert offsets(wrapper(2, [*inner, inner[0][:cut]], magic=magic)) == [0, 1, 2]


def test_inner_magic_may_differ() -> None:
    """Spec 2.5: iteration tolerates inner messages of another magic."""
    assert len(RecordBatch(wrapper(2, three(0), magic=1)).records()) == 3
    assert offsets(wrapper(2, three(1), magic=0)) == [0, 1, 2]


@pytest.mark.parametrize(("magic", "least"), [(0, 14), (1, 22)])
def test_is_valid_with_too_small_buffer(magic: int, least: int) -> None:
    """A message smaller than its own header."""
    raw = message(0, None, magic=magic)
    assert len(raw) == least + 12
    RecordBatch(raw).ensure_valid()
    small = raw[:8] + struct.pack(">i", least - 1) + raw[12:]
    with pytest.raises(CorruptRecordError):
        RecordBatch(small).ensure_valid()
    with pytest.raises(CorruptRecordError):
        RecordBatch(raw[:2])


def test_legacy_fields() -> None:
    """Spec 2.5: no leader epoch, producer, sequence, transaction; magic 0 has no timestamp; a checksum."""
    for magic in (0, 1):
        batch = RecordBatch(message(4, b"v", magic=magic, timestamp=9))
        assert (batch.leader_epoch, batch.producer_id, batch.base_sequence) == (-1, -1, -1)
        assert (batch.is_control, batch.is_transactional) == (False, False)
        assert (batch.timestamp_type, batch.max_timestamp) == (KINDS[magic], (-1, 9)[magic])
        batch = RecordBatch(message(4, b"v", magic=magic, crc=1))
        assert not batch.is_valid
        with pytest.raises(CorruptRecordError, match="checksum"):
            batch.ensure_valid()


@examples(60)
@given(
    parts=st.lists(st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9)),
                   min_size=1, max_size=6),
    magic=st.integers(0, 1),
    codec=st.sampled_from(CODECS),
    first=st.integers(0, 2**40),
    gap=st.integers(1, 5),
)  # fmt: skip
def test_any_wrapper(
    parts: list[tuple[bytes | None, bytes | None]], magic: int, codec: str, first: int, gap: int
) -> None:
    """Whatever run of messages is written is read, gaps of compaction included."""
    places = [gap * i for i in range(len(parts))]
    inner = [
        message(place + (0 if magic else first), value, key, magic=magic, timestamp=place)
        for place, (key, value) in zip(places, parts, strict=True)
    ]
    last = first + places[-1]
    raw = wrapper(last, inner, magic=magic, codec=codec)
    base = 0 if magic and last == 0 else first
    assert RecordBatch(raw).records() == [
        Record(base + place, place if magic else -1, KINDS[magic], key, value)
        for place, (key, value) in zip(places, parts, strict=True)
    ]
