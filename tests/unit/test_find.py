"""Lookups by time in logs whose oldest records were deleted."""

from pathlib import Path

import pytest

import kstore

T = 1_700_000_000_000


@pytest.mark.parametrize("start", [1, 41, 42, 150, 299])
def test_records_below_the_log_start_do_not_count(tmp_path: Path, start: int) -> None:
    """The first record at or after a time is found, though whole segments before it were deleted by
    delete_records."""
    options = {"internal_segment_bytes": 3000, "index_interval_bytes": 100}
    with kstore.open(tmp_path / "t-0", "a", **options) as log:
        for number in range(300):
            log.append(b"v%d" % number, timestamp=T + number)
        assert len(log.segments) > 5
        log.delete_records(start)
        for view in (log, kstore.open(tmp_path / "t-0")):
            for ms in (0, start - 1, start, start + 1, 299, 300):
                found = view.find(timestamp=T + ms)
                wanted = max(ms, start)
                assert (found and found.offset) == (wanted if wanted < 300 else None)
