"""Hypothesis strategies for the values of a table's messages."""

import base64

from hypothesis import strategies as st

from kstore.messages.schema import KINDS, Array, Field, Message, Struct


def _integer(size: int, signed: bool = True) -> st.SearchStrategy[int]:
    bits = 8 * size - signed
    return st.integers(-(2**bits) if signed else 0, 2**bits - 1)


_SIMPLE = {
    "int8": _integer(1),
    "int16": _integer(2),
    "uint16": _integer(2, signed=False),
    "int32": _integer(4),
    "int64": _integer(8),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16).map(
        lambda data: base64.urlsafe_b64encode(data).decode().rstrip("=")
    ),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    "bytes": st.binary(max_size=200),
}
_BY_KIND = {KINDS[name]: strategy for name, strategy in _SIMPLE.items()}


def _of_kind(kind: object, version: int, flexible: bool) -> st.SearchStrategy[object]:
    if isinstance(kind, Array):
        return st.lists(_of_kind(kind.element, version, flexible), max_size=3)
    if isinstance(kind, Struct):
        return _of_fields(kind, version, flexible)
    return _BY_KIND[kind]


def _of_field(field: Field, version: int, flexible: bool) -> st.SearchStrategy[object]:
    if not field.since <= version <= field.until or (field.tag is not None and not flexible):
        return st.just(field.absent())
    values = _of_kind(field.kind, version, flexible)
    return st.none() | values if field.nullable else values


def _of_fields(struct: Struct, version: int, flexible: bool) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({each.name: _of_field(each, version, flexible) for each in struct.fields})


def values_of(message: Message, version: int) -> st.SearchStrategy[dict[str, object]]:
    """Values of all fields of a version; the others have their defaults."""
    return _of_fields(message, version, version >= message.flexible)
