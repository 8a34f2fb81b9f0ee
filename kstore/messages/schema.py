"""Kafka's generated messages: tables of fields, their decoding, encoding and output.

A message is encoded as its fields, in the order of the table. From its first flexible version on, lengths are
unsigned varints (the length plus one, 0 for null), and tagged fields follow at the end as number, size and
bytes. Names, nulls and defaults determine the output of Kafka's dump tool (spec 11). The tables are in
tables.py.
"""

import base64
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import groupby
from types import EllipsisType
from typing import Any, Final, NamedTuple

from kstore.engine.record.text import java_text
from kstore.messages.errors import DecodeError, EncodeError
from kstore.messages.json_text import Value
from kstore.messages.reader import Reader, int32
from kstore.messages.writer import Writer

NEVER: Final = 2**15  # above all versions, which have 16 bits
_MAX_STRING: Final = 2**15 - 1
_MOST_PLANS: Final = 32
_UUID: Final = re.compile(r"[\w-]{21}[AQgw]", re.ASCII)
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
    def write(self, target: Writer, form: Form, name: str, nullable: bool, value: Value) -> None:
        """Write a value; `name` is for errors. EncodeError."""

    @abstractmethod
    def default(self) -> Value:
        """The value of an absent field."""

    def shown(self, value: Value, version: int) -> Value:
        """The value in JSON."""
        return value


class Fixed(Kind):
    """A value of a fixed size: a number, a boolean, a UUID. `code` is that of the module struct, if it has
    one."""

    def __init__(
        self,
        code: str,
        read_one: Callable[[Reader], Value],
        write_one: Callable[[Writer, str, Value], None],
        zero: Value,
    ) -> None:
        self.code: Final = code
        self.read_one: Final = read_one
        self.write_one: Final = write_one
        self.zero: Final = zero

    def read(self, source: Reader, form: Form, name: str, nullable: bool) -> Value:
        return self.read_one(source)

    def write(self, target: Writer, form: Form, name: str, nullable: bool, value: Value) -> None:
        self.write_one(target, name, value)

    def default(self) -> Value:
        return self.zero


def _integer(size: int, code: str, *, signed: bool = True) -> Fixed:
    return Fixed(
        code,
        lambda source: source.number(size, signed),
        lambda target, name, value: target.number(value, size, signed, name),
        0,
    )


def _uuid(source: Reader) -> Value:
    return base64.urlsafe_b64encode(source.uuid()).decode().rstrip("=")


def _write_uuid(target: Writer, name: str, value: Value) -> None:
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise EncodeError(f"field {name} is not a UUID in URL-safe base64: {value!r}")
    target.raw(base64.urlsafe_b64decode(value + "=="))


def _write_bool(target: Writer, name: str, value: Value) -> None:
    if not isinstance(value, bool):
        raise EncodeError(f"field {name} is not a bool: {value!r}")
    target.number(int(value), 1, True, name)


def _write_float64(target: Writer, name: str, value: Value) -> None:
    if not isinstance(value, float):
        raise EncodeError(f"field {name} is not a float: {value!r}")
    target.float64(value)


def _length(source: Reader, form: Form, size: int, name: str, nullable: bool) -> int | None:
    length = int32(source.varint() - 1) if form.flexible else source.number(size)
    if length >= 0:
        return length
    if nullable:
        return None
    raise DecodeError(f"non-nullable field {name} was serialized as null")


def _write_length(target: Writer, form: Form, size: int, name: str, nullable: bool, length: int) -> None:
    """Write a length, -1 for null."""
    if length < 0 and not nullable:
        raise EncodeError(f"field {name} may not be null")
    if form.flexible:
        target.varint(length + 1)
    else:
        target.number(length, size, True, name)


