"""A cut over the boundary of a segment, above what a group has read: nothing of it is lost, and nothing is given twice."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore

pytestmark = pytest.mark.usefixtures("untold")

NOW = int(time.time() * 1000)
Reader = Callable[[kstore.Cursor], object]


def written(path: Path, log: Any = None) -> kstore.LogWriter:
    """Six records in one segment, and one in another."""
    log = log or kstore.open(path, "a")
    for i in range(6):
        log.append(b"%d" % i)
    log.roll()
    log.append(b"6")
    return log


def by_batches(jobs: kstore.Cursor) -> None:
    for _ in range(3):
        with jobs.batch(1):
            pass


def by_iterating(jobs: kstore.Cursor) -> None:
    for _ in zip(range(3), jobs, strict=False):
        pass


def by_columns(jobs: kstore.Cursor) -> None:
    next(iter(jobs.scan(["offset"], batch_rows=3)))


def by_seeking(jobs: kstore.Cursor) -> None:
    jobs.seek(3)


READERS = [by_batches, by_iterating, by_columns, by_seeking]


@pytest.mark.parametrize("appends", [False, True])
@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("read", READERS)
def test_nothing_is_lost(tmp_path: Path, read: Reader, follow: bool, appends: bool) -> None:
    log = written(tmp_path / "t-0")
    with kstore.open(log.path).cursor("g", follow=follow, timeout=0.01 if follow else None) as jobs:
        read(jobs)
        jobs.lag  # noqa: B018 - it looks at the log
        log.truncate_to(5)
        if appends:
            log.append(b"5 again")
        assert [record.offset for record in jobs] == [3, 4, 5][: 2 + appends]
        jobs.commit()
    log.close()


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("read", READERS)
def test_what_is_lost_is_told(tmp_path: Path, read: Reader, follow: bool) -> None:
    """The other side of it: three records that were read are gone, and others have their offsets."""
    batches = [kstore.encode_batch([(NOW + i, None, b"%d" % i, None)]) for i in range(9)]
    with kstore.open(tmp_path / "t-0", "a") as log:
        for batch in batches[:6]:
            log.append_batches(batch)
        log.roll()
        log.append_batches(batches[6])
        with kstore.open(log.path).cursor("g", follow=follow, timeout=0.01 if follow else None) as jobs:
            read(jobs)
            log.truncate_to(2)
            for batch in batches[4:]:
                log.append_batches(batch)
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(jobs)
            assert caught.value.end <= 2


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("read", [by_batches, by_iterating, by_columns, by_seeking])
def test_a_compacted_log_is_cut(tmp_path: Path, read: Reader, looks: bool) -> None:
    """Above what was read, in a segment of which a compaction has left out a record that was read."""
    with kstore.open(tmp_path / "t-0", "a", cleanup_policy="compact", min_cleanable_dirty_ratio=0.0) as log:
        for keys in (b"a", b"bc", b"de", b"fg"):
            log.extend([b"v"] * len(keys), [b"%d" % key for key in keys])
        time.sleep(0.02)  # or the times of its files would not tell that none was written over
        log.roll()
        log.append(b"v", b"%d" % b"b"[0])
        log.roll()
        with kstore.open(log.path).cursor("g") as jobs:
            read(jobs)
            assert log.compact().segments
            if looks:
                jobs.lag  # noqa: B018 - it looks at the log
            log.truncate_to(5)
            assert [record.offset for record in jobs] == [3, 4]


def test_after_the_committed_position_is_found(tmp_path: Path) -> None:
    log = written(tmp_path / "t-0")
    with kstore.open(log.path).cursor("g") as jobs:
        jobs.commit(2)
    with kstore.open(log.path).cursor("g") as jobs:
        log.truncate_to(5)
        assert [record.offset for record in jobs] == [3, 4]
    log.close()


def test_followers_from_the_middle(tmp_path: Path) -> None:
    log = written(tmp_path / "t-0")
    followed = kstore.open(log.path).follow(3, timeout=0.01)
    log.truncate_to(5)
    assert [record.offset for record in followed] == [3, 4]
    log.close()


@pytest.mark.parametrize("starts", [0, 3])
def test_followers_of_a_store(tmp_path: Path, starts: int) -> None:
    """From the middle; and what has read, and stands there."""
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 1)
        log = written(tmp_path / "t-0", store.log("t", 0))
        followed = kstore.LogStore(tmp_path).follow(
            ["t"], {kstore.TopicPartition("t", 0): starts}, timeout=0.01
        )
        if not starts:
            assert [record.offset for _, record in zip(range(3), followed, strict=False)] == [0, 1, 2]
        log.truncate_to(5)
        log.append(b"5 again")
        assert [(record.offset, record.value) for record in followed] == [
            (3, b"3"),
            (4, b"4"),
            (5, b"5 again"),
        ]


def test_forgetting_a_position_keeps_its_error(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"old"] * 4, batch_bytes=1)
        with kstore.open(log.path).cursor("g") as jobs:
            list(jobs)
            jobs.commit()
        log.truncate_to(1)
        log.extend([b"new"] * 6, batch_bytes=1)
        with kstore.open(log.path).cursor("g") as jobs:
            jobs.forget()
            log.append(b"more")
            for act in (jobs.commit, lambda: list(jobs), jobs.commit):
                with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                    act()
                assert caught.value.end == 1
            jobs.seek(1)
            assert len(list(jobs)) == 7
            jobs.commit()
