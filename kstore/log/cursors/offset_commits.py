"""Committed positions as the records that Kafka keeps in __consumer_offsets (spec 11): OffsetCommitKey,
OffsetCommitValue."""

import struct
from typing import NamedTuple

from kstore.engine.append import commit_appender
from kstore.engine.record.batch import Record
from kstore.errors import CorruptRecordError
from kstore.log.files.layout import TopicPartition

MAX_METADATA_BYTES = 4096  # Kafka's offset.metadata.max.bytes
_KEY_VERSION = 1
_HEAD = struct.Struct(">hqi")  # version, offset, leader epoch
_TAIL = struct.Struct(">qBBB16s")  # time, one tagged field, its tag 0 and size, the topic id
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


class OffsetAndMetadata(NamedTuple):
    """A committed position of a cursor.

    `offset` is that of the next record to read. `leader_epoch` is that of the record before it, -1 if it is
    not known. `metadata` is the text given to commit(), `timestamp` the time of the commit in milliseconds
    since 1970.
    """

    offset: int
    leader_epoch: int
    metadata: str
    timestamp: int


class Commit(NamedTuple):
    """What a group has committed for a partition, of the directory that has this id."""

    position: OffsetAndMetadata
    partition_id: bytes


def encode_key(group: str, tp: TopicPartition) -> bytes:
    """An OffsetCommitKey."""
    texts = b"".join(_SHORT.pack(len(text)) + text.encode() for text in (group, tp.topic))
    return _SHORT.pack(_KEY_VERSION) + texts + _INT.pack(tp.partition)


def encode_value(commit: Commit) -> bytes:
    """An OffsetCommitValue; the id is where Kafka has that of the topic, if it has one."""
    offset, epoch, metadata, timestamp = commit.position
    return commit_appender.encode_value(offset, epoch, metadata.encode(), timestamp, commit.partition_id)


def decode(group: str, record: Record, file: str) -> tuple[TopicPartition, Commit | None]:
    """Whose position a record is, and the position; None if it was removed. CorruptRecordError."""
    try:
        tp = _decode_key(group, record.key or b"")
        return tp, None if record.value is None else _decode_value(record.value)
    except (ValueError, struct.error, IndexError) as e:
        raise CorruptRecordError(
            "record of a commit", file=file, offset=record.offset, expected="an OffsetCommit", found=str(e)
        ) from None


def _decode_key(group: str, key: bytes) -> TopicPartition:
    at = 2
    texts = []
    for _ in range(2):
        (size,) = _SHORT.unpack_from(key, at)
        texts.append(key[at + 2 : at + 2 + size].decode("ascii"))
        at += 2 + size
    tp = TopicPartition(texts[1], _INT.unpack_from(key, at)[0])
    if texts[0] != group or encode_key(group, tp) != key:
        raise ValueError(f"key {key!r}")
    return tp


def _decode_value(value: bytes) -> Commit:
    _, offset, epoch = _HEAD.unpack_from(value)
    at = _HEAD.size
    size = value[at]
    at += 1
    if size >= 0x80:
        size += (value[at] << 7) - 0x80
        at += 1
    text = value[at : at + size - 1].decode()
    timestamp, *_, partition_id = _TAIL.unpack_from(value, at + size - 1)
    commit = Commit(OffsetAndMetadata(offset, epoch, text, timestamp), partition_id)
    if encode_value(commit) != value or offset < 0:
        raise ValueError(f"value {value!r}")
    return commit
