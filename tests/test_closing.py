"""Closing a log, whatever its background thread is doing."""

from pathlib import Path

import pytest

import kstore


def test_a_sync_that_comes_too_late_is_no_failure(tmp_path: Path) -> None:
    """The thread that syncs sealed segments may come to it only when close() has begun."""
    log = kstore.open(tmp_path / "log", "a")
    log._flusher.stop()  # what it does is done here, at the moment that matters
    log.append(b"x")
    log.roll()
    with log._held():
        log._end()
    with pytest.raises(kstore.LogClosedError):
        log._sync_sealed()
    log.close()
    assert kstore.open(tmp_path / "log").recovery.clean
