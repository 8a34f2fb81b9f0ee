"""Closing a log, whatever its background thread is doing."""

from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import times


def test_a_sync_that_comes_too_late_is_no_failure(ram: Path) -> None:
    """The thread that syncs sealed segments may run only when close() has begun."""
    for number in range(times(40)):
        log = kstore.open(ram / f"{number}-0", "a")
        log.append(b"x")
        log.roll()
        log.close()
        assert kstore.open(log.path).recovery.clean


def test_a_checkpoint_that_could_not_be_written_meanwhile(ram: Path) -> None:
    """close() writes the recovery point again: nothing is lost, and closing is clean."""
    for number in range(times(5)):
        log = kstore.open(ram / f"{number}-0", "a")
        log.extend([b"v"] * 10)
        in_the_way = Path(log.path) / "recovery-point-offset-checkpoint.tmp"
        in_the_way.mkdir()
        log.roll()  # the background syncs, and fails to write the checkpoint
        with pytest.raises(IsADirectoryError):
            log.flush()
        in_the_way.rmdir()
        log.append(b"v")
        log.close()
        again = kstore.open(log.path)
        assert again.recovery.clean
        assert again.log_end_offset == 11
