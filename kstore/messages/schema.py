"""Kafka's generated messages: tables of fields, their decoding and their output.

A message is encoded as its fields, in the order of the table. From its first flexible version on, lengths are
unsigned varints (the length plus one, 0 for null), and tagged fields follow at the end as number, size and
bytes. Names, nulls and defaults determine the output of Kafka's dump tool (spec 11). The tables are in
tables.py.
"""

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import Final, NamedTuple

from kstore.engine.record.text import java_text
from kstore.messages.errors import DecodeError
from kstore.messages.json_text import Value
from kstore.messages.reader import Reader, int32

NEVER: Final = 2**15  # above all versions, which have 16 bits
_MAX_STRING: Final = 2**15 - 1
_UNKNOWN_TAGS: Final = ""  # no field has this name

Values = dict[str, Value]


class Form(NamedTuple):
    """The encoding of a message."""

    version: int
    flexible: bool
    highest: int


class Kind(ABC):
    """A type of fields."""

    @abstractmethod
    def read(self, source: Reader, form: Form, name: str, nullable: bool) -> Value:
        """Read a value; `name` is for errors. DecodeError."""

    @abstractmethod
    def default(self) -> Value:
        """The value of an absent field."""

    def shown(self, value: Value, version: int) -> Value:
        """The value in JSON."""
        return value


@dataclass(frozen=True, slots=True)
class Fixed(Kind):
    """A value of a fixed size: a number, a boolean, a UUID."""

    read_one: Callable[[Reader], Value]
    zero: Value

    def read(self, source: Reader, form: Form, name: str, nullable: bool) -> Value:
        return self.read_one(source)

    def default(self) -> Value:
        return self.zero


def _integer(size: int, *, signed: bool = True) -> Fixed:
    return Fixed(lambda source: source.number(size, signed), 0)


def _uuid(source: Reader) -> Value:
    return base64.urlsafe_b64encode(source.uuid()).decode().rstrip("=")


def _length(source: Reader, form: Form, size: int, name: str, nullable: bool) -> int | None:
    length = int32(source.varint() - 1) if form.flexible else source.number(size)
    if length >= 0:
        return length
    if nullable:
        return None
    raise DecodeError(f"non-nullable field {name} was serialized as null")


class String(Kind):
    """A length and UTF-8; malformed bytes are replaced as in Java."""

    def read(self, source: Reader, form: Form, name: str, nullable: bool) -> Value:
        length = _length(source, form, 2, name, nullable)
        if length is None:
            return None
        if length > _MAX_STRING:
            raise DecodeError(f"string field {name} had invalid length {length}")
        return java_text(source.array(length))

    def default(self) -> Value:
        return ""


class Bytes(Kind):
    """A length and bytes."""

    def read(self, source: Reader, form: Form, name: str, nullable: bool) -> Value:
        length = _length(source, form, 4, name, nullable)
        return None if length is None else source.array(length)

    def default(self) -> Value:
        return b""


