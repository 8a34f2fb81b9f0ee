"""Damaged records give text or DecodeError, nothing else, and soon."""

import contextlib
from functools import partial

import pytest

from kstore.tools.decoders import DECODERS, DecodeError, SkippedError, control_text, record_texts
from kstore.tools.decoders.reader import Reader
from kstore.tools.decoders.schema import INT32, STRING, Array, Field, Message, Struct
from tests.decoders.samples import Sample, samples
from tests.helpers.calls import count_calls

LONGEST = 150  # bytes of a side that is damaged


def one_of_each() -> list[Sample]:
    """A full record of each type and version."""
    found: dict[str, Sample] = {}
    for sample in samples("generated"):
        type_version, mode = sample.what.split("/", 1)[0], sample.what.split("/")[-1]
        if mode in ("TAGGED", "FULL", "tombstone") and len(sample.value or b"") <= LONGEST:
            found[type_version] = sample
    return list(found.values())


def damaged(whole: bytes) -> list[bytes]:
    """Every beginning, and every turned bit."""
    pieces = [whole[:size] for size in range(len(whole))]
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        pieces.append(bytes(changed))
    return pieces


def decode(sample: Sample, key: bytes | None, value: bytes | None) -> None:
    """Gives texts, or refuses."""
    with contextlib.suppress(DecodeError):
        assert all(text is None or isinstance(text, str) for text in sample.decode(key, value))


def test_every_cut_and_every_bit() -> None:
    """Damage is refused or read, and takes no more work than what it damages."""
    chosen = one_of_each()
    assert len(chosen) > 60
    for sample in chosen:
        whole = count_calls(partial(decode, sample, sample.key, sample.value))
        sides = [(key, sample.value) for key in damaged(sample.key or b"")]
        sides += [(sample.key, value) for value in damaged(sample.value or b"")]
        for key, value in sides:
            assert count_calls(partial(decode, sample, key, value)) < 2 * whole


@pytest.mark.parametrize("name", DECODERS)
def test_nothing_at_all(name: str) -> None:
    for key in (None, b"", b"\0", b"\0\0"):
        for value in (None, b"", b"\1"):
            with pytest.raises(DecodeError):
                DECODERS[name](key, value)


@pytest.mark.parametrize("name", ["offsets", "transaction-log", "share-group-state"])
def test_a_record_without_key_ends_kafkas_tool(name: str) -> None:
    with pytest.raises(DecodeError) as caught:
        record_texts(name, None, b"", 3)
    assert not isinstance(caught.value, SkippedError)


def test_remarks_name_the_offset() -> None:
    assert record_texts("offsets", b"\0\x12", b"", 345) == (
        "Unknown record type 18 at offset 345, skipping.",
        None,
    )
    assert record_texts("cluster-metadata", None, b"\1\6\0", 345) == (
        None,
        (
            "Error at 345, skipping. org.apache.kafka.common.errors.UnsupportedVersionException: "
            "Unknown metadata id 6"
        ),
    )
    with pytest.raises(SkippedError) as caught:
        DECODERS["remote-log-metadata"](None, b"")
    assert caught.value.texts(8)[1] == "Error at offset 8, skipping. Error while reading frame version"


@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 2**32 - 1, 2**20])
def test_huge_counts_are_refused_at_once(count: int) -> None:
    message = Message("", Field("all", Array(Struct(Field("name", STRING), Field("id", INT32)))))
    data = bytearray()
    while count >= 0x80:
        data.append(count & 0x7F | 0x80)
        count >>= 7
    data.append(count)
    with pytest.raises(DecodeError):
        message.read_version(Reader(bytes(data) + bytes(100)), 0)


def test_huge_number_of_tagged_fields_ends_with_the_data() -> None:
    with pytest.raises(DecodeError):
        Message("").read_version(Reader(b"\xff\xff\xff\xff\x07" + b"\5\0" * 1000), 0)


def test_control_records() -> None:
    leader_change = bytes.fromhex("0000 00000001 02 00000001 00 01 00")
    text = ' LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[]}'
    assert control_text(2, leader_change) == text
    assert [control_text(kind, b"") for kind in (-1, 0, 1, 7)] == [None] * 4
    with pytest.raises(DecodeError):
        control_text(2, leader_change[:-1])
