"""The records of __consumer_offsets that a coordinator of classic groups reads and writes."""

from __future__ import annotations

import struct
from typing import Any, Final

from kstore.engine.record.batch import Record
from kstore.errors import CorruptRecordError
from kstore.messages.errors import DecodeError
from kstore.messages.reader import Reader
from kstore.messages.schema import Table
from kstore.messages.tables import OFFSETS
from kstore.serving.groups.group import Group, GroupState, Member
from kstore.serving.state_topic import StateRecord

_TABLE: Final = Table(OFFSETS)
_GROUP_KEY, _GROUP = _TABLE.records[2]
_SUBSCRIPTION: Final = _TABLE.messages["ConsumerProtocolSubscription"]
_VERSION: Final = 3  # what Kafka 4 writes
_GROUP_TYPE: Final = 2
_TYPE: Final = struct.Struct(">h")


def record_type(record: Record) -> int:
    """The type of a record, -1 if its key has none."""
    key = record.key or b""
    return int(_TYPE.unpack_from(key)[0]) if len(key) >= _TYPE.size else -1


def group_key(group_id: str) -> bytes:
    """The key of a group's record."""
    assert _GROUP_KEY is not None
    return _TYPE.pack(_GROUP_TYPE) + _GROUP_KEY.write_version({"group": group_id}, 0)


def group_record(group: Group) -> StateRecord:
    """The record of a group with its members and their assignments."""
    members = [
        {
            "memberId": each.member_id,
            "groupInstanceId": each.instance_id,
            "clientId": each.client_id,
            "clientHost": each.client_host,
            "rebalanceTimeout": each.rebalance_timeout_ms,
            "sessionTimeout": each.session_timeout_ms,
            "subscription": each.metadata(group.protocol),
            "assignment": each.assignment,
        }
        for each in group.members.values()
    ]
    values: dict[str, Any] = {
        "protocolType": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "currentStateTimestamp": group.state_since,
        "members": members,
    }
    return group_key(group.group_id), _TYPE.pack(_VERSION) + _GROUP.write_version(values, _VERSION)


def group_in(record: Record, file: str, now: int) -> tuple[str, Group | None] | None:
    """The id of a group and the group in a record, None if it was removed; None for a record of another type.
    The sessions of its members begin at `now`. CorruptRecordError."""
    if record_type(record) != _GROUP_TYPE:
        return None
    try:
        assert record.key is not None
        assert _GROUP_KEY is not None
        key: Any = _GROUP_KEY.read_version(Reader(record.key[2:]), _GROUP_TYPE)
        if record.value is None:
            return key["group"], None
        source = Reader(record.value)
        version = source.number(2)
        if not 0 <= version <= _GROUP.highest:
            raise DecodeError(f"version {version}")
        return key["group"], _group_of(key["group"], _GROUP.read_version(source, version), now)
    except DecodeError as e:
        raise CorruptRecordError(
            "record of a group", file=file, offset=record.offset, expected="a GroupMetadata", found=str(e)
        ) from None


def _group_of(group_id: str, values: Any, now: int) -> Group:
    protocol = values["protocol"]
    members = {
        each["memberId"]: Member(
            each["memberId"],
            each["groupInstanceId"],
            each["clientId"],
            each["clientHost"],
            each["sessionTimeout"] if each["rebalanceTimeout"] < 0 else each["rebalanceTimeout"],
            each["sessionTimeout"],
            ((protocol or "", each["subscription"]),),
            each["assignment"],
            deadline=now + each["sessionTimeout"],
        )
        for each in values["members"]
    }
    return Group(
        group_id,
        GroupState.STABLE if members else GroupState.EMPTY,
        values["currentStateTimestamp"],
        values["generation"],
        values["protocolType"] or None,
        protocol,
        values["leader"],
        members,
    )


def subscribed_topics(group: Group) -> set[str] | None:
    """The topics that members of a consumer group subscribe to; None if that is not known."""
    if group.protocol_type != "consumer":
        return None
    topics: set[str] = set()
    for member in group.members.values():
        source = Reader(member.metadata(group.protocol))
        try:
            source.number(2)
            values: Any = _SUBSCRIPTION.read_version(source, 0)  # later versions begin with its fields
        except DecodeError:
            return None
        topics.update(values["topics"])
    return topics