@dataclass(frozen=True, slots=True)
class Array(Kind):
    """A number of values, and the values."""

    element: Kind

    def read(self, source: Reader, form: Form, name: str, nullable: bool) -> Value:
        count = _length(source, form, 4, name, nullable)
        if count is None:
            return None
        if count > source.remaining:  # no element is empty, so this bounds the loop
            raise DecodeError(
                f"Tried to allocate a collection of size {count}, "
                f"but there are only {source.remaining} bytes remaining."
            )
        name += " element"
        return [self.element.read(source, form, name, False) for _ in range(count)]

    def default(self) -> Value:
        return []

    def shown(self, value: Value, version: int) -> Value:
        assert isinstance(value, list)
        return [self.element.shown(one, version) for one in value]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a table, with the versions that have it.

    `default` is set if it differs from that of the kind and matters: for a tagged field, or one that some
    versions lack.
    """

    name: str
    kind: Kind
    since: int = 0
    until: int = NEVER
    tag: int | None = None
    nullable: bool = False
    default: int | EllipsisType | None = ...

    def absent(self) -> Value:
        """The value of the field if it is absent."""
        return self.kind.default() if isinstance(self.default, EllipsisType) else self.default

    def read(self, source: Reader, form: Form) -> Value:
        """Read the value. DecodeError."""
        nullable = self.nullable
        if nullable and self.tag is not None and isinstance(self.kind, Struct):
            if source.varint() <= 0:  # a varint for null; without a tag it is a byte
                return None
            nullable = False
        return self.kind.read(source, form, self.name, nullable)


class Struct(Kind):
    """A sequence of fields, which can be the kind of a field."""

    def __init__(self, *fields: Field) -> None:
        self.fields: Final = fields
        self._plain = [field for field in fields if field.tag is None]
        self._tagged = {field.tag: field for field in fields if field.tag is not None}

    def read(self, source: Reader, form: Form, name: str, nullable: bool) -> Value:
        if nullable and source.number(1) < 0:
            return None
        if form.version > form.highest:  # only a whole message is read in later versions
            raise DecodeError(f"Can't read version {form.version} of {name}")
        return self.read_fields(source, form)

    def read_fields(self, source: Reader, form: Form) -> Values:
        """Read the values of all fields, with the defaults of absent ones. DecodeError."""
        values = {field.name: field.absent() for field in self.fields}
        for field in self._plain:
            if field.since <= form.version <= field.until:
                values[field.name] = field.read(source, form)
        if form.flexible:
            self._read_tagged(source, form, values)
        return values

    def _read_tagged(self, source: Reader, form: Form, values: Values) -> None:
        for _ in range(source.varint()):  # each takes two bytes, which bounds the loop
            tag = source.varint()
            size = source.varint()
            field = self._tagged.get(tag)
            if field is None:
                source.array(size)
                values[_UNKNOWN_TAGS] = True  # so that the struct differs from its default
            elif form.version < field.since:
                raise DecodeError(f"Tag {tag} is not valid for version {form.version}")
            else:  # Kafka reads the field and ignores its size
                values[field.name] = field.read(source, form)

    def default(self) -> Value:
        return {field.name: field.absent() for field in self.fields}

    def shown(self, value: Value, version: int) -> Value:
        assert isinstance(value, dict)
        return self.shown_fields(value, version)

    def shown_fields(self, values: Values, version: int) -> Values:
        """The fields to print: those of this version, tagged ones unless they are the default."""
        shown: Values = {}
        for field in self.fields:
            value = values[field.name]
            if not field.since <= version <= field.until:
                continue
            if field.tag is not None and value == field.absent():
                continue
            shown[field.name] = None if value is None else field.kind.shown(value, version)
        return shown


class Message(Struct):
    """A message, with its highest version and its first flexible one."""

    def __init__(self, name: str, *fields: Field, highest: int = 0, flexible: int = 0) -> None:
        super().__init__(*fields)
        self.name: Final = name
        self.highest: Final = highest
        self._flexible = flexible

    def read_version(self, source: Reader, version: int) -> Values:
        """Read all values. As in Kafka, a version above the highest is read as the highest. DecodeError."""
        version = max(version, 0)
        return self.read_fields(source, Form(version, version >= self._flexible, self.highest))

    def shown_version(self, values: Values, version: int) -> Values:
        """The values in JSON for a version."""
        return self.shown_fields(values, max(version, 0))


_KINDS: Final[dict[str, Kind]] = {
    "int8": _integer(1),
    "int16": _integer(2),
    "uint16": _integer(2, signed=False),
    "int32": _integer(4),
    "int64": _integer(8),
    "float64": Fixed(Reader.float64, 0.0),
    "bool": Fixed(lambda source: source.number(1) != 0, False),
    "uuid": Fixed(_uuid, "A" * 22),  # URL-safe base64 without padding
    "string": String(),
    "bytes": Bytes(),
}
_HEAD: Final = re.compile(
    r"(?:(?P<type>\d+) )?(?:(?P<key>\w+) -> )?(?P<name>\w+)(?: to (?P<highest>\d+))?"
    r"(?: flexible (?P<flexible>\d+)\+| (?P<rigid>rigid))?:"
)
_FIELD: Final = re.compile(
    r"(?P<name>\w+) (?P<array>\[)?(?P<kind>\w+)\]?(?P<nullable>\?)?(?: tag (?P<tag>\d+))?"
    r"(?: (?P<since>\d+)(?:\+|-(?P<until>\d+)))?(?: = (?P<default>null|-?\d+))?"
)


class Table:
    """The messages of a topic: `records` by type, each with the message of its key if the table has one,
    `messages` by name."""

    def __init__(self, text: str) -> None:
        self.messages: dict[str, Message] = {}
        self.records: dict[int, tuple[Message | None, Message]] = {}
        for line in text.strip().replace("\n    ", " ").splitlines():
            head = _HEAD.match(line)
            assert head is not None, line
            fields = [self._field(part) for part in line[head.end() :].split(",") if part.strip()]
            flexible = NEVER if head["rigid"] else int(head["flexible"] or 0)
            message = Message(head["name"], *fields, highest=int(head["highest"] or 0), flexible=flexible)
            self.messages[message.name] = message
            if head["type"]:
                self.records[int(head["type"])] = self.messages.get(head["key"]), message

    def _field(self, text: str) -> Field:
        found = _FIELD.fullmatch(text.strip())
        assert found is not None, text
        kind: Kind = _KINDS.get(found["kind"]) or self.messages[found["kind"]]
        default = found["default"]
        return Field(
            found["name"],
            Array(kind) if found["array"] else kind,
            since=int(found["since"] or 0),
            until=int(found["until"] or NEVER),
            tag=None if found["tag"] is None else int(found["tag"]),
            nullable=found["nullable"] is not None,
            default=... if default is None else None if default == "null" else int(default),
        )
