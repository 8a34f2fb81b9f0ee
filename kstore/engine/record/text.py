"""Bytes as the text that Java makes of them."""

from __future__ import annotations

# Java takes an encoded surrogate, whole or cut off, as one malformed sequence; Python as one a byte.
_SURROGATE = rb"\xed[\xa0-\xbf][\x80-\xbf]?"


def java_text(data: bytes) -> str:
    """UTF-8, with U+FFFD where Java's decoder puts it for what is malformed."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        import re  # imported here, because few records need it

        return re.sub(_SURROGATE, b"\xef\xbf\xbd", data).decode("utf-8", "replace")
