"""Where the records of a key are: every record is looked at, segment by segment, the newest first."""

from collections.abc import Callable, Iterator, Sequence

from kstore.engine.segment.segment import Segment
from kstore.log.read.scan import Scan


def given(key: bytes | None) -> bytes:
    """None would stand for every key. TypeError."""
    if key is None:
        raise TypeError("key is bytes, not None")
    return key


def last_offset(segments: Sequence[Segment], end: int, scan: Callable[[int, int], Scan]) -> int | None:
    """The last offset that a scan finds, None if it finds none. `scan(start, stop)` gives the column of offsets."""
    for segment in reversed(segments):
        found = [
            int(batch.column("offset").values[-1]) for batch in scan(segment.base_offset, end) if len(batch)
        ]
        if found:
            return found[-1]
        end = segment.base_offset
    return None


def offsets_of(scan: Scan) -> Iterator[int]:
    """The offsets that a scan finds, in order."""
    for batch in scan:
        yield from map(int, batch.column("offset").values)
