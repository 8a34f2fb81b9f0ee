"""Every sample reads as Kafka's own tool printed it, and whatever is decoded has a sample."""

import struct
from collections import defaultdict

import pytest

from tests.decoders.samples import (
    COORDINATED,
    FRAMED,
    DecodeError,
    Sample,
    control_text,
    record_texts,
    samples,
)


def wrong(sample: Sample) -> str | None:
    """What differs, None if nothing."""
    try:
        texts = sample.decode(sample.key, sample.value)
    except DecodeError as error:
        return None if sample.texts is None else f"{sample.what}: {error}"
    return None if texts == sample.texts else f"{sample.what}: {texts} is not {sample.texts}"


@pytest.mark.parametrize("name", ["broker", "generated", "damaged"])
def test_samples(name: str) -> None:
    found = samples(name)
    assert len(found) > 50
    assert [text for text in map(wrong, found) if text] == []


def kind_and_version(sample: Sample) -> tuple[int, int]:
    """The type and version of a generated sample; version -1 of a tombstone."""
    if sample.decoder.startswith("control-"):
        return int(sample.decoder.removeprefix("control-")), int(sample.what.split("/")[1])
    if sample.key is None:
        return sample.value[1], sample.value[2]
    version = -1 if sample.value is None else int.from_bytes(sample.value[:2], "big")
    return int.from_bytes(sample.key[:2], "big"), version


def test_whatever_is_decoded_has_samples() -> None:
    """Types without samples, and the versions after those with samples, are refused."""
    found: defaultdict[str, dict[int, dict[int, Sample]]] = defaultdict(lambda: defaultdict(dict))
    for sample in samples("generated"):
        name = "control" if sample.decoder.startswith("control-") else sample.decoder
        kind, version = kind_and_version(sample)
        found[name][kind][version] = sample
    assert found.keys() == {*COORDINATED, *FRAMED, "control"}
    for name, kinds in found.items():
        for kind, versions in kinds.items():
            assert versions.keys() >= set(range(max(versions) + 1)), (name, kind)
        for kind in set(range(100)) - kinds.keys():
            assert is_unknown(name, kind), (name, kind)
        for versions in kinds.values() if name in COORDINATED else ():
            later = (max(versions) + 1).to_bytes(2, "big") + bytes(200)
            text, _ = record_texts(name, versions[0].key, later, 7)
            assert text.startswith("Error at offset 7, skipping. Found an unknown record version")


def is_unknown(name: str, kind: int) -> bool:
    if name == "control":
        return control_text(kind, bytes(200)) is None
    if name in FRAMED:
        return "Unknown metadata id" in record_texts(name, None, bytes([1, kind, 0]), 7)[1]
    texts = record_texts(name, kind.to_bytes(2, "big") + bytes(200), bytes(200), 7)
    return texts == (f"Unknown record type {kind} at offset 7, skipping.", None)


def quota(number: float) -> str:
    """How a double is printed: the value of a client's quota."""
    value = bytes([1, 14, 0, 1, 4]) + b"key" + struct.pack(">d", number) + bytes(2)
    _, text = record_texts("cluster-metadata", None, value, 7)
    return text.partition('"value":')[2].partition(",")[0]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-12345678.5, "-1.23456785E7"),
        (123456789.125, "1.23456789125E8"),
        (1e16, "1.0E16"),
        (1e22, "1.0E22"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (1e-5, "1.0E-5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "4.9E-324"),
        (1e-323, "9.9E-324"),
        (float("nan"), '"NaN"'),
        (float("inf"), '"Infinity"'),
        (float("-inf"), '"-Infinity"'),
    ],
)
def test_doubles(number: float, text: str) -> None:
    """As Java prints them."""
    assert quota(number) == text


def test_strings() -> None:
    """As Jackson escapes them: the name of a group."""
    name = '\x1f\x7f\b\t\n\f\r"\\/ü漢😀\u2028\0'.encode()
    text, _ = record_texts("offsets", b"\0\2" + len(name).to_bytes(2, "big") + name, None, 7)
    escaped = '"\\u001F\x7f\\b\\t\\n\\f\\r\\"\\\\/ü漢😀\u2028\\u0000"'
    assert text == '{"type":"2","data":{"group":' + escaped + "}}"
