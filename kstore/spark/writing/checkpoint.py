"""What Spark's checkpoint says of a micro-batch before it begins: which input it has."""

import contextlib
import hashlib
from pathlib import Path

from kstore.spark.writing.journal import Source

_LONGEST = 500  # of a range in an error, and in the journal


def source_of(checkpoint: str | None, number: int) -> Source | None:
    """The input of a query's micro-batch, None if the checkpoint cannot be read here, as when it is in an
    object store.

    `checkpoint` is the query's checkpointLocation, if it is in a file system.
    """
    if checkpoint is None:
        return None
    offsets = Path(checkpoint, "offsets")
    try:
        noted = (offsets / str(number)).read_bytes()
    except OSError:
        return None
    before = b""
    if number > 0:
        with contextlib.suppress(OSError):  # Spark keeps the last hundred or so
            before = (offsets / str(number - 1)).read_bytes()
    return Source(hashlib.blake2b(noted, digest_size=16).hexdigest(), _range(before, noted))


def _range(before: bytes, noted: bytes) -> str:
    """From the offsets where the micro-batch before ended to those where this one ends, in words."""
    start, end = _offsets(before), _offsets(noted)
    if end is None:
        return ""
    words = f"offsets up to {end}" if start is None else f"offsets {start} to {end}"
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


def _offsets(noted: bytes) -> str | None:
    """What the sources said, in one line: a file has a line with its version, one with the time, one of each
    source."""
    lines = noted.decode("utf-8", "replace").splitlines()[2:]
    return " and ".join(lines) if lines else None
