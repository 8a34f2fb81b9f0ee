"""A filter of Arrow, which DuckDB makes of its own, as a condition.

Arrow has no way to look into an expression. Its serialized form is an Arrow file: the parts of the expression
are the metadata of the schema, in the order of a walk, and the literals are columns.
"""

from __future__ import annotations

import struct

from kstore.frames.conditions import (
    ANYTHING,
    FLIPPED,
    AllOf,
    AnyOf,
    Compare,
    Condition,
    IsIn,
    Nanoseconds,
)
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_OPERATORS = {"equal": "==", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


class _Call:
    """A call in an expression."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arguments: list[object] = []
        self.options: Any = None


class _Column(str):
    """A column in an expression."""


def condition_of(expression: Any) -> Condition:
    """The condition that a pyarrow Expression stands for, or a weaker one."""
    try:
        return _condition(_parsed(expression))
    except Exception:  # noqa: BLE001 - another version of Arrow has another form; it filters, too
        return ANYTHING


def columns_of(expression: Any) -> frozenset[str] | None:
    """The columns that a pyarrow Expression uses; None if that is not known."""
    try:
        return frozenset(text for kind, text in _parts(_serialized(expression)) if kind == "field_ref")
    except Exception:  # noqa: BLE001 - another version of Arrow has another form
        return None


def _serialized(expression: Any) -> Any:
    """The record batch that Arrow serializes an expression as."""
    import pyarrow

    _, (buffer,) = expression.__reduce__()
    with pyarrow.ipc.open_file(buffer) as file:
        return file.get_batch(0)


def _parsed(expression: Any) -> object:
    serialized = _serialized(expression)
    outermost = _Call("")
    calls = [outermost]
    for kind, text in _parts(serialized):
        if kind == "end":
            calls.pop()
        elif kind == "options":
            calls[-1].options = serialized.column(int(text))[0].as_py()
        else:
            found: object = _Column(text)
            if kind == "call":
                found = _Call(text)
            elif kind == "literal":
                found = _value(serialized.column(int(text))[0])
            calls[-1].arguments.append(found)
            if isinstance(found, _Call):
                calls.append(found)
    return outermost.arguments[0]


def _parts(serialized: Any) -> Iterator[tuple[str, str]]:
    """The parts of an expression: the metadata of the schema, with the repeated names that pyarrow's own
    mapping drops, from Arrow's C data interface."""
    import ctypes

    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = serialized.schema.__arrow_c_schema__()
    address = ctypes.cast(pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))[2]
    if not address:
        return

    def integer() -> int:
        nonlocal address
        (number,) = struct.unpack("=i", ctypes.string_at(address, 4))
        address += 4
        return int(number)

    def text() -> str:
        nonlocal address
        size = integer()
        found = ctypes.string_at(address, size).decode()
        address += size
        return found

    for _ in range(integer()):
        yield text(), text()


def _value(scalar: Any) -> object:
    """A literal as conditions have it: bytes, also for text, Nanoseconds for a time, an int; else None."""
    import pyarrow

    if pyarrow.types.is_timestamp(scalar.type):
        return None if scalar.value is None else Nanoseconds(scalar.value * _UNITS[scalar.type.unit])
    value = scalar.as_py()
    if isinstance(value, str):
        return value.encode()
    return value if type(value) is int or isinstance(value, bytes) else None


def _condition(node: object) -> Condition:
    if not isinstance(node, _Call):
        return ANYTHING
    match node.name, node.arguments:
        case "and_kleene" | "and", parts:
            return AllOf(tuple(map(_condition, parts)))
        case "or_kleene" | "or", parts:
            return AnyOf(tuple(map(_condition, parts)))
        case "if_else", [_Call(), then, None]:  # DuckDB's IN: null if the column is null
            return _condition(then)
        case "is_in", [_Column(name)]:
            values = tuple(
                each.encode() if isinstance(each, str) else each for each in node.options["value_set"]
            )
            is_known = all(type(each) is int or isinstance(each, bytes) for each in values)
            return IsIn(name, values) if is_known and name != "timestamp" else ANYTHING
        case comparison, [_Column(name), value] if comparison in _OPERATORS and value is not None:
            return Compare(name, _OPERATORS[comparison], value)
        case comparison, [value, _Column(name)] if comparison in _OPERATORS and value is not None:
            return Compare(name, FLIPPED[_OPERATORS[comparison]], value)
    return ANYTHING
