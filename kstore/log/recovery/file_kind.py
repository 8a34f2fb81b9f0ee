"""The kind of a file that contains no batch of Kafka's, in words for an error."""

from __future__ import annotations

from kstore.engine.io.file import File
from kstore.engine.record.batch import crc32c

_HEAD = 4 << 10  # bytes to examine
_SIGNATURES = (
    (b"\x1f\x8b", "compressed with gzip: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first"),
    (b"\x04\x22\x4d\x18", "compressed with lz4: unpack it first"),
    (b"\xff\x06\x00\x00sNaPpY", "compressed with snappy: unpack it first"),
    (b"\xfd7zXZ\x00", "compressed with xz: unpack it first"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"\xff\xff\xff\xff", "an Arrow stream, or bytes that are all ones"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"Salted__", "encrypted with openssl"),
    (b"\xff\xfe", "text in UTF-16, or what a program made of the file by taking it for text"),
    (b"\xfe\xff", "text in UTF-16, or what a program made of the file by taking it for text"),
)
_REDPANDA = 61  # bytes of a header


def kind_of(path: str) -> str:
    """The kind of a file, by its first bytes; "" if it is unknown or the file cannot be read."""
    try:
        head = File(path).read(0, _HEAD)
    except OSError:
        return ""
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    if head[257:262] == b"ustar":
        return "a tar archive: unpack it first"
    if _is_redpandas(head):
        return "a segment of Redpanda, whose format is another one: copy the records through the broker"
    if not any(head):
        return "zeros" if head else "empty"
    return "text" if _is_text(head) else ""


def _is_redpandas(head: bytes) -> bool:
    """Whether the bytes begin with a batch header of Redpanda: Kafka's fields in little-endian order."""
    if len(head) < _REDPANDA:
        return False
    return crc32c(head[4:_REDPANDA]) == int.from_bytes(head[:4], "little")


def _is_text(head: bytes) -> bool:
    try:
        text = head.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as e:
        if e.end < len(head) or e.start < len(head) - 3:  # else `head` ends inside a character
            return False
        text = head[: e.start].decode()
    return all(character.isprintable() or character in "\t\r\n\f" for character in text)
