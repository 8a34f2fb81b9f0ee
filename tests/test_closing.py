"""Closing a log, whatever its background thread is doing."""

import time
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


def test_a_checkpoint_that_could_not_be_written_meanwhile(tmp_path: Path) -> None:
    """The recovery point is stored anew at the end: nothing is lost, and closing is clean."""
    log = kstore.open(tmp_path / "t-0", "a")
    log.extend([b"v"] * 10)
    in_the_way = tmp_path / "t-0" / "recovery-point-offset-checkpoint.tmp"
    in_the_way.mkdir()
    log.roll()
    while log._flusher.failure is None:
        time.sleep(0.01)
    in_the_way.rmdir()
    log.append(b"v")
    log.close()
    again = kstore.open(tmp_path / "t-0")
    assert again.recovery.clean
    assert again.log_end_offset == 11
