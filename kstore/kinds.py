"""Types of configuration values, their limits and their text form (spec 12)."""

from __future__ import annotations

import operator

from kstore.arguments import MAX32, MAX64
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.properties import parse_integer

_DECIMAL = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


if TYPE_CHECKING:
    from typing import Protocol

    class Kind(Protocol):
        """A type and its limits. `check` and `parse` return the value in kstore's type, or raise
        ValueError."""

        @property
        def allowed(self) -> str:
            """The allowed values in words."""
            ...

        def check(self, value: object) -> object:
            """Check a value of Python."""
            ...

        def parse(self, text: str) -> object:
            """Parse a value from text. Space around it is ignored."""
            ...


class Integer(NamedTuple):
    """An integer from `least` to `most`, or `other`. NumPy's integers are accepted; bool and float are
    not."""

    least: int
    most: int
    other: int | None = None

    @property
    def allowed(self) -> str:
        other = "" if self.other is None else f"{self.other} or "
        return f"{other}an integer from {self.least} to {self.most}"

    def check(self, value: object) -> int:
        if isinstance(value, bool | type) or not hasattr(value, "__index__"):
            raise ValueError(value)
        number = operator.index(value)
        if number != self.other and not self.least <= number <= self.most:
            raise ValueError(value)
        return number

    def parse(self, text: str) -> int:
        return self.check(parse_integer(text.strip()))


def int32(least: int = -MAX32 - 1, most: int = MAX32, other: int | None = None) -> Integer:
    """Kafka's INT, with limits."""
    return Integer(least, most, other)


def int64(least: int = -MAX64 - 1) -> Integer:
    """Kafka's LONG, with limits."""
    return Integer(least, MAX64)


class Ratio:
    """A number from 0 to 1. Unlike in Kafka, NaN is refused."""

    allowed = "a number from 0 to 1"

    def check(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(value)
        return float(value)

    def parse(self, text: str) -> float:
        import re

        if re.fullmatch(_DECIMAL, text.strip()) is None:
            raise ValueError(text)
        return self.check(float(text))


class Positive(Ratio):
    """A number above 0, infinity included. NaN is refused."""

    allowed = "a number above 0"

    def check(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(value)
        return float(value)


class Boolean:
    """True or False. As text, the case does not matter."""

    allowed = "true or false"

    def check(self, value: object) -> bool:
        if value is not True and value is not False:
            raise ValueError(value)
        return value is True

    def parse(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise ValueError(text)
        return word == "true"


class Choice(NamedTuple):
    """One word of a list. The case matters."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(self.words)

    def check(self, value: object) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise ValueError(value)
        return value

    def parse(self, text: str) -> str:
        return self.check(text.strip())


class Choices(NamedTuple):
    """Any number of words of a list, each once, in the given order: a sequence, or text with commas."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return "any of " + ", ".join(self.words) + " with commas between, or nothing at all"

    def check(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            return self.parse(value)
        if not isinstance(value, list | tuple) or not all(word in self.words for word in value):
            raise ValueError(value)
        return tuple(dict.fromkeys(value))

    def parse(self, text: str) -> tuple[str, ...]:
        words = text.strip().split(",")
        return self.check([word.strip() for word in words]) if text.strip() else ()


def as_text(value: object) -> str:
    """The text form of a value, as in a properties file."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)