class String(Kind):
    """A length and UTF-8; malformed bytes are replaced as in Java."""

    def read(self, source: Reader, form: Form, name: str, nullable: bool) -> Value:
        length = _length(source, form, 2, name, nullable)
        if length is None:
            return None
        if length > _MAX_STRING:
            raise DecodeError(f"string field {name} had invalid length {length}")
        return java_text(source.array(length))

    def write(self, target: Writer, form: Form, name: str, nullable: bool, value: Value) -> None:
        if value is not None and not isinstance(value, str):
            raise EncodeError(f"field {name} is not a str: {value!r}")
        data = b"" if value is None else value.encode()
        if len(data) > _MAX_STRING:
            raise EncodeError(f"field {name} has {len(data)} bytes, more than {_MAX_STRING}")
        _write_length(target, form, 2, name, nullable, -1 if value is None else len(data))
        target.raw(data)

    def default(self) -> Value:
        return ""


class Bytes(Kind):
    """A length and bytes."""

    def read(self, source: Reader, form: Form, name: str, nullable: bool) -> Value:
        length = _length(source, form, 4, name, nullable)
        return None if length is None else source.array(length)

    def write(self, target: Writer, form: Form, name: str, nullable: bool, value: Value) -> None:
        if value is not None and not isinstance(value, bytes):
            raise EncodeError(f"field {name} is not bytes: {value!r}")
        _write_length(target, form, 4, name, nullable, -1 if value is None else len(value))
        target.raw(value or b"")

    def default(self) -> Value:
        return b""


class Records(Kind):
    """A length and batches of records: read as a memoryview of the message, written from any buffer, or from
    an object with a `size` whose bytes follow there (Writer.attach)."""

    def read(self, source: Reader, form: Form, name: str, nullable: bool) -> Any:
        length = _length(source, form, 4, name, nullable)
        return None if length is None else source.view(length)

    def write(self, target: Writer, form: Form, name: str, nullable: bool, value: Any) -> None:
        if value is None or isinstance(value, bytes | bytearray | memoryview):
            _write_length(target, form, 4, name, nullable, -1 if value is None else len(value))
            target.raw(value or b"")
        elif isinstance(size := getattr(value, "size", None), int):
            _write_length(target, form, 4, name, nullable, size)
            target.attach(value)
        else:
            raise EncodeError(f"field {name} is neither bytes nor has it a size: {value!r}")

    def default(self) -> Value:
        return b""


class Array(Kind):
    """A number of values, and the values."""

    def __init__(self, element: Kind) -> None:
        self.element: Final = element

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

    def write(self, target: Writer, form: Form, name: str, nullable: bool, value: Value) -> None:
        if value is not None and not isinstance(value, list):
            raise EncodeError(f"field {name} is not a list: {value!r}")
        _write_length(target, form, 4, name, nullable, -1 if value is None else len(value))
        name += " element"
        for one in value or ():
            self.element.write(target, form, name, False, one)

    def default(self) -> Value:
        return []

    def shown(self, value: Value, version: int) -> Value:
        assert isinstance(value, list)
        return [self.element.shown(one, version) for one in value]


class Field(NamedTuple):
    """A field of a table, with the versions that have it.

    `nullable_since` is the first version in which it may be null. `default` is set if it differs from that of
    the kind and matters: for a tagged field, or one that some versions lack.
    """

    name: str
    kind: Kind
    since: int = 0
    until: int = NEVER
    tag: int | None = None
    nullable_since: int | None = None
    default: int | EllipsisType | None = ...

    def absent(self) -> Value:
        """The value of the field if it is absent."""
        return self.kind.default() if isinstance(self.default, EllipsisType) else self.default

    def nullable_in(self, version: int) -> bool:
        """Whether the field may be null in a version."""
        return self.nullable_since is not None and version >= self.nullable_since

    def read(self, source: Reader, form: Form) -> Value:
        """Read the value. DecodeError."""
        nullable = self.nullable_in(form.version)
        if nullable and self.tag is not None and isinstance(self.kind, Struct):
            if source.varint() <= 0:  # a varint for null; without a tag it is a byte
                return None
            nullable = False
        return self.kind.read(source, form, self.name, nullable)

    def write(self, target: Writer, form: Form, value: Value) -> None:
        """Write the value. EncodeError."""
        nullable = self.nullable_in(form.version)
        if nullable and self.tag is not None and isinstance(self.kind, Struct):
            target.varint(int(value is not None))
            if value is None:
                return
            nullable = False
        self.kind.write(target, form, self.name, nullable, value)


