"""Updates of a share group's state as the records of Kafka's __share_group_state: ShareSnapshot, ShareUpdate."""

from __future__ import annotations

import struct

from kstore.engine.share.share_state import decode_value
from kstore.errors import CorruptRecordError
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

    from kstore.engine.record.batch import Record
    from kstore.engine.share.share_state import Update

    Keys: TypeAlias = tuple[bytes, bytes]  # of updates and of snapshots

_SNAPSHOT, _UPDATE = 0, 1  # versions of the key
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


def encode_keys(group: str, topic_id: bytes, partition: int) -> Keys:
    """The keys of updates and of snapshots."""
    rest = _SHORT.pack(len(group)) + group.encode() + topic_id + _INT.pack(partition)
    return _SHORT.pack(_UPDATE) + rest, _SHORT.pack(_SNAPSHOT) + rest


def decode(record: Record, keys: Keys, file: str, position: int) -> tuple[Update, int]:
    """The update of a record, and its snapshot epoch. `position`: that of its batch. CorruptRecordError."""
    try:
        return decode_value(record.value or b"", is_snapshot=bool(keys.index(record.key or b"")))
    except ValueError as e:
        raise CorruptRecordError(
            "record of a share group's state",
            file=file,
            position=position,
            offset=record.offset,
            expected="a ShareSnapshot or a ShareUpdate of the group and the partition",
            found=f"key {record.key!r:.80}, value {record.value!r:.80} ({e})",
        ) from None
