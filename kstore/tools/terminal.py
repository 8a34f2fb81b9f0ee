"""Output to terminals, with escapes for control characters of keys, values, headers and names."""

import re
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, TextIO

from kstore.errors import escaped, visible

# C0, DEL and C1, and the marks that change the direction of text
_COMMANDS = re.compile("\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def for_terminal(text: str) -> str:
    r"""`text` with \xNN for control characters, except tabs and line ends."""
    return _COMMANDS.sub(lambda found: escaped(found[0]), text)


def say(*lines: object) -> None:
    """Print lines on stdout, each on one line, with escapes for control characters."""
    for line in lines:
        print(visible(line))


def say_each(rows: Iterable[Any], text: Callable[[Any], str], *, as_json: bool) -> None:
    """Print named tuples, each on a line, as JSON or as text."""
    import json  # imported here: --help does not need it

    for row in rows:
        say(json.dumps(row._asdict()) if as_json else text(row))


def aligned(rows: Sequence[Sequence[str]], left: Container[int]) -> list[str]:
    """Rows of a table as lines. Columns whose numbers are in `left` are aligned to the left, others to the
    right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def note(text: object) -> None:
    """Print a line on stderr, with escapes for control characters."""
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
