"""What reaches a terminal: no control characters of keys, values, headers or names, which could command it."""

import re
from typing import Any, TextIO

# C0, DEL and C1, and the marks that turn the direction of text
_COMMANDS = re.compile("\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_BREAKS = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_ALL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _BREAKS.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def for_terminal(text: str) -> str:
    r"""`text` with \xNN for what a terminal would obey, but for tabs and the ends of lines."""
    return _COMMANDS.sub(_escaped, text)


def one_line(text: str) -> str:
    r"""`text` on one line, without tabs: \n, \t, \xNN for all that is no visible character."""
    return _ALL.sub(_escaped, text)


class Screen:
    """A text stream to a terminal that shows control characters instead of sending them."""

    def __init__(self, stream: TextIO) -> None:
        self.terminal = stream

    def write(self, text: str) -> int:
        self.terminal.write(for_terminal(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)