class _Run:
    """Fields of fixed sizes that follow each other: read and written at once, which takes a tenth of the
    time."""

    def __init__(self, fields: list[Field]) -> None:
        self.names = [field.name for field in fields]
        self._fields = [(field.name, field) for field in fields]
        kinds = [field.kind for field in fields]
        codes = [kind.code for kind in kinds if isinstance(kind, Fixed)]
        self._are_bools = [code == "?" for code in codes]
        self._packing = struct.Struct(">" + "".join(codes))

    def read(self, source: Reader) -> tuple[Any, ...]:
        """The values. DecodeError."""
        return source.unpack(self._packing)

    def write(self, target: Writer, form: Form, values: Values) -> None:
        """Write the values. EncodeError."""
        given = [values[name] if name in values else field.absent() for name, field in self._fields]
        # struct takes a bool for an int, and the reverse
        if [each.__class__ is bool for each in given] == self._are_bools:
            try:
                target.raw(self._packing.pack(*given))
                return
            except struct.error:
                pass  # the first wrong one is named below
        for (_, field), value in zip(self._fields, given, strict=True):
            field.write(target, form, value)


class Struct(Kind):
    """A sequence of fields, which can be the kind of a field."""

    def __init__(self, *fields: Field) -> None:
        self.fields: Final = fields
        self._names = {field.name for field in fields}
        self._plain = [field for field in fields if field.tag is None]
        self._plans: dict[int, list[_Run | Field]] = {}
        self._tagged = {field.tag: field for field in fields if field.tag is not None}

    def read(self, source: Reader, form: Form, name: str, nullable: bool) -> Value:
        if nullable and source.number(1) < 0:
            return None
        if form.version > form.highest:  # only a whole message is read in later versions
            raise DecodeError(f"Can't read version {form.version} of {name}")
        return self.read_fields(source, form)

    def _plan(self, version: int) -> list[_Run | Field]:
        """The fields of a version without tags, in order."""
        plan = self._plans.get(version)
        if plan is not None:
            return plan
        plan = []
        fields = [field for field in self._plain if field.since <= version <= field.until]
        for packed, group in groupby(
            fields, lambda each: isinstance(each.kind, Fixed) and each.kind.code != ""
        ):
            found = list(group)
            plan += [_Run(found)] if packed else found
        if len(self._plans) < _MOST_PLANS:  # a damaged record may claim any version
            self._plans[version] = plan
        return plan

    def read_fields(self, source: Reader, form: Form) -> Values:
        """Read the values of all fields, with the defaults of absent ones. DecodeError."""
        values = {field.name: field.absent() for field in self.fields}
        for step in self._plan(form.version):
            if isinstance(step, Field):
                values[step.name] = step.read(source, form)
            else:
                values.update(zip(step.names, step.read(source), strict=True))
        if form.flexible:
            self._read_tagged(source, form, values)
        return values

    def write(self, target: Writer, form: Form, name: str, nullable: bool, value: Value) -> None:
        if value is None and nullable:
            target.number(-1, 1, True, name)
            return
        if not isinstance(value, dict):
            raise EncodeError(f"field {name} is not a dict: {value!r}")
        if nullable:
            target.number(1, 1, True, name)
        self.write_fields(target, form, name, value)

    def write_fields(self, target: Writer, form: Form, name: str, values: Values) -> None:
        """Write the values of all fields of the version. Absent ones have their defaults. EncodeError."""
        unknown = values.keys() - self._names
        if unknown:
            raise EncodeError(f"{name} has no field {min(unknown)!r}")
        for step in self._plan(form.version):
            if isinstance(step, Field):
                value = values[step.name] if step.name in values else step.absent()
                step.write(target, form, value)
            else:
                step.write(target, form, values)
        if form.flexible:
            self._write_tagged(target, form, values)

    def _write_tagged(self, target: Writer, form: Form, values: Values) -> None:
        found: list[tuple[int, bytes]] = []
        for tag, field in self._tagged.items():
            value = values.get(field.name, field.absent())
            if field.since <= form.version <= field.until and value != field.absent():
                content = Writer()
                field.write(content, form, value)
                found.append((tag, content.getvalue()))
        target.varint(len(found))
        for tag, data in sorted(found):
            target.varint(tag)
            target.varint(len(data))
            target.raw(data)

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
        self.flexible: Final = flexible

    def read_version(self, source: Reader, version: int) -> Values:
        """Read all values. As in Kafka, a version above the highest is read as the highest. DecodeError."""
        version = max(version, 0)
        return self.read_fields(source, Form(version, version >= self.flexible, self.highest))

    def write_version(self, values: Values, version: int) -> bytes:
        """Encode the values for a version. A field that is absent has its default, and one that the version
        lacks is left out. EncodeError if the message has no such version, a field has no such value, or no
        field has such a name."""
        target = Writer()
        self.write_to(target, values, version)
        return target.getvalue()

    def write_to(self, target: Writer, values: Values, version: int) -> None:
        """Encode the values for a version behind what the target has. EncodeError, as `write_version`."""
        if not 0 <= version <= self.highest:
            raise EncodeError(f"{self.name} has no version {version}, the highest is {self.highest}")
        self.write_fields(target, Form(version, version >= self.flexible, self.highest), self.name, values)

    def shown_version(self, values: Values, version: int) -> Values:
        """The values in JSON for a version."""
        return self.shown_fields(values, max(version, 0))


