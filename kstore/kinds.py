"""What the value of a configuration key may be, and how text becomes one (spec 12)."""

import operator
import re
from typing import NamedTuple, Protocol

from kstore.arguments import MAX32, MAX64
from kstore.properties import parse_integer

_DECIMAL = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_COMMA = r"\s*,\s*"


class Kind(Protocol):
    """A type and its limits. `check` and `parse` return the value as kstore keeps it, ValueError where it is
    none."""

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        ...

    def check(self, value: object) -> object:
        """A value given in Python."""
        ...

    def parse(self, text: str) -> object:
        """A value written as text, with or without space around it."""
        ...


class Integer(NamedTuple):
    """An integer from `least` to `most`, or `other`. A bool is none, nor is a float; numpy's integers are."""

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
    """Kafka's INT, within limits."""
    return Integer(least, most, other)


def int64(least: int = -MAX64 - 1) -> Integer:
    """Kafka's LONG, within limits."""
    return Integer(least, MAX64)


class Ratio:
    """A number from 0 to 1. NaN is refused, though Kafka lets it pass."""

    allowed = "a number from 0 to 1"

    def check(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(value)
        return float(value)

    def parse(self, text: str) -> float:
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
    """True or False; as text in any case."""

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
    """One of some words, in their own case."""

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
    """Any of some words, none included, each once and in the order given: a sequence, or text with commas
    between."""

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
        text = text.strip()
        return self.check(re.split(_COMMA, text)) if text else ()


def as_text(value: object) -> str:
    """A value as a properties file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)
