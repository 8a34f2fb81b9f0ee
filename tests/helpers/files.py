"""Files as they are, and damaged ones."""

from pathlib import Path


def contents(directory: Path | str, pattern: str = "*") -> dict[str, bytes]:
    """The bytes of each file of a directory by its name; with the pattern **/* also below it, by its path."""
    files = sorted(path for path in Path(directory).glob(pattern) if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def flip(file: Path | str, position: int, bits: int = 1) -> None:
    """Changes a byte of a file; a negative position counts from the end."""
    content = bytearray(Path(file).read_bytes())
    content[position] ^= bits
    Path(file).write_bytes(content)
