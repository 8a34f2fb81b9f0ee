"""Points in time as a user writes and reads them."""

from datetime import UTC, datetime


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
        raise ValueError(f"{text!r} is neither milliseconds nor a time such as 2026-11-21T06:00:00") from None
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