KINDS: Final[dict[str, Kind]] = {
    "int8": _integer(1, "b"),
    "int16": _integer(2, "h"),
    "uint16": _integer(2, "H", signed=False),
    "int32": _integer(4, "i"),
    "int64": _integer(8, "q"),
    "float64": Fixed("d", Reader.float64, _write_float64, 0.0),
    "bool": Fixed("?", lambda source: source.number(1) != 0, _write_bool, False),
    "uuid": Fixed("", _uuid, _write_uuid, "A" * 22),  # URL-safe base64 without padding
    "string": String(),
    "bytes": Bytes(),
    "records": Records(),
}
_DEFAULTS: Final = {"null": None, "true": True}
_HEAD: Final = re.compile(
    r"(?:(?P<type>\d+) )?(?:(?P<key>\w+) -> )?(?P<name>\w+)(?: to (?P<highest>\d+))?"
    r"(?: flexible (?P<flexible>\d+)\+| (?P<rigid>rigid))?:"
)
_FIELD: Final = re.compile(
    r"(?P<name>\w+) (?P<array>\[)?(?P<kind>\w+)\]?(?P<nullable>\?(?:(?P<nullable_since>\d+)\+)?)?"
    r"(?: tag (?P<tag>\d+))?(?: (?P<since>\d+)(?:\+|-(?P<until>\d+)))?(?: = (?P<default>null|true|-?\d+))?"
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
        kind: Kind = KINDS.get(found["kind"]) or self.messages[found["kind"]]
        default = found["default"]
        return Field(
            found["name"],
            Array(kind) if found["array"] else kind,
            since=int(found["since"] or 0),
            until=int(found["until"] or NEVER),
            tag=None if found["tag"] is None else int(found["tag"]),
            nullable_since=int(found["nullable_since"] or 0) if found["nullable"] else None,
            default=... if default is None else _DEFAULTS[default] if default in _DEFAULTS else int(default),
        )
