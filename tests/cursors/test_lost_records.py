"""Records that a group has read and a power cut or a truncation took away: others have their offsets now."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.readers import CURSORS
from tests.helpers.reading import read_to_end


def read_all(log: kstore.PartitionLog) -> None:
    with log.cursor("g") as jobs:
        read_to_end(jobs).commit()


@pytest.mark.parametrize("durable", [True, False])
def test_a_follower_bears_the_epoch_of_what_it_gives(tmp_path: Path, durable: bool) -> None:
    """It waits at an open transaction, which is cut off: what others append there has a later epoch than the
    view shows."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", leader_epoch=1) as log:
        log.extend([b"old"] * 5)
        log.append_batches(transactional(*[(0, None, b"open", None)] * 5))
    options = {"follow": True, "timeout": 0, "isolation": "read_committed"}
    with kstore.open(path).cursor("g", **options) as jobs:
        assert len(list(jobs)) == 5
        jobs.commit(durable=durable)
        jobs.commit(5, durable=durable)
        assert jobs.committed is not None
        assert jobs.committed.leader_epoch == 1
        with kstore.open(path, "a") as log:
            log.truncate_to(5)
        with kstore.open(path, "a", leader_epoch=4) as log:
            for _ in range(3):
                log.append(b"new")
        given = []
        for record in jobs:
            given.append(record.offset)
            jobs.commit(record, durable=durable)
            assert jobs.committed[:2] == (record.offset + 1, 4)
        assert given == [5, 6, 7]
    with kstore.open(path).cursor("g") as jobs:
        assert list(jobs) == []


def test_a_batch_has_what_was_read_before_an_error(tmp_path: Path) -> None:
    """The next batch raises it, and so does the next cursor of the group."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"old"] * 14)
        with kstore.open(log.path).cursor("g", follow=True, timeout=0) as jobs:
            next(iter(jobs))
            log.truncate_to(10)
            with jobs.batch(1000) as records:
                assert [record.offset for record in records] == list(range(1, 14))
            assert jobs.committed is not None
            assert jobs.committed.offset == 14
            log.extend([b"new"] * 14)
            assert told(jobs) == 10
            with pytest.raises(kstore.OffsetOutOfRangeError), jobs.batch(1000):
                pass
        with log.cursor("g") as jobs:
            assert told(jobs) == 10


def delete_all(log: kstore.LogWriter) -> None:
    log.delete_records(-1)


def begin_at_six(log: kstore.LogWriter) -> None:
    log.truncate_fully_and_start_at(6)


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("has_read", [False, True])
@pytest.mark.parametrize("empty", [delete_all, begin_at_six])
def test_a_position_in_a_log_without_records(
    tmp_path: Path, empty: Callable[[kstore.LogWriter], None], has_read: bool, follow: bool
) -> None:
    """The record before it is gone, and its epoch with it; a truncation below it is told all the same."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.extend([b"old"] * 6)
        if has_read:
            read_all(log)
        empty(log)
        with kstore.open(path).cursor("g", "latest", follow=follow, timeout=0) as jobs:
            assert (list(jobs), jobs.position) == ([], 6)
            jobs.commit(durable=False)
        log.truncate_to(2)
        log.extend([b"new"] * 8)
    with kstore.open(path).cursor("g") as jobs:
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            list(jobs)
        jobs.seek(caught.value.end)
        assert [record.offset for record in jobs] == list(range(2, 10))


@pytest.mark.parametrize("appended", [0, 4])
def test_a_position_in_a_log_without_records_holds(tmp_path: Path, appended: int) -> None:
    """In whatever epoch the next record is."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", leader_epoch=3) as log:
        log.extend([b"old"] * 6)
        begin_at_six(log)
        with log.cursor("g", "latest") as jobs:
            jobs.commit()
        log.extend([b"new"] * appended)
        log.assign_leader_epoch(7)
        log.extend([b"new"] * 2)
    with kstore.open(path).cursor("g") as jobs:
        assert [record.offset for record in jobs] == list(range(6, 8 + appended))


def test_who_stands_by_is_told_of_no_loss_before_its_time(tmp_path: Path) -> None:
    """The log was opened before a truncation, and the group has read only what came after that."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.extend([b"a"] * 10)
        view = kstore.open(path)
        log.truncate_to(0)
        log.extend([b"b"] * 10)
        read_all(kstore.open(path))
        log.append(b"c")
        with view.cursor("g", wait=60) as jobs:
            assert [record.value for record in jobs] == [b"c"]


