"""Paths of files as Kafka's dump tool reads and prints them: rules of java.io.File, offsets in names."""

import os
import re
from pathlib import Path

from kstore.engine.io.file import File
from kstore.properties import parse_integer


def java_path(path: str) -> str:
    """A path without double and trailing slashes; `.` and `..` stay."""
    short = re.sub("/+", "/", path)
    return short if short == "/" else short.removesuffix("/")


def absolute_path(path: str) -> str:
    """The absolute path, from the working directory."""
    return path if path.startswith("/") else f"{Path.cwd()}/{path}"


def name_of(path: str) -> str:
    """The part after the last slash."""
    return path.rpartition("/")[2]


def suffix_of(path: str) -> str | None:
    """The name from its last dot on, None without a dot. (For pathlib, `.log` has no suffix.)"""
    _, dot, kind = name_of(path).rpartition(".")
    return dot + kind if dot else None


def split_names(names: str) -> list[str]:
    """The names in --files A,B, without empty ones at the end."""
    if not names:
        return [names]
    found = names.split(",")
    while found and not found[-1]:
        found.pop()
    return found


def number_in_name(text: str, bits: int = 64) -> int:
    """Parse a number of so many bits, as Java does. ValueError."""
    number = parse_integer(text)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{number} is more than {bits} bits hold")
    return number


def base_offset(path: str) -> int:
    """The number before the first dot of the name. ValueError."""
    stem = name_of(path).partition(".")[0]
    try:
        return number_in_name(stem)
    except ValueError as e:
        if not os.path.exists(path):
            raise FileNotFoundError(f"there is no file {path}") from None
        raise ValueError(f"{path}: its name begins with no offset: {stem!r}") from e


def sibling(path: str, kind: str) -> str:
    """The file of a segment with another suffix."""
    return str(Path(path).parent / (name_of(path).partition(".")[0] + kind))


def open_file(path: str) -> File:
    """Open the file of exactly this name, not one that was renamed to `.deleted`. OSError."""
    Path(path).stat()
    return File(path)


def content_of(path: str) -> bytes:
    """Read the file of exactly this name. OSError."""
    file = open_file(path)
    return file.read(0, file.size())
