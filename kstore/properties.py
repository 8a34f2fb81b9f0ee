"""Java properties files, and numbers as Java reads them."""

from __future__ import annotations

import os

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.typed import StrPath


def parse_integer(text: str) -> int:
    """A decimal integer as Java reads it: no underscores, no surrounding space."""
    if not is_integer(text):
        raise ValueError(text)
    return int(text)


def is_integer(text: str) -> bool:
    """Whether a text is a decimal integer as Java reads it."""
    digits = text[1:] if text.startswith(("+", "-")) else text
    return digits.isascii() and digits.isdecimal()


_MOST_BYTES = 16 << 20
# str.splitlines knows more ends of lines, one of them the second byte of "Å" in UTF-8.
_LINE_END = r"\r\n|\r|\n"
_ESCAPE = r"(?s)\\(u[0-9a-fA-F]{4}|.)"
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    import re

    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if code[0] == "u" and len(code) == 5 else _PLAIN.get(code, code)

    return re.sub(_ESCAPE, one, text)


def read_properties(path: StrPath) -> dict[str, str]:
    """What a Java properties file says. ValueError if it is longer than any is: a device may have no end.
    OSError."""
    # a FIFO without a writer would be waited for
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{path} is no properties file: it has more than {_MOST_BYTES} bytes")
    return parse_properties(data)


def parse_properties(data: bytes) -> dict[str, str]:
    """A Java properties file such as meta.properties: comments, continued lines, escapes, any of `=`, `:`,
    space."""
    import re  # imported here, because few programs read such a file

    properties = {}
    logical = ""
    lines = re.split(_LINE_END, data.decode("iso-8859-1"))
    for line in [*lines, ""]:  # the last one for a line that the file's end leaves to be continued
        line = line.lstrip(" \t\f")
        if not logical and line[:1] in ("#", "!", ""):
            continue
        logical += line
        if (len(logical) - len(logical.rstrip("\\"))) % 2:
            logical = logical[:-1]
            continue
        key = re.match(r"(?:\\.|[^\\=: \t\f])*", logical)
        assert key is not None
        rest = re.sub(r"^[ \t\f]*[=:]?[ \t\f]*", "", logical[key.end() :], count=1)
        properties[_unescape(key[0])] = _unescape(rest)
        logical = ""
    return properties
