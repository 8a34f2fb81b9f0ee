"""What reaches a terminal: no control characters of keys, values, headers or names, which could command
it."""

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from kstore.errors import escaped, visible

# C0, DEL and C1, and the marks that turn the direction of text
_COMMANDS = re.compile("\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def for_terminal(text: str) -> str:
    r"""`text` with \xNN for what a terminal would obey, but for tabs and the ends of lines."""
    return _COMMANDS.sub(escaped, text)


def say(*lines: object) -> None:
    """Prints lines on stdout. Whatever is in them, each stays one line, and no terminal obeys it."""
    for line in lines:
        print(visible(line))


def say_each(rows: Iterable[Any], text: Callable[[Any], str], *, as_json: bool) -> None:
    """Prints named tuples, each on a line: as a JSON object, or in words."""
    import json  # not for --help

    for row in rows:
        say(json.dumps(row._asdict()) if as_json else text(row))


def note(text: object) -> None:
    """Prints a line on stderr, as `say` does on stdout."""
    print(f"kstore: {visible(text)}", file=sys.stderr, flush=True)


class Screen:
    """A text stream to a terminal that shows control characters instead of sending them."""

    def __init__(self, stream: TextIO) -> None:
        self.terminal = stream

    def write(self, text: str) -> int:
        self.terminal.write(for_terminal(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)
