"""Records of __consumer_offsets, __transaction_state and __share_group_state: a key and a value, each with a version.

The version of the key tells what the record is about; it is the api key of both messages.
"""

import base64
from typing import Any

from kstore.tools.internal.schema import (
    Cursor,
    DecodeError,
    Message,
    by_name,
    json_text,
    messages,
    read_message,
)

_TRANSACTIONS = ("TransactionLog",)
_SHARES = ("ShareSnapshot", "ShareUpdate")
_PROTOCOL = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}


def _message(kind: str, api_key: int, topic: tuple[str, ...]) -> Message:
    for message in messages():
        if message.kind == kind and message.api_key == api_key:
            other = message.name.startswith(_TRANSACTIONS + _SHARES)
            if message.name.startswith(topic) if topic else not other:
                return message
    raise DecodeError(f"a {kind} of the unknown type {api_key}")


def _decode(
    key: bytes | None, value: bytes | None, topic: tuple[str, ...] = ()
) -> tuple[str | None, str | None]:
    if key is None:
        raise DecodeError("a record without a key")
    cursor = Cursor(key)
    api_key = cursor.number("int16")
    about = _message("key", api_key, topic)
    # keys have one version each, which the number before them is not: that is their type
    data = read_message(about, cursor, about.versions.last)
    key_text = json_text({"type": str(api_key), "data": data})
    if value is None:
        return key_text, "<DELETE>"
    cursor = Cursor(value)
    version = cursor.number("int16")
    fields = read_message(_message("value", api_key, topic), cursor, version)
    if fields.get("protocolType") == "consumer":
        for member in fields["members"]:
            _open_member(member)
    return key_text, json_text({"version": str(version), "data": fields})


def _open_member(member: dict[str, Any]) -> None:
    """What the consumer protocol holds inside a group's metadata, in place of its bytes."""
    for name, message in _PROTOCOL.items():
        cursor = Cursor(base64.b64decode(member[name]))
        if cursor.left:
            version = min(cursor.number("int16"), by_name(message).versions.last)
            member[name] = read_message(by_name(message), cursor, version)


def decode_offsets(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """A record of __consumer_offsets."""
    return _decode(key, value)


def decode_transaction_log(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """A record of __transaction_state."""
    return _decode(key, value, _TRANSACTIONS)


def decode_share_group_state(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """A record of __share_group_state."""
    return _decode(key, value, _SHARES)
