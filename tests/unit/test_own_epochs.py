"""The leader epoch of a log that nobody leads does not fall."""

from pathlib import Path

import pytest

import kstore


@pytest.mark.parametrize("abandons", [False, True])
def test_after_all_records_were_deleted(tmp_path: Path, abandons: bool) -> None:
    """The table of epochs knows nothing of them, but their file is still there."""
    log = kstore.open(tmp_path, "a", leader_epoch=2)
    log.append(b"a")
    log.delete_records(-1)
    if abandons:
        log.abandon()
    log.close()
    with kstore.open(tmp_path, "a") as log:
        assert log.leader_epoch == 2
        log.append(b"b")
        assert log.leader_epochs == kstore.open(tmp_path).leader_epochs == ((2, 1),)
        assert [batch.leader_epoch for batch in log.from_file_start().batches()] == [2, 2]


def test_after_a_truncation_of_nothing(tmp_path: Path) -> None:
    """It forgets an epoch that begins at the end, as Kafka does; what is appended then tells it."""
    with kstore.open(tmp_path, "a", leader_epoch=3) as log:
        log.append(b"a")
        log.delete_records(-1)
        assert not log.truncate_to(1)
        log.append(b"b")
        assert log.leader_epochs == kstore.open(tmp_path).leader_epochs == ((3, 1),)
        assert log.end_offset_for_epoch(3) == (3, 2)
    with kstore.open(tmp_path, "a") as log:
        assert (log.leader_epoch, log.leader_epochs) == (3, ((3, 1),))
