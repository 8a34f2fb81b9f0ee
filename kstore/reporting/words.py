"""Sizes, times and numbers in words."""

from __future__ import annotations

from datetime import UTC, datetime


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def counted(number: int, noun: str) -> str:
    """So many of something."""
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def size_text(size: float) -> str:
    """Bytes in units of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 999.5:
            return f"{_short(size)} {unit}"
        size /= 1000
    return f"{_short(size)} TB"


def duration_text(ms: float) -> str:
    """A duration in its largest unit."""
    for unit, length in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1000)):
        if ms >= 2 * length:
            return f"{_short(ms / length)} {unit}"
    return f"{_short(ms)} ms"


def time_text(ms: int) -> str:
    """UTC to the second; "-" for no timestamp, the bare number where no calendar reaches."""
    if ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(ms)


def power_text(exponent: int) -> str:
    """2^exponent bytes."""
    return f"{1 << exponent % 10} {('B', 'KiB', 'MiB', 'GiB')[exponent // 10]}"


def ago_text(ms: int) -> str:
    """How long ago something was, or in how long it will be."""
    return f"{duration_text(ms)} ago" if ms >= 0 else f"in {duration_text(-ms)}"
