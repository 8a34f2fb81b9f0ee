"""What callers give, checked before anything is touched: the right kind, in range, or an error that names the
argument."""

from __future__ import annotations

import sys
from itertools import islice
from operator import index, length_hint
from os import PathLike, fspath

from kstore.errors import visible
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from typing import TypeGuard, TypeVar

    _Instance = TypeVar("_Instance")
    _Element = TypeVar("_Element")

# What errors call two options: as Python does, and as Kafka does.
MAX_MESSAGE_BYTES_NAME = "max_message_bytes (max.message.bytes in Kafka)"
SEGMENT_BYTES_NAME = "segment_bytes (segment.bytes in Kafka), or internal_segment_bytes if that is set"
MAX32 = 2**31 - 1
MAX64 = 2**63 - 1
MAX_OFFSET = MAX64
MAX_EPOCH = MAX32
DURABILITY = ("none", "group", "each")
ISOLATION = ("read_uncommitted", "read_committed")
ON_ERROR = ("raise", "skip")
# What holds if nothing else is given.
INDEX_INTERVAL_BYTES = 4096  # Kafka's index.interval.bytes
MAX_DECOMPRESSED_BYTES = 256 << 20  # that one batch may unpack to
# As seconds since 1970 these are in 2001 and 2106. As milliseconds they are in January and February 1970,
# which no record of today has: a number between them is most likely in the wrong unit.
FIRST_SECOND = 1_000_000_000
LAST_SECOND = 2**32 - 1
_INFINITY = float("inf")


def integer(name: str, value: object, least: int = 0, most: int = MAX_OFFSET, kind: str = "an int") -> int:
    """`value` as an int from `least` to `most`.

    TypeError unless it is an int or behaves as one (a numpy integer); bool and float do not count. ValueError
    out of range. kind: what else is allowed there, in the words of the error.
    """
    if type(value) is int:  # most are: this is called once or more for each append or lookup
        number = value
    elif isinstance(value, bool | type) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {kind}, not {value!r:.80} ({type(value).__name__})")
    else:
        number = _index(name, value, kind)
    if not least <= number <= most:
        raise ValueError(f"{name} is from {least} to {most}, not {number}")
    return number


def _index(name: str, value: object, kind: str) -> int:
    try:
        return index(value)  # type: ignore[arg-type] # an array has __index__, too, and refuses
    except TypeError:
        raise TypeError(f"{name} is {kind}, not {value!r:.80} ({type(value).__name__})") from None


def instance(name: str, value: object, kind: type[_Instance]) -> _Instance:
    """`value`. TypeError unless it is an instance of that class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is of the class {kind.__name__}, not {value!r:.80} ({type(value).__name__})")
    return value


def instances(name: str, values: Iterable[object], kind: type[_Instance]) -> list[_Instance]:
    """`values` as a list. TypeError unless each is an instance of that class."""
    return [instance(f"each of {name}", value, kind) for value in elements(f"{name} are several", values)]


def elements(expected: str, values: Iterable[_Element], most: int | None = None) -> tuple[_Element, ...]:
    """The elements of any iterable, at most so many of them, as a tuple, which no other thread changes.

    TypeError, whose words begin with `expected`, for text, for bytes of any kind, whose elements are numbers,
    and for what is no iterable. ValueError if there are more than can be counted.
    """
    if type(values) is tuple or type(values) is list:
        return tuple(values)
    found = each_of(expected, values)
    if most is not None:
        return tuple(islice(found, most))
    try:
        length_hint(found)
    except OverflowError:  # as tuple() would raise it
        raise ValueError(f"{expected}, not as many as this {type(values).__name__} has") from None
    return tuple(found)


def each_of(expected: str, values: Iterable[_Element]) -> Iterator[_Element]:
    """An iterator of the elements. TypeError as in `elements`."""
    try:
        if isinstance(values, str | bytes | bytearray | memoryview):
            raise TypeError
        return iter(values)
    except TypeError:  # which is not shown as text: that may be as large as the records
        raise TypeError(f"{expected}, not {type(values).__name__}") from None


def checked_url(name: str, value: str) -> str:
    """A URL, without a slash at its end. TypeError, ValueError."""
    if "://" not in path_text(name, value):
        raise ValueError(f"{name} must be a URL, such as s3://bucket/logs, not {value!r}")
    return value.rstrip("/")


def path_text(name: str, value: object) -> str:
    """`value` as the text of a path. TypeError unless it is a str or a path object; ValueError for one with a
    NUL byte, as Python's own calls say it: Path.exists() and its kin only say no."""
    path = fspath(value) if isinstance(value, str | PathLike) else None
    if not isinstance(path, str):
        raise TypeError(f"{name} is a str or an os.PathLike, not {value!r:.80} ({type(value).__name__})")
    if "\0" in path:
        raise ValueError(f"embedded null byte in the path {path!r}")
    return path


