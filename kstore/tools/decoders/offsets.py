"""Records of __consumer_offsets (spec 11.1, --offsets-decoder): commits and groups of all kinds."""

from typing import Final

from kstore.tools.decoders.coordinated import Records, decode_coordinated
from kstore.tools.decoders.errors import DecodeError, Texts
from kstore.tools.decoders.groups import CONSUMER, SHARE, STREAMS
from kstore.tools.decoders.json_text import Value
from kstore.tools.decoders.reader import Reader
from kstore.tools.decoders.schema import (
    BYTES,
    INT32,
    INT32S,
    INT64,
    NEVER,
    STRING,
    STRINGS,
    UUID,
    Array,
    Field,
    Message,
    Struct,
    Values,
)

_COMMIT_KEY = Message(
    "OffsetCommitKey",
    Field("group", STRING),
    Field("topic", STRING),
    Field("partition", INT32),
    flexible=NEVER,
)
_MEMBER = Struct(
    Field("memberId", STRING),
    Field("groupInstanceId", STRING, since=3, nullable=True, default=None),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("rebalanceTimeout", INT32, since=1, default=-1),
    Field("sessionTimeout", INT32),
    Field("subscription", BYTES),
    Field("assignment", BYTES),
)
_GROUP: Final = Message(
    "GroupMetadata",
    Field("protocolType", STRING),
    Field("generation", INT32),
    Field("protocol", STRING, nullable=True),
    Field("leader", STRING, nullable=True),
    Field("currentStateTimestamp", INT64, since=2, default=-1),
    Field("members", Array(_MEMBER)),
    highest=4,
    flexible=4,
)

RECORDS: Final[Records] = {
    0: (  # before Kafka 0.9
        _COMMIT_KEY,
        Message(
            "LegacyOffsetCommit",
            Field("offset", INT64),
            Field("metadata", STRING),
            Field("commitTimestamp", INT64),
            flexible=NEVER,
        ),
    ),
    1: (
        _COMMIT_KEY,
        Message(
            "OffsetCommit",
            Field("offset", INT64),
            Field("leaderEpoch", INT32, since=3, default=-1),
            Field("metadata", STRING),
            Field("commitTimestamp", INT64),
            Field("expireTimestamp", INT64, since=1, until=1, default=-1),
            Field("topicId", UUID, since=4, tag=0),
            highest=4,
            flexible=4,
        ),
    ),
    2: (Message("GroupMetadataKey", Field("group", STRING), flexible=NEVER), _GROUP),
    **CONSUMER,
    **SHARE,
    **STREAMS,
}

_PARTITIONS = Struct(
    Field("topic", STRING),
    Field("partitions", INT32S),
)
# what members of a classic group of consumers tell each other
_PROTOCOL: Final = {
    "subscription": Message(
        "ConsumerProtocolSubscription",
        Field("topics", STRINGS),
        Field("userData", BYTES, nullable=True),
        Field("ownedPartitions", Array(_PARTITIONS), since=1),
        Field("generationId", INT32, since=2, default=-1),
        Field("rackId", STRING, since=3, nullable=True, default=None),
        highest=3,
        flexible=NEVER,
    ),
    "assignment": Message(
        "ConsumerProtocolAssignment",
        Field("assignedPartitions", Array(_PARTITIONS)),
        Field("userData", BYTES, nullable=True),
        highest=3,
        flexible=NEVER,
    ),
}


def _protocol(message: Message, data: Value) -> Value:
    """The fields of a member's message, or its bytes if they are none."""
    assert isinstance(data, bytes)
    source = Reader(data)
    try:
        version = source.number(2)
        return message.shown_version(message.read_version(source, version), version)
    except DecodeError:
        return data


def _open_members(message: Message, shown: Values) -> None:
    members = shown.get("members")
    if message is not _GROUP or shown["protocolType"] != "consumer":
        return
    assert isinstance(members, list)
    for member in members:
        assert isinstance(member, dict)
        for name, protocol in _PROTOCOL.items():
            member[name] = _protocol(protocol, member[name])


def decode_offsets(key: bytes | None, value: bytes | None) -> Texts:
    """Key and payload as JSON. DecodeError."""
    return decode_coordinated(RECORDS, key, value, _open_members)
