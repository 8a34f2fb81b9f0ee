"""What a notebook shows of a log."""

from __future__ import annotations

import os

from kstore.light_typing import TYPE_CHECKING
from kstore.page import notebook_table

if TYPE_CHECKING:
    from kstore.log.view.log_view import LogView


def log_table(log: LogView) -> str:
    """The figures of a log as a table of HTML. OSError."""
    now = log.snapshot
    rows = (
        ("offsets", f"{now.log_start_offset} to {now.log_end_offset} (exclusive)"),
        ("segments", len(now.segments)),
        ("bytes", sum(segment.size for segment in now.segments)),
        ("closed cleanly", "yes" if now.recovery.clean else "no"),
        ("path", log.path),
    )
    return notebook_table(f"{type(log).__name__} {os.path.basename(log.path)}", (), rows)
