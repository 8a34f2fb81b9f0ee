"""Records of __cluster_metadata and of the remote log metadata topic: a frame of varints, then a message."""

import re

from kstore.tools.internal.schema import (
    Cursor,
    DecodeError,
    Message,
    json_text,
    messages,
    read_message,
)


def type_name(message: Message) -> str:
    """NoOpRecord -> NO_OP_RECORD."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", message.name).upper()


def _is_remote(message: Message) -> bool:
    return message.name.startswith("Remote")


def _decode(value: bytes | None, remote: bool) -> str | None:
    if value is None:
        return None
    cursor = Cursor(value)
    if not remote:
        frame = cursor.unsigned_varint()
        if frame != 1:
            raise DecodeError(f"frame version {frame} of a metadata record: 1 is known")
    api_key, version = cursor.unsigned_varint(), cursor.unsigned_varint()
    for message in messages():
        if (message.kind, message.api_key, _is_remote(message)) in (
            ("record", api_key, remote),
            ("data" if remote else "", api_key, remote),
        ):
            data = read_message(message, cursor, version)
            return json_text({"type": type_name(message), "version": version, "data": data})
    raise DecodeError(f"metadata record of an unknown type {api_key}")


def decode_cluster_metadata(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """A record of __cluster_metadata; its key is not used."""
    return None if key is None else key.decode("utf-8", "replace"), _decode(value, remote=False)


def decode_remote_log_metadata(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """A record of the remote log metadata topic."""
    return None if key is None else key.decode("utf-8", "replace"), _decode(value, remote=True)
