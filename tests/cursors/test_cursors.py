"""What a cursor gives, where it goes on, and what it refuses."""

import datetime
import gc
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.processes import Program, run_command, run_python
from tests.helpers.reading import cursor_at_end, read_to_end
from tests.helpers.waiting import threads_doing

T0 = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of ten records in three segments, which nobody writes."""
    made = tmp_path / "orders-0"
    with kstore.open(made, "a") as log:
        for i in range(10):
            log.append(b"%d" % i, timestamp=T0 + i)
            if i in (2, 5):
                log.roll()
    return made


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


def test_the_next_one_goes_on(path: Path) -> None:
    with kstore.open(path).cursor("mailer") as jobs:
        assert jobs.committed is None
        for record in jobs:
            if record.offset == 3:
                jobs.commit(record, metadata="so far: ä")
            if record.offset == 6:
                break
        assert (jobs.position, jobs.lag) == (7, 3)
        assert offsets(jobs) == [7, 8, 9]
    assert jobs.is_closed
    with kstore.open(path).cursor("mailer", start="latest") as jobs:
        assert jobs.committed is not None
        assert jobs.committed[:3] == (4, 0, "so far: ä")
        assert offsets(jobs) == [4, 5, 6, 7, 8, 9]
        jobs.commit()
    log = kstore.open(path)
    assert {name: position.offset for name, position in log.cursors().items()} == {"mailer": 10}
    with log.cursor("other") as other, log.cursor("mailer") as jobs:
        assert offsets(other) == list(range(10))
        assert offsets(jobs) == []


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 0),
        ("latest", 10),
        (4, 4),
        (10, 10),
        (datetime.datetime.fromtimestamp(T0 / 1000, datetime.UTC) + datetime.timedelta(milliseconds=6), 6),
        (datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC), 10),
    ],
)
def test_where_it_starts(path: Path, start: Any, first: int) -> None:
    with kstore.open(path).cursor("g", start=start) as jobs:
        assert jobs.position == first
        assert offsets(jobs) == list(range(first, 10))
        assert jobs.seek(2) == 2
        assert jobs.seek(start) == first


def test_it_may_seek_while_it_is_iterated(path: Path) -> None:
    with kstore.open(path).cursor("g") as jobs:
        found = []
        for record in jobs:
            found.append(record.offset)
            if len(found) == 3:
                jobs.seek(7)
            if len(found) == 6:  # the last one
                jobs.seek(8)
        assert found == [0, 1, 2, 7, 8, 9, 8, 9]
        jobs.seek(9)
        for _ in jobs:
            jobs.seek(4)
            break
        assert jobs.position == 4


def test_a_time_whose_records_are_deleted(path: Path) -> None:
    """find() looks in one segment only; a later one has a record."""
    when = datetime.datetime.fromtimestamp((T0 + 5) / 1000, datetime.UTC)
    with kstore.open(path, "a") as log:
        log.extend([b"early"] * 2, timestamps=[T0, T0 + 1])
        log.roll()
        log.append(b"late", timestamp=T0 + 50)
        log.delete_records(10)
        log.roll()
        found = log.find(timestamp=when)
        with log.cursor("g", start=when) as jobs:
            assert [record.value for record in jobs] == [b"late"]
            assert found is None or found.offset == 12


def test_it_waits_for_more(path: Path) -> None:
    with (
        kstore.open(path, "a") as log,
        kstore.open(path).cursor("g", "latest", follow=True) as jobs,
        kstore.open(path).cursor("h", "latest", follow=True, timeout=0) as other,
    ):
        late = threading.Timer(0.05, lambda: log.append(b"new"))
        late.start()
        records = iter(jobs)
        assert next(records).value == b"new"
        late.join()
        assert offsets(other) == [10]
        ends = threading.Timer(0.05, jobs.close)
        ends.start()
        assert list(records) == []
        ends.join()
        with log.cursor("own", "latest") as own:
            log.append(b"newer")
            with own.batch(5, timeout=5) as got:
                assert offsets(got) == [11]


def test_a_group_has_one_holder(path: Path) -> None:
    jobs = kstore.open(path).cursor("g")
    with pytest.raises(kstore.CursorLockedError, match=f"process {os.getpid()}, which is this one") as caught:
        kstore.open(path).cursor("g")
    assert isinstance(caught.value, kstore.LogLockedError)
    assert caught.value.pid == os.getpid()
    jobs.close()
    with cursor_at_end(path) as jobs:
        jobs.commit(2)
    kstore.open(path).cursor("g")  # nobody keeps it
    with kstore.open(path).cursor("g") as jobs:
        assert jobs.position == 2


HOLDER = """
import sys, kstore
jobs = kstore.open(sys.argv[1]).cursor("g")
for record in jobs:
    if record.offset == 4:
        jobs.commit(record)
        print("held", flush=True)
        sys.stdin.read()
