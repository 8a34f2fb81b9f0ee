"""What a read returns: a part of one segment, not a copy of it."""

from collections.abc import Iterator

from kstore.engine.batch import Record
from kstore.engine.reader import BatchReader, RecordReader
from kstore.engine.segment import Segment


class Slice:
    """`size` bytes at `position` of a segment, beginning with the batch that holds `offset` (spec 7.1).

    A slice begins at a batch and may end inside one, because the size asked for ended there; what is cut off is
    ignored. Iterating gives the records from `offset` on; markers and, for read_committed, records of aborted
    transactions are left out. The file stays readable as long as the slice lives, whatever becomes of its name.
    """

    def __init__(
        self,
        segment: Segment | None,
        offset: int,
        position: int,
        size: int,
        *,
        first_batch_size: int = 0,
        aborted: list[tuple[int, int]] | None = None,
        stop_offset: int = 2**63 - 1,
        on_error: str = "raise",
    ) -> None:
        self.segment = segment
        self.offset = offset
        self.position = position
        self.size = size
        self.first_entry_incomplete = size < first_batch_size
        self.aborted = aborted
        self._stop_offset = stop_offset
        self._on_error = on_error

    def __len__(self) -> int:
        return self.size

    @property
    def base_offset(self) -> int | None:
        """The base offset of the segment, None for a slice of an empty log."""
        return None if self.segment is None else self.segment.base_offset

    def records(self) -> RecordReader:
        """An iterator of its records, with `.skipped` for what on_error="skip" left out."""
        return RecordReader(
            self._segments,
            self.offset,
            self._stop_offset,
            first_position=self.position,
            byte_limit=self.size,
            aborted=self.aborted,
            on_error=self._on_error,
        )

    def batches(self) -> BatchReader:
        """The same for its whole batches, control batches included."""
        return BatchReader(
            self._segments,
            self.offset,
            self._stop_offset,
            first_position=self.position,
            byte_limit=self.size,
            aborted=self.aborted,
            on_error=self._on_error,
        )

    @property
    def _segments(self) -> tuple[Segment, ...]:
        return () if self.segment is None or self.size == 0 else (self.segment,)

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def __bytes__(self) -> bytes:
        if self.segment is None:
            return b""
        return self.segment.file().read(self.segment.origin + self.position, self.size)

    def __repr__(self) -> str:
        return f"Slice(segment={self.base_offset}, position={self.position}, size={self.size})"
