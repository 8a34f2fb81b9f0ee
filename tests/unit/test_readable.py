"""Readers with the same options read all that an append acknowledges; the rest is refused first."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from tests.helpers.forge import compress
from tests.hostile.material import resealed

LIMIT = 100_000  # of max_decompressed_bytes here
OVERHEAD = 20  # of a record, at most
CODECS = ("gzip", "snappy", "lz4", "zstd")
MANY_HEADERS = [("", None)] * (LIMIT // 176 + 1)
FEW_HEADERS = MANY_HEADERS[:300]


def batch_of(values: list[bytes], headers: list[tuple[str, bytes | None]] | None = None) -> bytes:
    return kstore.encode_batch([(1, b"k", value, headers) for value in values])


def moved(batch: bytes, base_offset: int) -> bytes:
    return struct.pack(">q", base_offset) + batch[8:]


def gathered(log: kstore.LogWriter, value: bytes) -> None:
    with log.appender(linger_ms=60_000, batch_bytes=1 << 30) as appender:
        appender.append(value, key=b"k")


WAYS: dict[str, Callable[[kstore.LogWriter, bytes], object]] = {
    "append": lambda log, value: log.append(value, key=b"k"),
    "extend": lambda log, value: log.extend([b"small", value], keys=[b"k", b"k"]),
    "appender": gathered,
    "append_batches": lambda log, value: log.append_batches(batch_of([value])),
}


def read(path: Path) -> int:
    """How many records readers find, in every way of reading."""
    with kstore.open(path, max_decompressed_bytes=LIMIT) as log:
        records = list(log)
        assert sum(len(batch.values) for batch in log.scan(["value"])) == len(records) == log.log_end_offset
    return len(records)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_unpacks_to_more_than_readers_allow_is_refused(
    tmp_path: Path, codec: str, way: str
) -> None:
    path = tmp_path / "t-0"
    with kstore.open(
        path, "a", compression_type=codec, max_message_bytes=1 << 20, max_decompressed_bytes=LIMIT
    ) as log:
        with pytest.raises(kstore.RecordTooLargeError, match="max_decompressed_bytes"):
            WAYS[way](log, bytes(LIMIT))
        assert log.log_end_offset == 0
        WAYS[way](log, bytes(LIMIT - OVERHEAD))
    assert read(path) > 0


@pytest.mark.parametrize("codec", CODECS)
def test_extend_fills_no_batch_beyond_what_readers_unpack(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "t-0"
    with kstore.open(
        path, "a", compression_type=codec, max_message_bytes=1 << 20, max_decompressed_bytes=LIMIT
    ) as log:
        log.extend([bytes(LIMIT // 3)] * 10, batch_bytes=1 << 30)
    assert read(path) == 10


def with_largest(largest: int, codec: str) -> bytes:
    """A batch of two records whose header has this largest timestamp."""
    batch = bytearray(kstore.encode_batch([(5, None, b"v", None), (7, None, b"w", None)], codec=codec))
    batch[35:43] = struct.pack(">q", largest)
    return resealed(bytes(batch))


def with_odd_record(codec: str) -> bytes:
    """A batch whose checksum is right, and whose record says that it has a header, and has none."""
    records = kstore.encode_batch([(5, None, b"v", None)])[61:-1] + b"\2"
    batch = kstore.encode_batch([(5, None, b"v", None)], codec=codec)[:61]
    payload = compress(codec, records)
    size = struct.pack(">i", 61 - 12 + len(payload))
    return resealed(batch[:8] + size + batch[12:] + payload)


ODD: dict[str, tuple[Callable[[str], bytes], type[Exception]]] = {
    "largest timestamp of none": (lambda codec: with_largest(-1, codec), kstore.InvalidTimestampError),
    "largest timestamp of the first": (lambda codec: with_largest(5, codec), kstore.InvalidTimestampError),
    "a broken record": (with_odd_record, kstore.InvalidRecordError),
    "more than readers unpack": (
        lambda codec: kstore.encode_batch([(5, None, bytes(LIMIT), None)], codec=codec),
        kstore.RecordTooLargeError,
    ),
    "headers": (
        lambda codec: kstore.encode_batch([(5, None, b"v", MANY_HEADERS)], codec=codec),
        kstore.RecordTooLargeError,
    ),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("codec", ["none", *CODECS])
def test_a_copy_takes_no_batch_that_readers_could_not_read(tmp_path: Path, codec: str, odd: str) -> None:
    make, error = ODD[odd]
    if (codec, odd) == ("none", "more than readers unpack"):
        pytest.skip("it is not packed")
    with kstore.open(tmp_path / "t-0", "a", max_decompressed_bytes=LIMIT) as log:
        with pytest.raises(error):
            log.append_batches(make(codec), keep_offsets=True)
        assert log.log_end_offset == 0
        log.append_batches(with_largest(7, codec), keep_offsets=True)
        log.append_batches(moved(with_largest(8, codec), 2), keep_offsets=True)
        found = log.find(timestamp=6)
        assert found.offset == 1
    assert read(tmp_path / "t-0") == 4


HEADER_WAYS: dict[str, Callable[[kstore.LogWriter, list[tuple[str, None]]], object]] = {
    "append": lambda log, headers: log.append(b"v", headers=headers),
    "extend, the same for all": lambda log, headers: log.extend([b"v", b"w"], headers=headers),
    "extend, for each": lambda log, headers: log.extend([b"v", b"w"], headers=[None, headers]),
    "appender": lambda log, headers: log.appender().append(b"v", headers=headers).wait(),
    "append_batches": lambda log, headers: log.append_batches(batch_of([b"v"], headers)),
}


@pytest.mark.parametrize("way", HEADER_WAYS)
@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_headers_of_which_readers_make_no_objects_are_refused(tmp_path: Path, codec: str, way: str) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a", compression_type=codec, max_decompressed_bytes=LIMIT) as log:
        with pytest.raises(kstore.RecordTooLargeError, match="headers"):
            HEADER_WAYS[way](log, MANY_HEADERS)
        assert log.log_end_offset == 0
        HEADER_WAYS[way](log, FEW_HEADERS)
    assert read(path) > 0
