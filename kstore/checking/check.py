"""kstore.check."""

from __future__ import annotations

import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from kstore.checking.finding import Report, worst_first
from kstore.checking.partition import PartitionCheck
from kstore.checking.segment_facts import read_segment
from kstore.errors import KstoreError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.recovery.presence import require_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from kstore.checking.partition import Checked
    from kstore.checking.segment_facts import SegmentFacts
    from kstore.engine.segment.segment import Segment
    from kstore.typed import StrPath

_MOST_WAITING = 256  # partitions that are loaded and not judged yet


def check(path: StrPath) -> Report:
    """Check a partition, or a single .log file, and return the findings as a Report.

    Every byte of the .log files is read. Nothing is written or locked, and a process may be writing the log:
    what it appends meanwhile is not checked. What cannot be read is a finding.

    LogNotFoundError if nothing is there.
    """
    begun = time.monotonic()
    name = str(path)
    if not os.path.lexists(name):
        raise LogNotFoundError(f"nothing is at {name}")
    require_partition(name)
    done = list(check_partitions([name]))
    findings = [finding for each in done for finding in each.findings]
    return Report(
        name,
        worst_first(findings),
        len(done),
        sum(each.segments for each in done),
        sum(each.bytes for each in done),
        time.monotonic() - begun,
    )


def check_partitions(paths: Iterable[str], threads: int = 0) -> Iterator[Checked]:
    """Check partitions, in order. Their segments are read by several threads."""
    waiting: deque[tuple[PartitionCheck, list[Future[SegmentFacts | Exception]]]] = deque()

    def first() -> Checked:
        partition, reads = waiting.popleft()
        return partition.finish([each.result() for each in reads])

    pool = ThreadPoolExecutor(threads or os.cpu_count() or 1, "kstore-check")
    try:
        for path in paths:
            partition = PartitionCheck(path)
            waiting.append((partition, [pool.submit(_read, segment) for segment in partition.segments]))
            if len(waiting) > _MOST_WAITING:
                yield first()
        while waiting:
            yield first()
    finally:
        pool.shutdown(cancel_futures=True)


def _read(segment: Segment) -> SegmentFacts | Exception:
    try:
        return read_segment(segment)
    except (KstoreError, OSError) as e:
        return e.with_traceback(None)
