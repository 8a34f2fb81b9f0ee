"""Cursors that have read their log."""

from pathlib import Path

import kstore


def read_to_end(jobs: kstore.Cursor) -> kstore.Cursor:
    """The cursor, which has yielded all records of its log, so that it may commit any of them."""
    for _ in jobs:
        pass
    return jobs


def cursor_at_end(path: Path, group: str = "g") -> kstore.Cursor:
    """A cursor that has yielded all records of a log."""
    return read_to_end(kstore.open(path).cursor(group))
