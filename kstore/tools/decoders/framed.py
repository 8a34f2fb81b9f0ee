"""The frame of metadata records: frame version, type and version before the message."""

from typing import Final

from kstore.tools.decoders.errors import DecodeError
from kstore.tools.decoders.reader import Reader, int16
from kstore.tools.decoders.schema import Message, Table, Values

_FRAME_VERSION: Final = 1
_MAX: Final = 2**15 - 1


def _short(source: Reader, entity: str) -> int:
    try:
        value = source.varint()
    except DecodeError as error:
        raise DecodeError(f"Error while reading {entity}") from error
    if value > _MAX:
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
