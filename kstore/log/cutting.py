"""What truncation leaves of the segment that holds the offset (spec 8.9)."""

from collections.abc import Callable

from kstore.engine.file import File
from kstore.engine.index import TransactionIndex
from kstore.engine.segment import Segment


def cut(segment: Segment, offset: int, make: Callable[[str, int], Segment]) -> Segment:
    """Shortens the files of a segment by what begins at `offset`, and by all of a batch that holds it, durably; returns
    a segment of what is left. The index files stay as they are: they are made anew with the indexes of that segment.
    OSError."""
    located = segment.translate(offset)
    size = located.position if located is not None else segment.size
    offsets, times = segment.offset_index.copy(), segment.time_index.copy()  # while they fit their log
    transactions = TransactionIndex(segment.base_offset, segment.transaction_index.to_bytes())
    _shorten(segment.path, size)
    left = make(segment.stem, segment.base_offset)
    offsets.truncate_to(offset)
    times.truncate_to(offset)
    left.adopt(offsets, times)
    left.take_max_timestamp(left.scan(verify=False).max_timestamp)
    count = len(transactions)
    transactions.truncate_to(offset)
    if len(transactions) < count:
        _shorten(segment.path_of(".txnindex"), 34 * len(transactions))
    left.adopt(None, None, transactions)
    return left


def _shorten(path: str, size: int) -> None:
    """Durably: what follows would otherwise be acknowledged over bytes that a power cut brings back."""
    file = File(path, "r+")
    file.truncate(size)
    file.sync()


def end_of_rest(segment: Segment, offset: int) -> int:
    """Where the log ends once what begins at `offset`, in or behind this segment, is gone; at least, where a gap or a
    batch is cut."""
    located = segment.translate(offset - 1)
    whole = located is not None and segment.batch_at(located.position).last_offset == offset - 1
    return offset if whole else segment.base_offset
