from kstore.engine.segment.segment import Segment

def grown(segment: Segment, end_offset: int) -> Segment:
    """The same segment with the whole batches that were appended to it since, checksums verified, and another offset
    behind it; itself where there is nothing new.

    Its indexes are added to as the writer's were."""

def followed(segment: Segment, last_offset: int, most: int = ...) -> tuple[Segment, int]:
    """(segment, its last offset): the one whose last offset is given, with the whole batches that were appended behind
    it, checksums verified; itself where there are none. About `most` bytes at most.

    Unlike `grown` it leaves the indexes as they are, so that what it costs does not depend on the segment."""
