"""One .log file read by itself: what recovery kept of a log (.cut), or a segment that was copied from somewhere."""

from pathlib import Path

from kstore.errors import LogNotFoundError
from kstore.log.files import layout
from kstore.log.files.leader_epochs import LeaderEpochs
from kstore.log.recovery.loader import Loaded
from kstore.log.recovery.remains import remains_of
from kstore.log.recovery.report import Recovery
from kstore.log.recovery.segment_factory import SegmentFactory


def load_file(path: Path, index_interval_bytes: int, max_decompressed_bytes: int) -> Loaded:
    """A log of that file alone, from its first sound batch to its last, with the damage that lies between.

    LogNotFoundError if its name is not that of a .log file, with or without something behind it.
    """
    stem, dot, suffix = path.name.partition(".log")
    offset = layout.parse_offset(path.name)
    if not dot or "." in stem or offset is None or offset < 0:
        raise LogNotFoundError(f"{path} is no partition directory, nor a .log or .cut file of one")
    # a name with something behind it has no index files of its own
    suffixes = dict.fromkeys(layout.SEGMENT_KINDS, suffix) if suffix else None
    make = SegmentFactory(str(path.parent), index_interval_bytes, max_decompressed_bytes)
    segment = make(stem, offset, suffixes)
    remains = remains_of(segment, 0)
    first, end = (remains.first_offset, remains.last_offset + 1) if remains else (offset, offset)
    if first < offset:  # the file was misnamed
        segment = make(stem, first, suffixes)
    return Loaded((segment,), first, end, LeaderEpochs(), Recovery(True, end), frozenset(), frozenset(), True)
