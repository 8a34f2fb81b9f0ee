"""Records that a group has read and a power cut or a truncation took away: others have their offsets now."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore


def read_all(log: kstore.PartitionLog) -> None:
    with log.cursor("g") as jobs:
        list(jobs)
        jobs.commit()


def lose(path: Path) -> None:
    """Ten records, of which five are on the disk after a power cut; the group's position is behind all."""
    log = kstore.open(path, "a")
    log.extend([b"old"] * 5)
    log.flush()
    file = path / f"{0:020d}.log"
    size = file.stat().st_size
    log.extend([b"old"] * 5)
    read_all(log)
    log.abandon()
    os.truncate(file, size)


def truncate(path: Path) -> None:
    with kstore.open(path, "a") as log:
        log.extend([b"old"] * 10)
        read_all(log)
        log.truncate_to(5)


def start_again(path: Path) -> None:
    with kstore.open(path, "a") as log:
        log.extend([b"old"] * 10)
        read_all(log)
        log.truncate_fully_and_start_at(5)


@pytest.mark.parametrize("openings", [1, 3])
@pytest.mark.parametrize("loss", [lose, truncate, start_again])
def test_offsets_that_others_have_now_are_told(
    tmp_path: Path, loss: Callable[[Path], None], openings: int
) -> None:
    path = tmp_path / "t-0"
    loss(path)
    for _ in range(openings):  # an epoch that no record bears is not forgotten
        kstore.open(path, "a").close()
    with kstore.open(path, "a") as log:
        log.extend([b"new"] * 8)
        assert log.log_end_offset == 13
        with log.cursor("g") as jobs:
            with pytest.raises(kstore.OffsetOutOfRangeError, match="10") as caught:
                list(jobs)
            assert "seek(5)" in str(caught.value.__notes__)
            jobs.seek(5)
            assert [record.value for record in jobs] == [b"new"] * 8
            jobs.commit()
        with log.cursor("g") as jobs:
            assert list(jobs) == []


def test_a_group_of_a_store_is_told(tmp_path: Path) -> None:
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
        store.append("t", b"old")
    lose(tmp_path / "t-0")
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        for _ in range(8):
            store.append("t", b"new")
        with store.cursor("g", ["t"]) as jobs, pytest.raises(kstore.OffsetOutOfRangeError):
            list(jobs)


def test_who_gives_an_epoch_has_it(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    lose(path)
    with kstore.open(path, "a", leader_epoch=0) as log:
        assert log.leader_epoch == 0


def test_a_log_that_nobody_reads_stays_in_its_epoch(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    log = kstore.open(path, "a")
    log.extend([b"v"] * 5)
    log.abandon()
    with kstore.open(path, "a") as log:
        log.truncate_to(3)
        assert log.leader_epoch == 0


def test_a_damaged_epoch_begins_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    truncate(path)
    kept = path / "kstore-cursors.epoch"
    text = kept.read_bytes()
    for damaged in (b"", b"x" * 20, text[:-1], b"9" + text[1:], bytes(len(text))):
        kept.write_bytes(damaged)
        with warnings.catch_warnings(), kstore.open(path, "a") as log:
            assert log.leader_epoch == 1
    assert kept.read_bytes() == text
