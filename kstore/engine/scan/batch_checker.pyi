from typing import Any, final

from numpy.typing import NDArray

from kstore.engine.scan.batch_reader import Reader

def row_layout() -> Any:
    """The layout of `row` for numpy, made once: the fields of headers, and those of records."""

@final
class BatchChecker(Reader):
    """An iterator of tables of batches, as numpy structured arrays. What is damaged is skipped: see `skipped`.

    Columns: those of Segment.read_headers(), `latest` (the largest timestamp of the records, the smallest int64
    without records), `last_record` (the offset of the last one, or -1), `marker` (0: abort, 1: commit, else
    -1), `coordinator_epoch`, and `is_broken` (the records do not parse: `errors` has the reason of the first
    ones, by position)."""

    @property
    def errors(self) -> dict[int, Exception]: ...
    @property
    def end_position(self) -> int:
        """The byte behind the last batch."""
    def __next__(self) -> NDArray[Any]: ...
