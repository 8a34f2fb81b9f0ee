"""Committed positions in the format of the records of __consumer_offsets (spec 11): OffsetCommitKey and
OffsetCommitValue."""

from __future__ import annotations

import struct

from kstore.errors import CorruptRecordError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files.layout import TopicPartition
from kstore.log.follow.position import Position

if TYPE_CHECKING:
    from kstore.engine.record.batch import Record
    from kstore.log.view.log_view import LogView

MAX_METADATA_BYTES = 4096  # Kafka's offset.metadata.max.bytes
_KEY_VERSION = 1
_HEAD = struct.Struct(">hqi")  # version, offset, leader epoch
_TIME = struct.Struct(">qB")  # and the number of tagged fields
_ID, _GENERATION = struct.Struct(">BB16s"), struct.Struct(">BBq")  # tagged fields: tag, size, content
_VALUE_VERSION = 4
_MOST_METADATA = (1 << 14) - 2  # the largest length that a varint of two bytes holds
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


class OffsetAndMetadata(NamedTuple):
    """A committed position of a cursor.

    `offset`: the offset of the next record to read. `leader_epoch`: the leader epoch of the record before it,
    -1 if it is not known. `metadata`: the text passed to commit(). `timestamp`: the time of the commit in
    milliseconds since 1970.
    """

    offset: int
    leader_epoch: int
    metadata: str
    timestamp: int


class Commit(NamedTuple):
    """A committed position, the id of the partition's directory, and the generation of the log; None if it is
    not known, as in commits that were taken over from a broker."""

    position: OffsetAndMetadata
    partition_id: bytes
    generation: int | None = None

    def reading_position(self) -> Position:
        """The position at which reading continues. The time of the commit replaces a missing generation."""
        offset, epoch, _, timestamp = self.position
        generation = timestamp * 1_000_000 if self.generation is None else self.generation
        return Position(offset, epoch, generation)


def lag_behind(log: LogView, offset: int | None) -> int:
    """How many offsets lie between a position and the end of a log. None: nothing is committed, so reading
    begins at the log start. Negative if the position is beyond the end."""
    return log.log_end_offset - max(offset or 0, log.log_start_offset)


def encode_key(group: str, tp: TopicPartition) -> bytes:
    """Encode an OffsetCommitKey."""
    texts = b"".join(_SHORT.pack(len(text)) + text.encode() for text in (group, tp.topic))
    return _SHORT.pack(_KEY_VERSION) + texts + _INT.pack(tp.partition)


def encode_value(commit: Commit) -> bytes:
    """Encode an OffsetCommitValue of version 4. ValueError if a field is too long.

    The id of the partition takes the field of Kafka's topic id (tag 0), which is omitted if the id is empty.
    The generation is a field of kstore's own (tag 1).
    """
    (offset, epoch, text, timestamp), partition_id, generation = commit
    metadata = text.encode()
    if len(metadata) > _MOST_METADATA or len(partition_id) not in (0, 16):
        raise ValueError(f"{len(metadata)} bytes of metadata, {len(partition_id)} of an id")
    size = len(metadata) + 1
    length = bytes((size & 0x7F | 0x80, size >> 7)) if size >= 0x80 else bytes((size,))
    fields = []
    if partition_id:
        fields.append(_ID.pack(0, 16, partition_id))
    if generation is not None:
        fields.append(_GENERATION.pack(1, 8, generation))
    head = _HEAD.pack(_VALUE_VERSION, offset, epoch)
    return b"".join((head, length, metadata, _TIME.pack(timestamp, len(fields)), *fields))


def decode(group: str, record: Record, file: str, position: int) -> tuple[TopicPartition, Commit | None]:
    """The partition of a record and its commit, or None for a tombstone. `position`: that of its batch.
    CorruptRecordError."""
    try:
        tp = _decode_key(group, record.key or b"")
        return tp, None if record.value is None else _decode_value(record.value)
    except (ValueError, struct.error, IndexError):
        raise CorruptRecordError(
            "record of a commit",
            file=file,
            position=position,
            offset=record.offset,
            expected=f"an OffsetCommit of group {group!r}",
            found=f"key {record.key!r:.80}, value {record.value!r:.80}",
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
    at += size - 1
    timestamp, count = _TIME.unpack_from(value, at)
    at += _TIME.size
    *_, partition_id = _ID.unpack_from(value, at)
    generation = _GENERATION.unpack_from(value, at + _ID.size)[2] if count > 1 else None
    commit = Commit(OffsetAndMetadata(offset, epoch, text, timestamp), partition_id, generation)
    if encode_value(commit) != value or offset < 0:
        raise ValueError(f"value {value!r}")
    return commit
