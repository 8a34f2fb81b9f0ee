"""Hypothesis strategies for the values of a table's messages."""

import base64

from hypothesis import strategies as st

from kstore.messages.schema import KINDS, Array, Field, Message, Struct


def text_of_id(data: bytes) -> str:
    """A UUID as Kafka prints it."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _integer(size: int, signed: bool = True) -> st.SearchStrategy[int]:
    bits = 8 * size - signed
    return st.integers(-(2**bits) if signed else 0, 2**bits - 1)


Special = dict[str, st.SearchStrategy[object]]
_SIMPLE = {
    "int8": _integer(1),
    "int16": _integer(2),
    "uint16": _integer(2, signed=False),
    "int32": _integer(4),
    "int64": _integer(8),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16).map(text_of_id),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
}
_BY_KIND = {KINDS[name]: strategy for name, strategy in _SIMPLE.items()}


class Strategies:
    """Values for a version. `special` has strategies for the fields whose names end so."""

    def __init__(self, version: int, flexible: bool, special: Special) -> None:
        self._version = version
        self._flexible = flexible
        self._special = special

    def _of_kind(self, kind: object, name: str) -> st.SearchStrategy[object]:
        if isinstance(kind, Array):
            return st.lists(self._of_kind(kind.element, name), max_size=3)
        if isinstance(kind, Struct):
            return self.of(kind)
        return next((one for end, one in self._special.items() if name.endswith(end)), _BY_KIND[kind])

    def _of_field(self, field: Field) -> st.SearchStrategy[object]:
        if not field.since <= self._version <= field.until or (field.tag is not None and not self._flexible):
            return st.just(field.absent())
        values = self._of_kind(field.kind, field.name)
        return st.none() | values if field.nullable_in(self._version) else values

    def of(self, struct: Struct) -> st.SearchStrategy[dict[str, object]]:
        return st.fixed_dictionaries({each.name: self._of_field(each) for each in struct.fields})


def values_of(message: Message, version: int, special: Special = {}) -> st.SearchStrategy[dict[str, object]]:  # noqa: B006
    """Values of all fields of a version; the others have their defaults."""
    return Strategies(version, version >= message.flexible, special).of(message)
