"""The last batch of a log."""

from __future__ import annotations

import contextlib

from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstore.engine.segment.segment import Segment


def last_epoch(segments: Sequence[Segment]) -> int:
    """The leader epoch of the last batch of these segments; -1 if there is none, or it has none."""
    for segment in reversed(segments):
        with contextlib.suppress(CorruptFileError, OSError):  # reading records raises it
            end = segment.read_end()
            if end.last_header is not None:
                return end.leader_epoch
    return -1
