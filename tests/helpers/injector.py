"""Something happens at the nth point of what the main thread executes: an exception, or a call.

Kinds of points:

"line": every line that begins in a file of kstore. Left out are lines at which CPython runs no signal
handler, and knows no `with` or `try` around it: the moment in which a `with` statement calls `__exit__`, the
word `try`, and the moment in which an `except` clause is left by a `return`.

"check": every moment in which CPython runs the handlers of signals that have come (after a call, at the start
of a function, at the end of a loop's turn), in kstore and in the library functions that it calls. The tracer
comes one instruction later. Left out is the last call in a `with` or `try`: CPython raises within it, and the
tracer after it.
"""

import dis
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import kstore
from tests.helpers.children import say

PACKAGE = str(Path(kstore.__file__).parent) + "/"
TESTS = str(Path(__file__).parents[1]) + "/"
LOOKS_FOR_SIGNALS = ("CALL", "PRECALL", "RESUME", "JUMP_BACKWARD", "INSTRUMENTED_CALL", "INSTRUMENTED_RESUME")


class InjectedInterrupt(KeyboardInterrupt):
    """Ctrl-C."""


class InjectedMemoryError(MemoryError):
    """No memory."""


_code_of = functools.cache(lambda code: code.co_code)  # reading it makes a copy


def _at(code: CodeType, at: int) -> str:
    return dis.opname[_code_of(code)[at]]


def _before(code: CodeType, at: int) -> str:
    """The name of the operation that ends at this position."""
    operations = _code_of(code)
    while at > 0:
        at -= 2
        if operations[at] != dis.opmap["CACHE"]:
            return dis.opname[operations[at]]
    return "RESUME"


@functools.cache
def _is_nothing(code: CodeType, at: int) -> bool:
    """Whether a `with` begins to call __exit__ here, a line is only `try`, or an `except` ends."""
    operations = _code_of(code)
    if dis.opname[operations[at]] in ("NOP", "POP_EXCEPT"):
        return True
    names = [
        (dis.opname[operations[i]], operations[i + 1]) for i in range(at, min(at + 16, len(operations)), 2)
    ]
    while names and names[0][0] in ("SWAP", "NOP", "POP_TOP", "COPY"):
        names.pop(0)
    if [name for name, _ in names[:2]] == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]:
        return True
    three = names[:3]
    return len(three) == 3 and all(
        name in ("LOAD_CONST", "LOAD_CONST_IMMORTAL") and code.co_consts[arg] is None for name, arg in three
    )


@functools.cache
def _looks_for_signals(code: CodeType, at: int) -> bool:
    """Whether the operation before this position looks, and raises to where an exception here leads."""
    handlers = [
        next((e.target for e in dis._parse_exception_table(code) if e.start <= place < e.end), None)  # type: ignore[attr-defined]
        for place in (at - 2, at)
    ]
    return _before(code, at).startswith(LOOKS_FOR_SIGNALS) and handlers[0] == handlers[1]


class Injector:
    """`with Injector(kind, nth, what):` calls `what` at the nth point; `count` is how many points there were.

    Without `nth`, `where` has the place of each point.
    """

    def __init__(self, kind: str, nth: int = 0, what: Callable[[], None] | None = None) -> None:
        self.kind = kind
        self.nth = nth
        self.what = what
        self.count = 0
        self.where: list[str] = []
        self.done = False
        # Held here: where the garbage collector runs as a call begins, and this raises in what it calls (a
        # weak reference's callback), CPython 3.11 forgets its tracer, and then calls it for the call that had
        # begun.
        self._tracer = self._call

    def __enter__(self) -> Self:
        sys.settrace(self._tracer)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if self.done:
            return None
        if self.kind == "line":
            return self._line if file.startswith(PACKAGE) else None
        if file.startswith((TESTS, "<")) or "/importlib/" in file:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._check

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and not self.done and not _is_nothing(frame.f_code, frame.f_lasti):
            self._point(frame)
        return self._line

    def _check(self, frame: FrameType, event: str, _: Any) -> Any:
        # Where CALL still comes, its PRECALL has not called yet: CPython looks for no signal between the two.
        code, at = frame.f_code, frame.f_lasti
        wanted = event == "opcode" and not self.done and _at(code, at) != "CALL"
        if wanted and _looks_for_signals(code, at):
            self._point(frame)
        return self._check

    def _point(self, frame: FrameType) -> None:
        self.count += 1
        if not self.nth:
            self.where.append(place(frame))
        elif self.count == self.nth:
            self.done = True
            say(f"at {place(frame)}")
            if self.what is not None:
                self.what()


def place(frame: FrameType) -> str:
    """File, line and function, and who called it, as far as that is kstore."""
    parts: list[str] = []
    at: FrameType | None = frame
    while at is not None and len(parts) < 3 and not at.f_code.co_filename.startswith(TESTS):
        file = at.f_code.co_filename
        parts.append(f"{file.removeprefix(PACKAGE).rpartition('/lib/')[2]}:{at.f_lineno} {at.f_code.co_name}")
        at = at.f_back
    return " < ".join(parts)


def raiser(error: type[BaseException]) -> Callable[[], None]:
    """A function that raises it."""

    def raise_it() -> None:
        raise error("Injected")

    return raise_it
