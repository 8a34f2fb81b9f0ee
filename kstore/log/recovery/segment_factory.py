"""How the segments of one log are made."""

from dataclasses import dataclass

from kstore.arguments import INDEX_INTERVAL_BYTES, MAX_DECOMPRESSED_BYTES
from kstore.config import MAX64
from kstore.engine.segment.segment import Segment


@dataclass(frozen=True, slots=True)
class SegmentFactory:
    """Makes segments of one directory with the options of this opening."""

    directory: str
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES

    def __call__(
        self,
        stem: str,
        base_offset: int,
        suffixes: dict[str, str] | None = None,
        end_offset: int = MAX64,
        origin: int = 0,
    ) -> Segment:
        limits = self.index_interval_bytes, self.max_decompressed_bytes
        return Segment(self.directory, stem, base_offset, end_offset, suffixes, origin, *limits)
