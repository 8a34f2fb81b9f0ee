"""Damaged records give text or DecodeError, nothing else, and soon."""

import contextlib
from functools import partial

import pytest

from tests.decoders.samples import (
    COORDINATED,
    FRAMED,
    DecodeError,
    Sample,
    SkippedError,
    control_text,
    record_texts,
    samples,
)
from tests.helpers.calls import count_calls
from tests.helpers.effort import SEED, some

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


def test_cuts_and_turned_bits() -> None:
    """Damage is refused or read, and takes no more work than what it damages."""
    chosen = one_of_each()
    assert len(chosen) > 60
    decode(chosen[0], b"\0\0\0\1\xff", None)  # the first text that is not UTF-8 compiles a pattern
    for sample in chosen:
        whole = count_calls(partial(decode, sample, sample.key, sample.value))
        sides = [(key, sample.value) for key in damaged(sample.key or b"")]
        sides += [(sample.key, value) for value in damaged(sample.value or b"")]
        for key, value in some(sides, 150, sample.what):
            taken = count_calls(partial(decode, sample, key, value))
            assert taken < 2 * whole, f"{sample.what}: {key!r}, {value!r} (SEED={SEED})"


def test_nothing_at_all() -> None:
    for name in (*COORDINATED, *FRAMED):
        for key in (None, b"", b"\0", b"\0\0"):
            for value in (None, b"", b"\1"):
                if key is None and name in COORDINATED:
                    with pytest.raises(DecodeError) as caught:  # which ends Kafka's tool
                        record_texts(name, key, value, 3)
                    assert not isinstance(caught.value, SkippedError)
                else:
                    assert any("skipping" in text for text in record_texts(name, key, value, 3) if text)


def test_remarks_name_the_offset() -> None:
    assert record_texts("offsets", b"\0\x12", b"", 345) == (
        "Unknown record type 18 at offset 345, skipping.",
        None,
    )
    unknown = "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id 6"
    assert record_texts("cluster-metadata", None, b"\1\6\0", 345) == (
        None,
        f"Error at 345, skipping. {unknown}",
    )
    error = "Error at offset 8, skipping. Error while reading frame version"
    assert record_texts("remote-log-metadata", None, b"", 8) == (None, error)


def unsigned_varint(count: int) -> bytes:
    data = bytearray()
    while count >= 0x80:
        data.append(count & 0x7F | 0x80)
        count >>= 7
    return bytes([*data, count])


@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 2**32 - 1, 2**20])
def test_huge_counts_are_refused_at_once(count: int) -> None:
    """Of the replicas of a partition, and of tagged fields behind an empty list of entities."""
    partition = bytes([1, 3, 0]) + bytes(20) + unsigned_varint(count) + bytes(100)
    quota = bytes([1, 14, 0, 1, 1]) + bytes(9) + unsigned_varint(count) + b"\5\0" * 1000
    for value in (partition, quota):
        calls = count_calls(lambda value=value: record_texts("cluster-metadata", None, value, 7))
        assert calls < 20_000
        assert "Error at 7, skipping." in record_texts("cluster-metadata", None, value, 7)[1]


def test_control_records() -> None:
    leader_change = bytes.fromhex("0000 00000001 02 00000001 00 01 00")
    text = ' LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[]}'
    assert control_text(2, leader_change) == text
    assert [control_text(kind, b"") for kind in (-1, 0, 1, 7)] == [None] * 4
    with pytest.raises(DecodeError):
        control_text(2, leader_change[:-1])