"""


def test_one_that_was_killed_lets_go(path: Path) -> None:
    with Program(HOLDER, path) as child:
        with pytest.raises(kstore.CursorLockedError, match=f"process {child.pid}:") as caught:
            kstore.open(path).cursor("g")
        assert caught.value.pid == child.pid
        assert kstore.open(path).cursors()["g"].offset == 5
        child.kill()
        with kstore.open(path).cursor("g") as jobs:
            assert offsets(jobs) == [5, 6, 7, 8, 9]


def in_a_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except kstore.LogClosedError:
            code = 2
        except kstore.CursorLockedError:
            code = 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_has_no_part_in_it(path: Path) -> None:
    with cursor_at_end(path) as jobs:
        jobs.commit(1, durable=False)
        assert in_a_child(lambda: jobs.commit(2)) == 2
        assert in_a_child(jobs.forget) == 2
        assert in_a_child(jobs.close) == 0
        assert in_a_child(lambda: kstore.open(path).cursor("g")) == 3
        jobs.commit(3)
    assert kstore.open(path).cursors()["g"].offset == 3


def in_another_process(code: str, *arguments: object) -> str:
    return run_python("import sys, kstore\n" + code, *arguments).stdout.strip()


def test_a_copy_of_the_directory_leaves_the_lock(path: Path, tmp_path: Path) -> None:
    """It closes a descriptor of the lock file, and the system drops the ordinary locks of the process
    then."""
    code = """
try:
    print(len(list(kstore.open(sys.argv[1]).cursor("g"))))
except kstore.CursorLockedError:
    print("locked")
