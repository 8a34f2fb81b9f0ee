"""Creating the segments of one log."""

from __future__ import annotations

from kstore.arguments import INDEX_INTERVAL_BYTES, MAX64, MAX_DECOMPRESSED_BYTES
from kstore.engine.segment.segment import Segment


class SegmentFactory:
    """A factory of segments of one directory, with the options of an opening."""

    def __init__(
        self,
        directory: str,
        index_interval_bytes: int = INDEX_INTERVAL_BYTES,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self._directory = directory
        self._limits = index_interval_bytes, max_decompressed_bytes

    def __call__(
        self,
        stem: str,
        base_offset: int,
        suffixes: dict[str, str] | None = None,
        end_offset: int = MAX64,
        origin: int = 0,
    ) -> Segment:
        return Segment(self._directory, stem, base_offset, end_offset, suffixes, origin, *self._limits)
