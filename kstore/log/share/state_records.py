"""Updates of a share group's state as the records of Kafka's __share_group_state: ShareSnapshot, ShareUpdate.

Kafka's records have neither the worker nor the times of a record in flight, nor the generation of a log. They
are tagged fields, which Kafka's decoders skip.
"""

from __future__ import annotations

import struct

from kstore.errors import CorruptRecordError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.share.share_state import STATES, StateBatch, Update

if TYPE_CHECKING:
    from typing import TypeAlias

    from kstore.engine.record.batch import Record

    Keys: TypeAlias = tuple[bytes, bytes]  # of updates and of snapshots

_SNAPSHOT, _UPDATE = 0, 1  # versions of the key
_TAG = 100  # of kstore's fields; Kafka numbers its own from 0
_MOST_BATCHES = 1 << 15
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_UPDATE_HEAD = struct.Struct(">hiiq")  # version, snapshot epoch, leader epoch, start offset
_SNAPSHOT_HEAD = struct.Struct(">hiiiqqq")  # version, both epochs, leader epoch, start offset, both times
_BATCH = struct.Struct(">qqbhB")  # and the number of tagged fields
_IN_FLIGHT = struct.Struct(">BBqq")  # tag, size, worker, time
_GENERATION = struct.Struct(">BBBq")  # number of tagged fields, tag, size, generation


def encode_keys(group: str, topic_id: bytes, partition: int) -> Keys:
    """The keys of updates and of snapshots."""
    rest = _SHORT.pack(len(group)) + group.encode() + topic_id + _INT.pack(partition)
    return _SHORT.pack(_UPDATE) + rest, _SHORT.pack(_SNAPSHOT) + rest


def encode_value(update: Update, snapshot_epoch: int, now: int) -> bytes:
    """The value of a record, of version 0."""
    if update.is_snapshot:
        head = _SNAPSHOT_HEAD.pack(0, snapshot_epoch, 0, update.leader_epoch, update.start_offset, now, now)
    else:
        head = _UPDATE_HEAD.pack(0, snapshot_epoch, update.leader_epoch, update.start_offset)
    parts = [head, _varint(len(update.batches) + 1)]
    for first, last, state, count, worker, until in update.batches:
        has_tag = worker > 0 or until > 0
        parts.append(_BATCH.pack(first, last, state, count, has_tag))
        if has_tag:
            parts.append(_IN_FLIGHT.pack(_TAG, 16, worker, until))
    parts.append(b"\0" if update.generation < 0 else _GENERATION.pack(1, _TAG, 8, update.generation))
    return b"".join(parts)


def decode(record: Record, keys: Keys, file: str, position: int) -> tuple[Update, int]:
    """The update of a record, and its snapshot epoch. `position`: that of its batch. CorruptRecordError."""
    try:
        return _decode_value(record.value or b"", is_snapshot=keys.index(record.key or b"") == _UPDATE)
    except (ValueError, struct.error, IndexError):
        raise CorruptRecordError(
            "record of a share group's state",
            file=file,
            position=position,
            offset=record.offset,
            expected="a ShareSnapshot or a ShareUpdate of the group and the partition",
            found=f"key {record.key!r:.80}, value {record.value!r:.80}",
        ) from None


def _decode_value(value: bytes, *, is_snapshot: bool) -> tuple[Update, int]:
    if is_snapshot:
        version, epoch, _, leader_epoch, start, _, _ = _SNAPSHOT_HEAD.unpack_from(value)
        at = _SNAPSHOT_HEAD.size
    else:
        version, epoch, leader_epoch, start = _UPDATE_HEAD.unpack_from(value)
        at = _UPDATE_HEAD.size
    count, at = _read_varint(value, at)
    if version != 0 or not 0 < count <= _MOST_BATCHES or start < -1 or (is_snapshot and start < 0):
        raise ValueError
    batches = []
    for _ in range(count - 1):
        first, last, state, deliveries, tags = _BATCH.unpack_from(value, at)
        at += _BATCH.size
        worker = until = 0
        if tags:
            tag, size, worker, until = _IN_FLIGHT.unpack_from(value, at)
            at += _IN_FLIGHT.size
            if (tags, tag, size) != (1, _TAG, 16):
                raise ValueError
        if state not in STATES or min(first, deliveries, worker, until) < 0:
            raise ValueError
        batches.append(StateBatch(first, last, state, deliveries, worker, until))
    generation = -1
    if value[at]:
        tags, tag, size, generation = _GENERATION.unpack_from(value, at)
        if (tags, tag, size) != (1, _TAG, 8) or generation < 0:
            raise ValueError
        at += _GENERATION.size - 1
    if at + 1 != len(value):
        raise ValueError
    return Update(tuple(batches), start, leader_epoch, generation, is_snapshot), epoch


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while data[at] >= 0x80:
        if shift > 14:
            raise ValueError
        number |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return number | data[at] << shift, at + 1