def is_url(path: object) -> bool:
    """Whether a path is a URL, such as s3://bucket/logs/orders-0. TypeError for what is no path."""
    return "://" in path_text("path", path)


def local_path(name: str, value: object) -> str:
    """`value` as the text of a path that is no URL. TypeError, ValueError."""
    if is_url(value):
        raise ValueError(f"{value} is a URL: {name} must be a local directory")
    return path_text(name, value)


def is_datetime(value: object) -> TypeGuard[datetime]:
    """Whether a value is a datetime."""
    if type(value) is int:  # as most are: the import takes longer than the rest of a call
        return False
    from datetime import datetime  # imported here, because few programs have one

    return isinstance(value, datetime)


def _since_1970(value: datetime) -> int:
    from datetime import UTC, datetime, timedelta

    return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def milliseconds(name: str, value: object, least: int = 0, most: int = MAX_OFFSET) -> int:
    """A moment as milliseconds since 1970: an int of them, or an aware datetime (its microseconds are cut
    off).

    TypeError for a float (time.time() counts seconds) and all else, ValueError for a naive datetime or out of
    range.
    """
    if is_datetime(value):
        if value != value:  # noqa: PLR0124 - NaT, which pandas calls a datetime
            raise ValueError(f"{name} is not a time: {value!r}")
        if value.tzinfo is None or value.utcoffset() is None:
            raise ValueError(
                f"{name} is a datetime without a time zone: give it one, such as timezone.utc of the module "
                "datetime"
            )
        value = _since_1970(value)
    elif isinstance(value, float):
        meant = "int(time.time() * 1000)" if value <= LAST_SECOND else "int() of it, if it is"
        raise TypeError(f"{name} is milliseconds since 1970 as an int, not the float {value!r}: {meant}")
    elif isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(
            f"{name} is an int, not {value!r} ({type(value).__name__}): milliseconds since 1970, or a "
            "datetime with a time zone"
        )
    return integer(name, value, least, most)


def moment(name: str, value: object, least: int = 0, most: int = MAX_OFFSET) -> int:
    """`milliseconds`, with a UserWarning if the number looks like seconds. For a method that a user calls."""
    if type(value) is int and value > LAST_SECOND and least <= value <= most:  # as most are
        return value
    ms = milliseconds(name, value, least, most)
    if not is_datetime(value):
        warn_of_seconds(name, ms)
    return ms


def warn_of_seconds(name: str, ms: int) -> None:
    """UserWarning for a number of milliseconds that would be a time of our days if it were seconds."""
    if FIRST_SECOND <= ms <= LAST_SECOND:
        warn(
            f"{name} {ms} is milliseconds since 1970, so a day of January or February 1970; if seconds were "
            f"meant, multiply by 1000: {ms * 1000}"
        )


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """A warning that names the line of the program that called kstore, however deep in kstore it is given."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "kstore":
        level, frame = level + 1, frame.f_back
    import warnings

    warnings.warn(visible(text), category, stacklevel=level)


def choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """`value` if it is one of these words. ValueError, with the words."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} is one of {', '.join(map(repr, choices))}, not {value!r}")
    return value


def boolean(name: str, value: object) -> bool:
    """`value` if it is True or False. TypeError for all else: None and "no" would decide something, too."""
    if value is True or value is False:
        return value
    raise TypeError(f"{name} must be True or False, not {value!r}")


def any_integer(name: str, value: object, kind: str = "an int") -> int:
    """`value` as an int of any size, for what is compared with a log's own range next. TypeError as in
    `integer`."""
    if type(value) is int:
        return value
    return integer(name, value, -(2**255), 2**255, kind)


def number(name: str, value: object, least: float, most: float = _INFINITY) -> float:
    """`value` as a float from `least` to `most`: seconds or milliseconds to wait. TypeError for what is no
    number, ValueError for one out of range, and for nan."""
    if isinstance(value, bool | type) or not (isinstance(value, float) or hasattr(value, "__index__")):
        raise TypeError(f"{name} is a number, not {value!r} ({type(value).__name__})")
    value = value if isinstance(value, float) else _index(name, value, "a number")
    if not least <= value <= most:
        bounds = f"at least {least}" if most == _INFINITY else f"from {least} to {most}"
        raise ValueError(f"{name} is a number {bounds}, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        return _INFINITY
