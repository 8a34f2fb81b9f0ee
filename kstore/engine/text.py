"""Bytes and text as Java reads them."""

import re

# Java takes an encoded surrogate, whole or cut off, as one malformed sequence; Python as one a byte.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def java_text(data: bytes) -> str:
    """UTF-8, with U+FFFD where Java's decoder puts it for what is malformed."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(b"\xef\xbf\xbd", data).decode("utf-8", "replace")


def java_integer(text: str, bits: int = 64) -> int:
    """A decimal integer: no underscores, no surrounding space, not too large. ValueError."""
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        raise ValueError(f"not a number of {bits} bits: {text!r}")
    return int(text)
