"""Records of __share_group_state (spec 11.1, --share-group-state-decoder)."""

from typing import Final

from kstore.tools.decoders.coordinated import Records, decode_coordinated
from kstore.tools.decoders.errors import Texts
from kstore.tools.decoders.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    NEVER,
    STRING,
    UUID,
    Array,
    Field,
    Message,
    Struct,
)

_KEY = Message(
    "ShareKey",
    Field("groupId", STRING),
    Field("topicId", UUID),
    Field("partition", INT32),
    flexible=NEVER,
)
_STATE_BATCH = Struct(
    Field("firstOffset", INT64),
    Field("lastOffset", INT64),
    Field("deliveryState", INT8),
    Field("deliveryCount", INT16),
)

RECORDS: Final[Records] = {
    0: (
        _KEY,
        Message(
            "ShareSnapshot",
            Field("snapshotEpoch", INT32),
            Field("stateEpoch", INT32),
            Field("leaderEpoch", INT32),
            Field("startOffset", INT64),
            Field("deliveryCompleteCount", INT32, tag=0, default=-1),
            Field("createTimestamp", INT64),
            Field("writeTimestamp", INT64),
            Field("stateBatches", Array(_STATE_BATCH)),
        ),
    ),
    1: (
        _KEY,
        Message(
            "ShareUpdate",
            Field("snapshotEpoch", INT32),
            Field("leaderEpoch", INT32),
            Field("startOffset", INT64),
            Field("deliveryCompleteCount", INT32, tag=0, default=-1),
            Field("stateBatches", Array(_STATE_BATCH)),
        ),
    ),
}


def decode_shares(key: bytes | None, value: bytes | None) -> Texts:
    """Key and payload as JSON. DecodeError."""
    return decode_coordinated(RECORDS, key, value)
