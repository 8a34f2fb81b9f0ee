"""Decoders of Kafka's internal topics, and of KRaft's control records (spec 2.4, 11.1, 11.2).

A record of a coordinator begins its key with a type and its value with a version. A record of metadata has a
frame before the message: frame version, type and version.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from kstore.messages.errors import DecodeError, SkippedError, Texts
from kstore.messages.json_text import Value, json_text
from kstore.messages.reader import Reader, int16
from kstore.messages.schema import Message, Table, Values
from kstore.messages.tables import CONTROL, METADATA, OFFSETS, SHARES, TRANSACTIONS

_Adjust: TypeAlias = Callable[[Message, Values], None]  # changes the shown fields of a value
_DELETE: Final = "<DELETE>"
_FRAME_VERSION: Final = 1
_CONTROL: Final = Table(CONTROL)
_METADATA: Final = Table(METADATA)
_OFFSETS: Final = Table(OFFSETS)
_SHARES: Final = Table(SHARES)
_TRANSACTIONS: Final = Table(TRANSACTIONS)
_PROTOCOL: Final = {
    "subscription": "ConsumerProtocolSubscription",
    "assignment": "ConsumerProtocolAssignment",
}


def control_text(control_type: int, value: bytes) -> str | None:
    """The text of a control record, None for other types. DecodeError where Kafka's tool ends.

    Kafka reads every control record as version 0 and prints it as the version in the record. Its own leader
    changes of version 1, with directory ids, are therefore printed wrongly or not at all.
    """
    if control_type not in _CONTROL.records:
        return None
    _, message = _CONTROL.records[control_type]
    values = message.read_version(Reader(value), 0)
    version = values["version"]
    assert isinstance(version, int)
    name = message.name + ":" * (message.name == "LeaderChange")
    return f" {name} {json_text(message.shown_version(values, version))}"


def _number(source: Reader, name: str) -> int:
    try:
        return source.number(2)
    except DecodeError as error:
        raise DecodeError(f"Could not read version from {name}'s buffer.") from error


def _read(message: Message, source: Reader, version: int, name: str) -> Values:
    try:
        return message.read_version(source, version)
    except DecodeError as error:
        raise DecodeError(
            f"Could not read record with version {version} from {name}'s buffer due to: {error.reason}."
        ) from error


def _decode(table: Table, key: bytes, value: bytes | None, adjust: _Adjust | None) -> Texts:
    source = Reader(key)
    kind = _number(source, "key")
    if kind not in table.records:
        raise SkippedError(f"Unknown record type {kind} at offset ", ", skipping.")
    about, message = table.records[kind]
    assert about is not None  # each record type of a coordinator has a key
    data = about.shown_version(_read(about, source, kind, "key"), 0)
    key_text = json_text({"type": str(kind), "data": data})
    if value is None:
        return key_text, _DELETE
    source = Reader(value)
    version = _number(source, "value")
    if not 0 <= version <= message.highest:
        raise DecodeError(f"Found an unknown record version {version} for {kind} type")
    shown = message.shown_version(_read(message, source, version, "value"), version)
    if adjust is not None:
        adjust(message, shown)
    return key_text, json_text({"version": str(version), "data": shown})


def decode_coordinated(
    table: Table, key: bytes | None, value: bytes | None, adjust: _Adjust | None = None
) -> Texts:
    """Key and payload as JSON, "<DELETE>" for a tombstone. Bytes after a message are ignored.

    SkippedError; DecodeError for a record without a key, which ends Kafka's tool.
    """
    if key is None:
        raise DecodeError("Failed to decode message (message had a missing key)")
    try:
        return _decode(table, key, value, adjust)
    except SkippedError:
        raise
    except DecodeError as error:
        raise SkippedError("Error at offset ", f", skipping. {error.reason}") from error


def _protocol(message: Message, data: Value) -> Value:
    """The fields of a member's message, or its bytes if they cannot be decoded."""
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
            member[name] = _protocol(_OFFSETS.messages[protocol], member[name])


def decode_offsets(key: bytes | None, value: bytes | None) -> Texts:
    """Key and payload as JSON. DecodeError."""
    return decode_coordinated(_OFFSETS, key, value, _open_members)


def decode_transactions(key: bytes | None, value: bytes | None) -> Texts:
    """Key and payload as JSON. DecodeError."""
    return decode_coordinated(_TRANSACTIONS, key, value)


def decode_shares(key: bytes | None, value: bytes | None) -> Texts:
    """Key and payload as JSON. DecodeError."""
    return decode_coordinated(_SHARES, key, value)


def _short(source: Reader, entity: str) -> int:
    try:
        value = source.varint()
    except DecodeError as error:
        raise DecodeError(f"Error while reading {entity}") from error
    if value > 2**15 - 1:
        raise DecodeError(f"Value for {entity} was too large.")
    return int16(value)


def read_framed(table: Table, data: bytes | None) -> tuple[Message, int, Values]:
    """The message in a frame, its version and its values. DecodeError."""
    source = Reader(data or b"")
    frame = _short(source, "frame version")
    if frame == 0:
        raise DecodeError(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from "
            "the preview release of KRaft in 2.8 to newer versions are not supported."
        )
    if frame != _FRAME_VERSION:
        raise DecodeError(
            f"Could not deserialize metadata record due to unknown frame version {frame}"
            f"(only frame version {_FRAME_VERSION} is supported)"
        )
    kind = _short(source, "type")
    version = _short(source, "version")
    if kind not in table.records:
        raise DecodeError(
            f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {kind}"
        )
    _, message = table.records[kind]
    try:
        values = message.read_version(source, version)
    except DecodeError as error:
        raise DecodeError(f"Failed to deserialize record with type {kind}") from error
    if source.remaining:
        raise DecodeError(f"Found {source.remaining} byte(s) of garbage after {kind}")
    return message, version, values


def decode_metadata(key: bytes | None, value: bytes | None) -> Texts:
    """The payload as JSON; keys are not shown. SkippedError."""
    try:
        message, version, values = read_framed(_METADATA, value)
    except DecodeError as error:
        raise SkippedError("Error at ", f", skipping. {error.reason}", as_payload=True) from error
    data = message.shown_version(values, version)
    return None, json_text({"type": message.name, "version": version, "data": data})
