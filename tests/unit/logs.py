"""Small logs that many tests begin with, and damage to their files."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kstore


def filled(path: Path, count: int = 10, **options: Any) -> kstore.LogWriter:
    """A log of `count` batches of a record, in segments of 500 bytes."""
    log = kstore.open(path, "a", **{"internal_segment_bytes": 500, **options})
    for i in range(count):
        log.append(b"%02d" % i * 20)
    return log


def offsets(records: Iterable[kstore.Record]) -> list[int]:
    return [record.offset for record in records]


def findings(log: kstore.PartitionLog) -> list[str]:
    """The kinds of what recovery found."""
    return [finding.kind for finding in log.recovery.findings]
