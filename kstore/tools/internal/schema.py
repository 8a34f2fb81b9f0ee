"""Kafka's generated messages: a reader of their encoding, driven by the tables in schemas.txt.

A table begins with `KIND NAME API_KEY VERSIONS FLEXIBLE_VERSIONS`; each field is a line `NAME TYPE VERSIONS`, then
`null VERSIONS` where it may be null, `tag N VERSIONS` where it is a tagged field, `default VALUE`. Fields of a struct
(`{}`) and of an array of structs (`[]{}`) stand below it, further in.
"""

import base64
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}
_EMPTY = {"string": "", "bytes": "", "bool": False, "uuid": "AAAAAAAAAAAAAAAAAAAAAA"}


class DecodeError(ValueError):
    """Bytes that are no such message."""


@dataclass(frozen=True)
class Versions:
    """A range such as 0-4, 3+, 2 or none."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        if text == "none":
            return cls(1, 0)
        first, dash, last = text.partition("-")
        if text.endswith("+"):
            return cls(int(text[:-1]), 32767)
        return cls(int(first), int(last) if dash else int(first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass
class Field:
    """One field of a message or struct."""

    name: str
    kind: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int
    tagged: Versions
    default: Any
    fields: list["Field"] = field(default_factory=list)


@dataclass
class Message:
    """One message: its kind ("key", "value", "record" or "data"), name, api key, versions and fields."""

    kind: str
    name: str
    api_key: int
    versions: Versions
    flexible: Versions
    fields: list[Field]


def _default(kind: str, is_array: bool, text: str | None) -> Any:
    if text == "null":
        return None
    if text is not None:
        return text == "true" if kind == "bool" else int(text) if kind in _NUMBERS else text
    return [] if is_array else _EMPTY.get(kind, {} if kind == "{}" else 0)


def _parse_field(words: list[str]) -> Field:
    name, kind, versions = words[:3]
    more = words[3:]
    none = Versions.parse("none")
    nullable, tag, tagged, default = none, -1, none, None
    while more:
        if more[0] == "null":
            nullable, more = Versions.parse(more[1]), more[2:]
        elif more[0] == "tag":
            tag, tagged, more = int(more[1]), Versions.parse(more[2]), more[3:]
        else:
            default, more = more[1], more[2:]
    is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    value = _default(kind, is_array, default)
    return Field(name, kind, is_array, Versions.parse(versions), nullable, tag, tagged, value)


_MESSAGES: dict[str, Message] = {}


def messages() -> list[Message]:
    """All tables, in the order of the file, which is read once."""
    if not _MESSAGES:
        _MESSAGES.update((message.name, message) for message in _read_tables())
    return list(_MESSAGES.values())


def _read_tables() -> list[Message]:
    found: list[Message] = []
    open_at: list[list[Field]] = []
    for line in (Path(__file__).parent / "schemas.txt").read_text("utf-8").splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        words = line.split()
        if not words:
            continue
        if depth == 0:
            kind, name, api_key, versions, flexible = words
            number = -1 if api_key == "-" else int(api_key)
            found.append(Message(kind, name, number, Versions.parse(versions), Versions.parse(flexible), []))
            open_at = [found[-1].fields]
            continue
        one = _parse_field(words)
        del open_at[depth:]
        open_at[depth - 1].append(one)
        open_at.append(one.fields)
    return found


def by_name(name: str) -> Message:
    """The message of this name."""
    messages()
    return _MESSAGES[name]


class Cursor:
    """Bytes to be read, never past their end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise DecodeError(f"at byte {self.at}: {size} bytes expected, {self.left} found")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, kind: str) -> Any:
        form = _NUMBERS[kind]
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def unsigned_varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise DecodeError(f"at byte {self.at}: a varint of more than 5 bytes")

    def length(self, kind: str, flexible: bool) -> int:
        """Of a string, bytes or an array; -1 for null."""
        if flexible:
            return self.unsigned_varint() - 1
        size: int = self.number("int16" if kind == "string" else "int32")
        return size


def _scalar(cursor: Cursor, one: Field, version: int, flexible: bool) -> Any:
    if one.kind in _NUMBERS:
        return cursor.number(one.kind)
    if one.kind == "bool":
        return cursor.take(1) != b"\0"
    if one.kind == "uuid":
        return base64.urlsafe_b64encode(cursor.take(16)).rstrip(b"=").decode()
    if one.kind == "{}":
        return read_fields(cursor, one.fields, version, flexible)
    size = cursor.length(one.kind, flexible)
    if size < 0:
        return _null(cursor, one, version)
    data = cursor.take(size)
    return data.decode("utf-8", "replace") if one.kind == "string" else base64.b64encode(data).decode()


def _null(cursor: Cursor, one: Field, version: int) -> None:
    if version not in one.nullable:
        raise DecodeError(f"at byte {cursor.at}: {one.name} is null")


def _value(cursor: Cursor, one: Field, version: int, flexible: bool) -> Any:
    if not one.is_array:
        return _scalar(cursor, one, version, flexible)
    count = cursor.length("array", flexible)
    if count < 0:
        return _null(cursor, one, version)
    if count > cursor.left:
        raise DecodeError(f"at byte {cursor.at}: an array of {count} in {cursor.left} bytes")
    plain = Versions.parse("none")
    element = Field(one.name, one.kind, False, one.versions, plain, -1, plain, None, one.fields)
    return [_scalar(cursor, element, version, flexible) for _ in range(count)]


def read_fields(cursor: Cursor, fields: list[Field], version: int, flexible: bool) -> dict[str, Any]:
    """A struct as Kafka's JSON has it: in the order of the table, tagged fields only where they are not default."""
    present = [one for one in fields if version in one.versions or version in one.tagged]
    values = {
        one.name: _value(cursor, one, version, flexible) for one in present if version not in one.tagged
    }
    if flexible:
        tagged = {one.tag: one for one in present if version in one.tagged}
        for _ in range(cursor.unsigned_varint()):
            tag = cursor.unsigned_varint()
            inner = Cursor(cursor.take(cursor.unsigned_varint()))
            if tag in tagged:
                values[tagged[tag].name] = _value(inner, tagged[tag], version, flexible)
    return {
        one.name: values[one.name]
        for one in present
        if one.name in values and (version not in one.tagged or values[one.name] != one.default)
    }


def read_message(message: Message, cursor: Cursor, version: int) -> dict[str, Any]:
    """One message of a version. DecodeError."""
    if version not in message.versions:
        raise DecodeError(f"version {version} of {message.name}: {message.versions} are known")
    return read_fields(cursor, message.fields, version, version in message.flexible)


def json_text(value: Any) -> str:
    """Compact JSON, as the tool prints it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
