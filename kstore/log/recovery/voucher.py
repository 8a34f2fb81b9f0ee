"""Who vouches for a log that was not closed cleanly, so that a reader need not look at every batch as
recovery does.

What recovery looks for is what a power cut leaves. As long as the program lives that has loaded or written
the log, there was none. So its indexes are right up to their last entries, which a reader checks as hints,
and what it has written since lies behind. Damage below that is found when it is read, as in a log that was
closed cleanly.
"""

from pathlib import Path

from kstore.config import MAX64
from kstore.engine.segment.segment import Segment
from kstore.log.files.lock import Holder, holder_in, is_vouched_for
from kstore.log.files.log_dir_state import directory_of


def vouched_until(path: Path, last: Segment, recovery_point: int) -> int:
    """The offset below which somebody vouches for the log, whose last segment is given; 0 if nobody does.

    A program of kstore's says of each log that it has loaded it. A broker loads all logs of the directory
    that it has locked; it does not tell when it is through. Where a program of kstore's has the directory,
    and not this log, what was flushed is as it was: the recovery point.
    """
    if is_vouched_for(last.file()):
        return MAX64
    holder = holder_in(directory_of(path))
    if holder is Holder.BROKER:
        return MAX64
    return recovery_point if holder is Holder.KSTORE else 0
