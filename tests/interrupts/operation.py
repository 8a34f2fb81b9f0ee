"""An operation that is interrupted, and what it is done to."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar


class Subject(Protocol):
    """A log, or a store, in the hands of a test that knows what must hold of it."""

    descriptors: int  # that were open before
    may_lose_threads: bool  # CPython forgets a thread that finds no memory while it begins
    complaints: list[str]  # of what ran within the operation
    ends_log: bool  # the operation closes it
    ack: Callable[[Any, Iterable[bytes]], None]  # notes that these values were appended from there on

    def go_on(self) -> None:
        """Uses it, closes it, opens it again, and looks each time: afterwards everything must be sound."""


S = TypeVar("S", bound=Subject)


class Operation(Generic[S]):
    """`prepare` prepares a `subject`; `act` does the one thing that is interrupted, and notes what has returned."""

    def __init__(
        self,
        name: str,
        subject: Callable[[Path], S],
        prepare: Callable[[S], None],
        act: Callable[[S], None],
        *,
        closes: bool = False,
    ) -> None:
        self.name = name
        self.subject = subject
        self.prepare = prepare
        self.act = act
        self.closes = closes

    def world(self, directory: Path) -> S:
        """A log or a store in `directory` that is about to meet the operation."""
        world = self.subject(directory)
        world.ends_log = self.closes
        self.prepare(world)
        return world
