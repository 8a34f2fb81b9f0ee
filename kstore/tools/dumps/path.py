"""A file's path as Kafka's dump tool takes and prints it: java.io.File's ideas of paths, offsets in names."""

import os
import re
from pathlib import Path

from kstore.engine.io.file import File
from kstore.properties import parse_integer


def java_path(path: str) -> str:
    """Without double slashes and without one at the end; `.` and `..` stay."""
    short = re.sub("/+", "/", path)
    return short if short == "/" else short.removesuffix("/")


def absolute_path(path: str) -> str:
    """Behind the working directory, where it is not absolute."""
    return path if path.startswith("/") else f"{Path.cwd()}/{path}"


def name_of(path: str) -> str:
    """What stands behind the last slash."""
    return path.rpartition("/")[2]


def suffix_of(path: str) -> str | None:
    """From the last dot of the name on, None without a dot. (To pathlib, `.log` is all name.)"""
    _, dot, kind = name_of(path).rpartition(".")
    return dot + kind if dot else None


def split_names(names: str) -> list[str]:
    """The names in --files A,B: empty ones at the end do not count."""
    if not names:
        return [names]
    found = names.split(",")
    while found and not found[-1]:
        found.pop()
    return found


def number_in_name(text: str, bits: int = 64) -> int:
    """A number that Java reads into so many bits. ValueError."""
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
        if not os.path.exists(path):  # noqa: PTH110
            raise FileNotFoundError(f"there is no file {path}") from None
        raise ValueError(f"{path}: its name begins with no offset: {stem!r}") from e


def sibling(path: str, kind: str) -> str:
    """The file of a segment with another suffix."""
    return str(Path(path).parent / (name_of(path).partition(".")[0] + kind))


def open_file(path: str) -> File:
    """The file of this very name: one that has become `.deleted` is not it. OSError."""
    Path(path).stat()
    return File(path)


def content_of(path: str) -> bytes:
    """All bytes of the file of this very name. OSError."""
    file = open_file(path)
    return file.read(0, file.size())
