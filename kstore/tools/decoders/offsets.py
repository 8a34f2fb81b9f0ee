"""Records of __consumer_offsets (spec 11.1, --offsets-decoder): commits and groups of all kinds."""

from kstore.tools.decoders.coordinated import decode_coordinated
from kstore.tools.decoders.errors import DecodeError, Texts
from kstore.tools.decoders.json_text import Value
from kstore.tools.decoders.reader import Reader
from kstore.tools.decoders.schema import Message, Table, Values
from kstore.tools.decoders.tables import OFFSETS

_PROTOCOL = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}


_TABLE = Table(OFFSETS)


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
    if message.name != "GroupMetadata" or shown["protocolType"] != "consumer":
        return
    assert isinstance(members, list)
    for member in members:
        assert isinstance(member, dict)
        for name, protocol in _PROTOCOL.items():
            member[name] = _protocol(_TABLE.messages[protocol], member[name])


def decode_offsets(key: bytes | None, value: bytes | None) -> Texts:
    """Key and payload as JSON. DecodeError."""
    return decode_coordinated(_TABLE, key, value, _open_members)
