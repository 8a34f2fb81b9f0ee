"""A filter of Polars as a condition.

Polars gives an expression as JSON. What is not known in it is a condition that holds for every record.
"""

from __future__ import annotations

import json

from kstore.frames.conditions import (
    ANYTHING,
    FLIPPED,
    AllOf,
    AnyOf,
    Compare,
    Condition,
    HasHeader,
    IsIn,
    KeyPrefix,
    Nanoseconds,
)
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_OPERATORS = {"Eq": "==", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_UNITS = {"Nanoseconds": 1, "Microseconds": 1_000, "Milliseconds": 1_000_000}
_BETWEEN = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_INTEGERS = {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
_REPLACED = "\ufffd"  # in the name of a header: its bytes are not known


def condition_of(predicate: Any) -> Condition:
    """The condition that a Polars expression stands for, or a weaker one."""
    try:
        return _condition(json.loads(predicate.meta.serialize(format="json")))
    except Exception:  # noqa: BLE001 - another version of Polars has other expressions; it filters, too
        return ANYTHING


def _condition(node: Any) -> Condition:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            return AllOf((_condition(left), _condition(right)))
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            return AnyOf((_condition(left), _condition(right)))
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": op, "right": {"Literal": literal}}}:
            return _compare(name, _OPERATORS.get(op), literal)
        case {"BinaryExpr": {"left": {"Literal": literal}, "op": op, "right": {"Column": str(name)}}}:
            return _compare(name, FLIPPED.get(_OPERATORS.get(op, "")), literal)
        case {"Function": {"input": [{"Column": str(name)}, *arguments], "function": function}}:
            return _called(name, function, [argument.get("Literal") for argument in arguments])
    return ANYTHING


def _compare(name: str, comparison: str | None, literal: Any) -> Condition:
    value = _value(literal)
    return ANYTHING if comparison is None or value is None else Compare(name, comparison, value)


def _called(name: str, function: Any, arguments: list[Any]) -> Condition:
    match function, arguments:
        case {"Boolean": {"IsBetween": {"closed": closed}}}, [low, high]:
            least, most = _BETWEEN[closed]
            return AllOf((_compare(name, least, low), _compare(name, most, high)))
        case {"Boolean": {"IsIn": _}}, [values]:
            found = _values(values)
            return ANYTHING if None in found else IsIn(name, found)
        case (({"StringExpr": "StartsWith"} | {"BinaryExpr": "StartsWith"}), [prefix]) if name == "key":
            value = _value(prefix)
            return KeyPrefix(value) if isinstance(value, bytes) else ANYTHING
        case {"ListExpr": {"Contains": _}}, [{"Scalar": {"Struct": [["key", key], ["value", value]]}}]:
            text, cell = key.get("String"), None if value == "Null" else bytes(value["Binary"])
            if name == "headers" and isinstance(text, str) and _REPLACED not in text:
                return HasHeader(text, cell)
    return ANYTHING


def _value(literal: Any) -> object:
    """A literal as conditions have it: bytes, also for text, Nanoseconds for a time, an int; else None."""
    match literal:
        case {"Scalar": {"Datetime": [int(count), unit, _]}}:
            return Nanoseconds(count * _UNITS[unit])
        case {"Scalar": {"String": str(text)}} | {"Dyn": {"Str": str(text)}}:
            return text.encode()
        case {"Scalar": {"Binary": [*numbers]}}:
            return bytes(numbers)
        case {"Scalar": dict(scalar)} if scalar.keys() <= _INTEGERS:
            (number,) = scalar.values()
            return int(number)
        case {"Dyn": {"Int": int(number)}}:
            return number
    return None


def _values(literal: Any) -> tuple[object, ...]:
    """The values of a list, which is an Arrow stream in the JSON."""
    import io

    import polars

    frame = polars.read_ipc_stream(io.BytesIO(bytes(literal["Scalar"]["List"])))
    (column,) = frame.get_columns()
    if column.dtype == polars.Datetime:
        return tuple(time and Nanoseconds(time) for time in column.dt.timestamp("ns"))
    return tuple(
        value.encode() if isinstance(value, str) else value if isinstance(value, int | bytes) else None
        for value in column.to_list()
    )