@pytest.mark.parametrize("how", ["start", "seek", "store", "follow", "follow a store"])
def test_the_latest_committed_record(tmp_path: Path, how: str) -> None:
    """An open transaction may be committed after the cursor was made."""
    path = tmp_path / "t-0"
    now = 1_700_000_000_000
    with kstore.open(path, "a", clock=lambda: now) as log:
        log.append(b"before")
        log.append_batches(transactional((now, None, b"open", None)))
        log.append(b"behind")
        isolation: Any = "read_committed"
        view, store = kstore.open(path), kstore.LogStore(tmp_path)
        if how == "start":
            source: Any = view.cursor("g", "latest", isolation=isolation)
        elif how == "seek":
            source = view.cursor("g", isolation=isolation)
            source.seek("latest")
        elif how == "store":
            source = store.cursor("g", ["t"], "latest", isolation=isolation)
        elif how == "follow":
            source = view.follow(timeout=0, isolation=isolation)
        else:
            source = store.follow(["t"], timeout=0, isolation=isolation)
        with source:
            assert list(source) == []
            end_transaction(log, "COMMIT", now)
            assert [record.value for record in source] == [b"open", b"behind"]


def go_to(jobs: Any, offset: int) -> None:
    jobs.seek(offset) if isinstance(jobs, kstore.Cursor) else jobs.seek(offset, "t", 0)


def offsets_in(jobs: Any) -> list[int]:
    return [each.offset if isinstance(jobs, kstore.Cursor) else each.record.offset for each in jobs]


def told(jobs: Any) -> int:
    """What an error names as the end of what is kept. Who follows a store may look later."""
    with pytest.raises(kstore.OffsetOutOfRangeError) as caught:  # noqa: PT012
        while not list(jobs):
            assert not isinstance(jobs, kstore.Cursor)
    return caught.value.end


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("make", CURSORS.values(), ids=CURSORS)
def test_who_was_told_is_told_again_until_it_seeks(
    tmp_path: Path, make: Callable[[Path], Any], commits: bool
) -> None:
    """Though the log has grown beyond the position meanwhile."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.extend([b"v%02d" % i for i in range(30)], batch_bytes=100)
        with make(path) as jobs:
            assert len(list(jobs)) == 30
            if commits:
                jobs.commit()
            log.truncate_to(10)
            assert told(jobs) == told(jobs) == 10
            log.append(b"w")
            log.extend([b"w"] * 30)
            assert jobs.lag if isinstance(jobs, kstore.Cursor) else jobs.lag()
            assert told(jobs) == told(jobs) == 10
            go_to(jobs, 10)
            assert offsets_in(jobs) == list(range(10, 41))
            jobs.commit()


@pytest.mark.parametrize("make", CURSORS.values(), ids=CURSORS)
def test_an_offset_that_was_told_before_another_truncation(
    tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.extend([b"v%02d" % i for i in range(30)], batch_bytes=100)
        with make(path) as jobs:
            list(jobs)
            log.truncate_to(20)
            assert told(jobs) == 20
            log.truncate_to(12)
            with pytest.raises(kstore.OffsetOutOfRangeError):
                go_to(jobs, 20)
            log.truncate_to(9)
            log.extend([b"w"] * 30)
            go_to(jobs, 20)
            assert told(jobs) == 9
            go_to(jobs, 20)  # with what is known now
            assert offsets_in(jobs)[0] == 20


@pytest.mark.parametrize("make", CURSORS.values(), ids=CURSORS)
@pytest.mark.parametrize("deleted", [False, True])
def test_what_an_error_says_to_call_does_not_move_other_partitions(
    tmp_path: Path, make: Callable[[Path], Any], deleted: bool
) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log, kstore.open(tmp_path / "t-1", "a") as other:
        other.append(b"v")
        log.extend([b"v"] * 6, batch_bytes=72)
        with make(path) as jobs:
            assert len(list(jobs)) == 6 + (not isinstance(jobs, kstore.Cursor))
            if deleted:
                log.extend([b"v"] * 2)
                log.delete_records(7)
            else:
                log.truncate_to(3)
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(jobs)
            call = '"earliest"' if deleted else "3"
            if not isinstance(jobs, kstore.Cursor):
                call += ', "t", 0'
            assert f"seek({call}) goes on" in caught.value.__notes__[0]


@pytest.mark.parametrize("make", [CURSORS["cursor"], CURSORS["following cursor"]])
@pytest.mark.parametrize("first", ["commit", "lag", "iterate", "batch", "columns"])
def test_a_position_that_was_truncated(tmp_path: Path, make: Callable[[Path], Any], first: str) -> None:
    """A commit of it stays one of a truncated position: each cursor raises the error until seek()."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.extend([b"v"] * 11)
        read_all(log)
        log.truncate_to(8)
        log.extend([b"w"] * 12)
        with make(path) as jobs:
            if first == "lag":
                assert jobs.lag == 9
            elif first == "batch":
                with pytest.raises(kstore.OffsetOutOfRangeError):
                    jobs.batch(3).__enter__()
            elif first == "columns":
                with pytest.raises(kstore.OffsetOutOfRangeError):
                    list(jobs.scan())
            elif first == "iterate":
                told(jobs)
            jobs.commit()
            assert told(jobs) == 8
        with make(path) as jobs:
            assert told(jobs) == 8


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
            assert told(jobs) == 1
            jobs.seek(1)
            assert len(list(jobs)) == 7
            jobs.commit()
