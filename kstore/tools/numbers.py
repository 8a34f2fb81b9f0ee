"""Numbers and times, as arguments of the command line and in words."""

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime
from time import time_ns

from kstore.arguments import MAX_OFFSET

MAX_INT32 = 2**31 - 1


def whole(what: str, least: int = 0, most: int = MAX_OFFSET) -> Callable[[str], int]:
    """A type for argparse: an int within limits, which errors call `what`."""

    def parse(text: str) -> int:
        # int() takes 1_000, spaces and digits of other scripts, too
        if not re.fullmatch("[+-]?[0-9]{1,99}", text):
            raise ArgumentTypeError(f"{text!r} is not {what}")
        number = int(text)
        if not least <= number <= most:
            raise ArgumentTypeError(f"{what} is from {least} to {most}, not {number}")
        return number

    return parse


offset = whole("an offset")
byte_count = whole("a number of bytes")
int32_bytes = whole("a number of bytes", 0, MAX_INT32)
count = whole("a number of records")


def counted(number: int, noun: str) -> str:
    """So many of something, in words."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


_LONGEST = 10**9  # seconds; the system waits no longer than 292 years


def seconds(text: str) -> float:
    """A time to wait."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= _LONGEST:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds, at most {_LONGEST:,}")
    return number


_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
TIMES_HELP = (
    "TIME is milliseconds since 1970; ISO 8601 such as 2026-11-21T06:00:00 (UTC if no zone is given); 90s, "
    "30m, 1h, 2d or 1w ago; today or yesterday, at 00:00 UTC; now"
)


def moment(text: str) -> int:
    """A point in time, in milliseconds since 1970: as TIMES_HELP has it."""
    try:
        number = _relative(text)
        if number is None:
            number = parse_time(text)
    except (ValueError, OverflowError) as e:
        raise ArgumentTypeError(str(e)) from None
    if not -MAX_OFFSET <= number <= MAX_OFFSET:
        raise ArgumentTypeError(f"{text!r} is no time that a record can have")
    return number


def _relative(text: str) -> int | None:
    """A time that is named by its distance from now, or None."""
    now_ms = time_ns() // 1_000_000
    if found := re.fullmatch(rf"([0-9]{{1,15}})({'|'.join(_UNITS)})", text):
        return now_ms - int(found[1]) * _UNITS[found[2]]
    day = _UNITS["d"]
    return {"now": now_ms, "today": now_ms - now_ms % day, "yesterday": now_ms - now_ms % day - day}.get(text)


def parse_time(text: str) -> int:
    """Milliseconds since 1970 from a number of them, or from ISO 8601 (UTC where no zone is given).
    ValueError."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither milliseconds nor a time such as 2026-11-21T06:00:00, 1h or yesterday"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def time_text(ms: int) -> str:
    """ISO 8601 to the millisecond, UTC; "-" for no timestamp, the bare number where no calendar reaches."""
    if ms < 0:
        return "-"
    try:
        return (
            datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (OverflowError, ValueError, OSError):
        return str(ms)


def age_text(ms: int) -> str:
    """A span of time in its largest unit that has at least one."""
    for unit, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        if ms >= size:
            return f"{ms / size:.1f} {unit}s"
    return f"{ms} ms"
