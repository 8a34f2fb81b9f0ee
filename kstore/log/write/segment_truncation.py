"""What truncation leaves of the segment that holds the offset (spec 8.9)."""

import contextlib
from collections.abc import Callable

from kstore.engine.io.file import File
from kstore.engine.segment.index import TransactionIndex
from kstore.engine.segment.segment import Segment


def rest_of(segment: Segment, offset: int, make: Callable[[str, int], Segment]) -> Segment:
    """The same segment without what begins at `offset`, and without all of a batch that holds it. Its files
    stay as they are."""
    located = segment.translate(offset)
    offsets, times = segment.offset_index.copy(), segment.time_index.copy()
    transactions = TransactionIndex(segment.base_offset, segment.transaction_index.to_bytes())
    rest = make(segment.stem, segment.base_offset)
    rest.limit_to(located.position if located is not None else segment.size)
    offsets.truncate_to(offset)
    times.truncate_to(offset)
    transactions.truncate_to(offset)
    rest.use_indexes(offsets, times, transactions)
    rest.set_max_timestamp(rest.recovery_walk(verify=False).max_timestamp)
    return rest


def shorten_transactions(rest: Segment) -> None:
    """Makes the .txnindex end where that of a segment does, durably: else a power cut would call records
    aborted that are appended at these offsets. OSError."""
    with contextlib.suppress(FileNotFoundError):  # no transaction was aborted here
        file = File(rest.path_of(".txnindex"), "r+")
        file.truncate(34 * len(rest.transaction_index))
        file.sync()


def first_removed(segment: Segment, offset: int) -> int:
    """The first offset of a batch that goes, in or behind this segment, once what begins at `offset` is
    removed: `offset`, or that of the batch that holds it."""
    located = segment.translate(offset)
    return offset if located is None else min(segment.batch_at(located.position).base_offset, offset)


def end_of_rest(segment: Segment, offset: int) -> int:
    """Where the log ends once what begins at `offset`, in or behind this segment, is gone; at least, where a
    gap or a batch is cut."""
    located = segment.translate(offset - 1)
    whole = located is not None and segment.batch_at(located.position).last_offset == offset - 1
    return offset if whole else segment.base_offset
