"""The records of coordinators: a type before the key, a version before the value (spec 11.1)."""

from collections.abc import Callable
from typing import Final, TypeAlias

from kstore.tools.decoders.errors import DecodeError, SkippedError, Texts
from kstore.tools.decoders.json_text import json_text
from kstore.tools.decoders.reader import Reader
from kstore.tools.decoders.schema import Message, Table, Values

Adjust: TypeAlias = Callable[[Message, Values], None]  # of what is shown of a value
_DELETE: Final = "<DELETE>"


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


def _decode(table: Table, key: bytes, value: bytes | None, adjust: Adjust | None) -> Texts:
    source = Reader(key)
    kind = _number(source, "key")
    if kind not in table.records:
        raise SkippedError(f"Unknown record type {kind} at offset ", ", skipping.")
    about, message = table.records[kind]
    assert about is not None  # each record of a coordinator has a key
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
    table: Table, key: bytes | None, value: bytes | None, adjust: Adjust | None = None
) -> Texts:
    """Key and payload as JSON, "<DELETE>" for a tombstone; bytes after a message do not matter.

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