"""
    with kstore.open(path).cursor("g") as jobs:
        next(iter(jobs))
        shutil.copytree(path.parent, tmp_path / "copy")
        assert in_another_process(code, path) == "locked"
        jobs.commit()
        with cursor_at_end(path, "other") as other:
            other.commit(2)
        assert in_another_process(code, path) == "locked"
    assert in_another_process(code, path) != "locked"


def test_a_closed_one_refuses(path: Path) -> None:
    jobs = kstore.open(path).cursor("g")
    records = iter(jobs)
    next(records)
    jobs.close()
    jobs.close()
    assert list(records) == []
    for call in (jobs.commit, jobs.forget, lambda: jobs.lag, lambda: jobs.seek(0), lambda: iter(jobs)):
        with pytest.raises(kstore.LogClosedError, match="closed"):
            call()
    with pytest.raises(kstore.LogClosedError), jobs.batch(1):
        pass
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(jobs)
    assert "closed" in repr(jobs)


def test_a_log_made_anew_has_no_positions(path: Path) -> None:
    with cursor_at_end(path) as jobs:
        jobs.commit(6)
    path.rename(path.with_name("old"))
    with kstore.open(path, "a") as log:
        log.extend([b"v"] * 20)
        assert log.cursors() == {}
        with log.cursor("g") as jobs:
            assert jobs.position == 0
            assert log.cursors() == {}


@pytest.mark.parametrize("follow", [False, True])
def test_one_of_a_partition_that_is_another_now(path: Path, follow: bool) -> None:
    """Its position is none of the log that has the name now, though that one is longer."""
    with kstore.open(path).cursor("g", follow=follow, timeout=0) as jobs:
        read_to_end(jobs)
        jobs.commit(6)
        (path / "kstore.json").touch()  # which changes its times only
        jobs.commit(7)
        path.rename(path.with_name("old"))
        with kstore.open(path, "a") as log:
            log.extend([b"v"] * 20)
        calls: list[Callable[[], object]] = [lambda: jobs.commit(8), lambda: list(jobs)]
        for call in calls:
            with pytest.raises(kstore.LogNotFoundError, match="deleted, or made anew"):
                call()
    assert kstore.open(path).cursors() == {}


def test_retention_keeps_what_a_group_needs(path: Path) -> None:
    with cursor_at_end(path) as jobs:
        jobs.commit(4)
        with kstore.open(path, "a", retention_ms=1, file_delete_delay_ms=0) as log:
            assert not any(d.delete for d in log.retain(keep_for=["never"]))
            decisions = log.retain(keep_for=["g"])
            assert [d.delete for d in decisions] == [True, False, False]
            assert decisions[1].reason == "group 'g' is at offset 4"
            assert log.log_start_offset == 3
            jobs.seek(4)
            assert offsets(jobs) == [4, 5, 6, 7, 8, 9]
            with pytest.raises(TypeError, match="keep_for"):
                log.retain(keep_for="g")
            with pytest.raises(ValueError, match="group"):
                log.retain(keep_for=["a/b"])
            log.retain()
            assert log.log_start_offset == 10


def test_a_removed_position_is_a_tombstone(path: Path) -> None:
    """A dump shows it, and the other commits, as Kafka does."""
    with cursor_at_end(path) as jobs:
        jobs.commit(4, metadata="text")
        jobs.forget()
        assert jobs.committed is None
        assert kstore.open(path).cursors() == {}
        jobs.commit(2)
    with kstore.open(path).cursor("g") as jobs:
        assert jobs.position == 2
    file = path.parent / "kstore-cursors-g.positions"
    done = run_command("dump", "--offsets-decoder", file)
    assert 'key: {"type":"1","data":{"group":"g","topic":"orders","partition":0}}' in done.stdout
    assert 'payload: {"version":"4","data":{"offset":4,"leaderEpoch":0,"metadata":"text",' in done.stdout
    assert "payload: <DELETE>" in done.stdout


@pytest.mark.parametrize("home", ["orders-0", "plain"])
def test_threads_commit_at_once(tmp_path: Path, home: str) -> None:
    with kstore.open(tmp_path / home, "a") as log:
        log.extend([b"v"] * 100)

        def work(group: str) -> None:
            with kstore.open(log.path).cursor(group) as jobs:
                for record in jobs:
                    jobs.commit(record, durable=False)

        with threads_doing(*(partial(work, f"g{i}") for i in range(4))):
            pass
        assert {g: p.offset for g, p in log.cursors().items()} == dict.fromkeys(("g0", "g1", "g2", "g3"), 100)


def test_wrong_values(path: Path) -> None:
    """Of the right types; unit/test_arguments passes the wrong ones. Nobody holds the group afterwards."""
    log = kstore.open(path)
    opens: list[dict[str, Any]] = [
        *({"group": group} for group in ("", "../x", "g" * 201)),
        *({"group": "g", "start": start} for start in ("max", -1, 11, datetime.datetime(2020, 1, 1))),
    ]
    for arguments in opens:
        with pytest.raises((ValueError, kstore.OffsetOutOfRangeError)):
            log.cursor(**arguments)
    calls: list[Callable[[kstore.Cursor], object]] = [
        lambda jobs: jobs.commit(-1),
        *(lambda jobs, text=text: jobs.commit(2, metadata=text) for text in ("\ud800", "x" * 4097)),
        lambda jobs: jobs.seek("first"),  # type: ignore[arg-type]
        lambda jobs: jobs.batch(0).__enter__(),
        lambda jobs: jobs.batch(1, timeout=-1).__enter__(),
    ]
    with log.cursor("g") as jobs:
        for call in calls:
            with pytest.raises(ValueError):  # noqa: PT011
                call(jobs)
        assert (jobs.position, jobs.committed) == (0, None)
    assert log.cursors() == {}


def test_a_single_file_has_none(path: Path) -> None:
    with pytest.raises(kstore.LogNotFoundError, match="no cursors"):
        kstore.open(path / "00000000000000000000.log").cursor("g")


def test_a_timeout_of_one_that_does_not_follow_is_refused(path: Path) -> None:
    with kstore.open(path) as log:
        with pytest.raises(ValueError, match=r"timeout=5 needs follow=True"):
            log.cursor("g", timeout=5)
        with log.cursor("g", timeout=0) as jobs:  # it does not wait anyway; and the group is free
            assert next(iter(jobs)).offset == log.log_start_offset


def test_garbage_of_a_directory_that_was_made_again(tmp_path: Path) -> None:
    """It is collected in silence, and the new cursor has its lock."""

    def begin() -> tuple[kstore.LogStore, Any]:
        store = kstore.LogStore(tmp_path / "s", mode="a")
        store.create_topic("t")
        store.append("t", b"v")
        return store, store.cursor("g", ["t"])

    store, old = begin()
    old.itself = old
    store.close()
    shutil.rmtree(tmp_path / "s")
    store, jobs = begin()
    del old
    gc.collect()
    assert len(list(jobs)) == 1
    jobs.commit()
    with pytest.raises(kstore.CursorLockedError):
        kstore.open(tmp_path / "s" / "t-0").cursor("g")
    store.close()
