"""kstore.check."""

from __future__ import annotations

import os
import time

from kstore.checking.finding import Report, worst_first
from kstore.checking.partition import check_partition
from kstore.errors import LogNotFoundError
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.typed import StrPath


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
    done = check_partition(name)
    return Report(name, worst_first(done.findings), 1, done.files, done.bytes, time.monotonic() - begun)
