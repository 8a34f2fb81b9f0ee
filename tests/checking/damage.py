"""Single damages of a directory: a flipped bit, a cut, a lost file, an older file, a swapped pair."""

import random
import shutil
from pathlib import Path
from typing import NamedTuple

KINDS = ("flip", "cut", "lose", "older", "swap")


class Damage(NamedTuple):
    """What was done to a file."""

    kind: str
    file: Path
    at: int = -1  # a byte, or a size
    bit: int = -1
    other: Path | None = None

    def __str__(self) -> str:
        names = "/".join(self.file.parts[-2:])
        other = f" with {self.other.name}" if self.other is not None else ""
        return f"{self.kind} {names}{other} at {self.at} bit {self.bit}"


def files_in(directory: Path) -> list[Path]:
    """The files of a directory and of those in it, except locks."""
    return sorted(p for p in directory.rglob("*") if p.is_file() and p.name != ".lock")


def do(rng: random.Random, directory: Path, older: Path) -> Damage | None:
    """Do a damage by chance. None if it would change nothing. `older`: the directory at an earlier time."""
    files = files_in(directory)
    # as many damages for each kind of file
    suffixes = sorted({kind_of(path) for path in files})
    suffix = rng.choice(suffixes)
    file = rng.choice([path for path in files if kind_of(path) == suffix])
    kind = rng.choice(KINDS)
    data = file.read_bytes()
    if kind == "flip" and data:
        at, bit = rng.randrange(len(data)), rng.randrange(8)
        changed = bytearray(data)
        changed[at] ^= 1 << bit
        file.write_bytes(changed)
        return Damage(kind, file, at, bit)
    if kind == "cut" and data:
        size = rng.randrange(len(data))
        file.write_bytes(data[:size])
        return Damage(kind, file, size)
    if kind == "lose":
        file.unlink()
        return Damage(kind, file, len(data))
    if kind == "older":
        before = older / file.relative_to(directory)
        if before.exists() and before.read_bytes() != data:
            shutil.copyfile(before, file)
            return Damage(kind, file)
    if kind == "swap":
        others = [path for path in files if kind_of(path) == suffix and path.read_bytes() != data]
        if others:
            other = rng.choice(others)
            file.write_bytes(other.read_bytes())
            other.write_bytes(data)
            return Damage(kind, file, other=other)
    return None


def kind_of(path: Path) -> str:
    """The kind of a file: its suffix, or its name."""
    return path.suffix if path.suffix and path.name[0].isdigit() else path.name
