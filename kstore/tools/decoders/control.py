"""Control records of KRaft, as they stand after the record's metadata (spec 2.4, 11.2)."""

from typing import Final

from kstore.tools.decoders.json_text import json_text
from kstore.tools.decoders.reader import Reader
from kstore.tools.decoders.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Field,
    Message,
    Struct,
)

_LEADER_VOTER = Struct(
    Field("voterId", INT32),
    Field("voterDirectoryId", UUID, since=1),
)
_ENDPOINT = Struct(
    Field("name", STRING),
    Field("host", STRING),
    Field("port", UINT16),
)
_KRAFT_VERSIONS = Struct(
    Field("minSupportedVersion", INT16),
    Field("maxSupportedVersion", INT16),
)
_VOTER = Struct(
    Field("voterId", INT32),
    Field("voterDirectoryId", UUID),
    Field("endpoints", Array(_ENDPOINT)),
    Field("kRaftVersionFeature", _KRAFT_VERSIONS),
)
_VERSION: Final = Field("version", INT16)

# control type: the message; its name is what is printed before the JSON
RECORDS: Final = {
    2: Message(
        "LeaderChange:",
        _VERSION,
        Field("leaderId", INT32),
        Field("voters", Array(_LEADER_VOTER)),
        Field("grantingVoters", Array(_LEADER_VOTER)),
        highest=1,
    ),
    3: Message("SnapshotHeader", _VERSION, Field("lastContainedLogTimestamp", INT64)),
    4: Message("SnapshotFooter", _VERSION),
    5: Message("KRaftVersion", _VERSION, Field("kRaftVersion", INT16)),
    6: Message("KRaftVoters", _VERSION, Field("voters", Array(_VOTER))),
}


def control_text(control_type: int, value: bytes) -> str | None:
    """What is printed of a control record, None for other types.

    Kafka reads every one as version 0 and prints it as the version written in it; so its own
    leader changes of version 1, with directory ids, come out wrong or not at all. DecodeError where
    its tool dies.
    """
    message = RECORDS.get(control_type)
    if message is None:
        return None
    values = message.read_version(Reader(value), 0)
    version = values["version"]
    assert isinstance(version, int)
    return f" {message.name} {json_text(message.shown_version(values, version))}"
