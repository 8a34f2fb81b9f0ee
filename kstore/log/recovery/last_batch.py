"""The last batch of a log."""

import contextlib
from collections.abc import Sequence

from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError


def last_epoch(segments: Sequence[Segment]) -> int:
    """The leader epoch of the last batch of these segments; -1 if there is none, or it has none."""
    for segment in reversed(segments):
        with contextlib.suppress(CorruptFileError, OSError):  # reading records raises it
            end = segment.read_end()
            if end.last_header is not None:
                return end.leader_epoch
    return -1
