"""Cursors of several threads and processes: who has a partition, and that no position runs backwards."""

import threading
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.io.faults import trace_calls
from kstore.log.follow import follower
from kstore.log.follow.feed import Feed
from kstore.log.follow.position import Position
from tests.cursors.test_cursors import HOLDER, in_a_child, offsets
from tests.helpers.processes import Program, run_python
from tests.helpers.reading import cursor_at_end
from tests.helpers.waiting import threads_doing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "orders-0"
    with kstore.open(made, "a") as log:
        log.extend([b"v"] * 10)
    return made


def position(path: Path) -> int:
    return kstore.open(path).cursors()["g"].offset


def test_a_commit_that_was_overtaken_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread commits more between the moment in which a commit looks and that in which it writes."""
    with cursor_at_end(path) as jobs:
        position_of = Feed.position_of

        def overtaken(feed: Feed, offset: int) -> Position:
            found = position_of(feed, offset)
            if offset == 3:
                other = threading.Thread(target=jobs.commit, args=(8,))
                other.start()
                other.join()
            return found

        monkeypatch.setattr(Feed, "position_of", overtaken)
        with pytest.raises(ValueError, match="backwards from 8"):
            jobs.commit(3)
        assert position(path) == 8


def test_many_threads_commit_what_they_did(path: Path) -> None:
    with kstore.open(path, "a") as log:
        log.extend([b"v"] * 990)
    with kstore.open(path).cursor("g") as jobs:
        guard, records = threading.Lock(), iter(jobs)
        seen = [0]

        def work() -> None:
            while True:
                with guard:
                    record = next(records, None)
                if record is None:
                    return
                try:
                    jobs.commit(record, durable=False)
                except ValueError:  # a later one was faster
                    continue

        def watch() -> None:
            while not done.is_set():
                found = kstore.open(path).cursors().get("g")
                seen.append(found.offset if found else 0)

        done = threading.Event()
        with threads_doing(watch, ended=done), threads_doing(*[work] * 4):
            pass
    assert seen == sorted(seen)
    assert position(path) == 1000


def test_the_same_position_made_durable_by_the_next_member(path: Path) -> None:
    assert in_a_child(lambda: cursor_at_end(path).commit(5, durable=False)) == 0
    synced: list[str] = []
    with kstore.open(path).cursor("g") as jobs:
        trace_calls(
            lambda call, name, *_: synced.append(name) if call.startswith("sync_") or call == "sync" else None
        )
        try:
            jobs.commit(5)
        finally:
            trace_calls(None)
    assert [Path(name).name for name in synced] == ["kstore-cursors-g.positions", path.parent.name]


def test_one_waits_for_its_turn(path: Path) -> None:
    with Program(HOLDER, path) as child:
        with pytest.raises(kstore.CursorLockedError):
            kstore.open(path).cursor("g", wait=0.05)
        killer = threading.Timer(0.1, child.kill)
        killer.start()
        with kstore.open(path).cursor("g", wait=60) as jobs:
            assert offsets(jobs) == [5, 6, 7, 8, 9]
        killer.join()


def test_one_that_is_closed_lets_other_processes_in(path: Path) -> None:
    with kstore.open(path).cursor("h"):  # so the lock file stays open
        kstore.open(path).cursor("g").close()
        assert in_a_child(lambda: kstore.open(path).cursor("g")) == 0


def test_who_waited_begins_at_the_end_as_it_is_then(path: Path) -> None:
    holder = kstore.open(path).cursor("g")
    log = kstore.open(path, "a")

    def goes() -> None:
        log.extend([b"v"] * 5)
        holder.close()

    late = threading.Timer(0.05, goes)
    late.start()
    with kstore.open(path).cursor("g", "latest", wait=60) as jobs:
        assert jobs.position == 15
    late.join()
    log.close()


def test_a_childs_lock_outlives_what_it_inherited(path: Path) -> None:
    """The system drops a process's locks on a file when it closes any descriptor of it."""
    inherited = [cursor_at_end(path)]

    def work() -> None:
        with cursor_at_end(path, "h") as mine:
            inherited[0].close()
            inherited.clear()
            code = "import kstore, sys; kstore.open(sys.argv[1]).cursor('h')"
            assert "CursorLockedError" in run_python(code, path).stderr
            mine.commit(2)

    assert in_a_child(work) == 0
    with pytest.raises(kstore.CursorLockedError):
        kstore.open(path).cursor("g")
    inherited[0].commit(4)
    inherited[0].close()


def test_one_closed_while_it_begins_to_wait(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kstore.open(path).cursor("g", "latest", follow=True) as jobs:
        wait = follower.wait_readable

        def closed(*arguments: Any) -> bool:
            jobs.close()
            return wait(*arguments)

        monkeypatch.setattr(follower, "wait_readable", closed)
        assert list(jobs) == []
