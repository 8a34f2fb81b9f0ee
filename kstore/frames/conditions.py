"""Conditions on columns, and the bounds of a scan that follow from them.

The filters of Polars and of Arrow, which DuckDB uses, become conditions; what a scan can use of a condition
is decided here. Bounds may be wider than the condition: the library that has the filter applies it, too.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

from kstore.arguments import MAX64
from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FLIPPED = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NS = 1_000_000  # nanoseconds of a millisecond


class Nanoseconds(int):
    """A time since 1970. An int that is not one is a time in milliseconds."""


class Compare(NamedTuple):
    """A column compared with a value. Keys are bytes."""

    column: str
    operator: str
    value: object


class IsIn(NamedTuple):
    """Whether a column has one of these values."""

    column: str
    values: tuple[object, ...]


class KeyPrefix(NamedTuple):
    """Whether the key begins with these bytes."""

    prefix: bytes


class HasHeader(NamedTuple):
    """Whether the record has this header."""

    name: str
    value: bytes | None


class AllOf(NamedTuple):
    """Whether all of these conditions hold."""

    parts: tuple[Condition, ...]


class AnyOf(NamedTuple):
    """Whether one of these conditions holds."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = "Compare | IsIn | KeyPrefix | HasHeader | AllOf | AnyOf"
ANYTHING = AllOf(())  # also for a filter that no condition expresses


class Bounds(NamedTuple):
    """start <= offset < stop, since <= timestamp < until, how the key begins, whether that is all of it, and
    headers: as options of a scan."""

    start: int = 0
    stop: int = MAX64
    since: int = -MAX64
    until: int = MAX64
    prefix: bytes = b""
    is_key: bool = False
    headers: tuple[HasHeader, ...] = ()

    def options(self) -> dict[str, object]:
        """The options of `PartitionLog.scan`, without those that every record fulfils."""
        found: dict[str, object] = {
            name: value
            for name, value in self._asdict().items()
            if name in ("start", "stop", "since", "until") and value != _FREE[name]
        }
        if self.is_key or self.prefix:
            found["key" if self.is_key else "key_prefix"] = self.prefix
        if self.headers:
            found["header"] = {header.name: header.value for header in self.headers}
        return found


_FREE = Bounds()._asdict()


def bounds_of(condition: Condition, known: Mapping[str, object]) -> Bounds | None:
    """The bounds of the records for which a condition can be true, with the values of some columns known.
    None if it is true for no record."""
    match condition:
        case AllOf(parts):
            found: Bounds | None = Bounds()
            for part in parts:
                other = bounds_of(part, known)
                found = None if found is None or other is None else _both(found, other)
            return found
        case AnyOf(parts):
            some = [each for each in (bounds_of(part, known) for part in parts) if each is not None]
            return _hull(some) if some else None
        case HasHeader():
            return Bounds(headers=(condition,))
        case KeyPrefix(prefix):
            return Bounds(prefix=prefix)
        case IsIn(column, values):
            return bounds_of(AnyOf(tuple(Compare(column, "==", value) for value in values)), known)
        case Compare(column, comparison, value):
            if column in known:
                return _compared(known[column], comparison, value)
            if column == "key" and comparison == "==" and isinstance(value, bytes):
                return Bounds(prefix=value, is_key=True)
            if column == "offset" and type(value) is int:
                return _with_offset(comparison, value)
            if column == "timestamp" and isinstance(value, int):
                return _with_time(comparison, value, _NS if isinstance(value, Nanoseconds) else 1)
    return Bounds()


def _compared(known: object, comparison: str, value: object) -> Bounds | None:
    try:
        return Bounds() if _COMPARISONS[comparison](known, value) else None
    except TypeError:
        return Bounds()


def _with_offset(comparison: str, value: int) -> Bounds | None:
    least = value + (comparison == ">") if comparison in ("==", ">", ">=") else 0
    stop = value + (comparison != "<") if comparison in ("==", "<", "<=") else MAX64
    return _sound(Bounds(start=max(least, 0), stop=max(min(stop, MAX64), 0)))


def _with_time(comparison: str, value: int, tick: int) -> Bounds | None:
    """A library may round a time to milliseconds, down or up, so both are inside."""
    since = value // tick if comparison in ("==", ">", ">=") else -MAX64
    until = -(-value // tick) + 1 if comparison in ("==", "<", "<=") else MAX64
    return _sound(Bounds(since=max(since, -MAX64), until=min(until, MAX64)))


def _sound(bounds: Bounds) -> Bounds | None:
    return bounds if bounds.start < bounds.stop and bounds.since < bounds.until else None


def _both(one: Bounds, other: Bounds) -> Bounds | None:
    """The bounds of records inside of both."""
    longer, shorter = (
        (one, other) if (one.is_key, len(one.prefix)) >= (other.is_key, len(other.prefix)) else (other, one)
    )
    if not longer.prefix.startswith(shorter.prefix) or (shorter.is_key and shorter.prefix != longer.prefix):
        return None
    names = {header.name for header in one.headers}
    return _sound(
        Bounds(
            max(one.start, other.start),
            min(one.stop, other.stop),
            max(one.since, other.since),
            min(one.until, other.until),
            longer.prefix,
            longer.is_key,
            # a scan takes one value for each name
            one.headers + tuple(header for header in other.headers if header.name not in names),
        )
    )


def _hull(some: list[Bounds]) -> Bounds:
    """The bounds of records inside of any of these."""
    first = some[0]
    return Bounds(
        min(each.start for each in some),
        max(each.stop for each in some),
        min(each.since for each in some),
        max(each.until for each in some),
        _common([each.prefix for each in some]),
        all(each.is_key and each.prefix == first.prefix for each in some),
        tuple(header for header in first.headers if all(header in each.headers for each in some)),
    )


def _common(prefixes: list[bytes]) -> bytes:
    least, most = min(prefixes), max(prefixes)
    size = next((at for at, byte in enumerate(least) if most[at : at + 1] != bytes((byte,))), len(least))
    return least[:size]
