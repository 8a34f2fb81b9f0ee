"""Positions of groups that nobody reads for any more."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.cursors.test_consumer_offsets import run
from tests.cursors.test_cursors import in_a_child

MINUTE = 60_000


class Clock:
    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead


def store_of(path: Path, clock: Clock, **options: Any) -> kstore.LogStore:
    return kstore.LogStore(path, mode="a", clock=clock, background=False, retention_ms=-1, **options)


def committed(path: Path, group: str = "g") -> None:
    with kstore.LogStore(path).cursor(group, ["t"]) as cursor:
        for _ in cursor:
            pass
        cursor.commit()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with kstore.LogStore(tmp_path / "data", mode="a", background=False) as store:
        store.create_topic("t", 2)
        for number in range(2):
            store.log("t", number).extend([b"v"] * 3)
    return tmp_path / "data"


def test_a_group_that_nobody_reads_for(path: Path) -> None:
    committed(path)
    committed(path, "other")
    clock = Clock()
    with store_of(path, clock, offsets_retention_minutes=10) as store:
        clock.ahead = 10 * MINUTE - 5000
        assert store.expire_cursors() == {}
        clock.ahead = 10 * MINUTE + 5000
        with store.cursor("other", ["t"]):
            assert store.expire_cursors(dry_run=True) == {"g": [("t", 0), ("t", 1)]}
            assert sorted(store.cursors()) == ["g", "other"]
            assert store.expire_cursors() == {"g": [("t", 0), ("t", 1)]}
            assert store.expire_cursors() == {}
        assert sorted(store.cursors()) == ["other"]
        assert not (path / "kstore-cursors-g.positions").exists()
        clock.ahead = 10 * MINUTE - 5000
        assert store.expire_cursors() == {}  # it has left only now
        with store.cursor("g", ["t"]) as cursor:
            assert len(list(cursor)) == 6


def test_it_counts_from_when_the_last_one_has_left(path: Path) -> None:
    clock = Clock()
    committed(path)
    file = path / "kstore-cursors-g.positions"
    os.utime(file, (1, 1))
    with store_of(path, clock, offsets_retention_minutes=10) as store:
        clock.ahead = 9 * MINUTE
        assert store.expire_cursors() == {}  # the commit is younger than the file seems to be
        with kstore.LogStore(path).cursor("g", ["t"]):
            pass
        assert file.stat().st_mtime > 1


def test_in_the_background(path: Path) -> None:
    clock = Clock()
    committed(path)
    for options, expires in (({}, False), ({"offsets_retention_minutes": 10}, True)):
        with store_of(path, clock, **options) as store:
            clock.ahead = 0
            store._upkeep.run_due(store._catalog.now())
            clock.ahead = 20 * MINUTE
            store._upkeep.run_due(store._catalog.now())
            assert ("g" not in store.cursors()) is expires
            assert store.health().ok


def test_in_another_process(path: Path) -> None:
    """One that reads there keeps its positions."""
    committed(path)
    clock = Clock()
    clock.ahead = 20 * MINUTE
    with kstore.LogStore(path).cursor("g", ["t"]):

        def work() -> None:
            with store_of(path, clock, offsets_retention_minutes=10) as store:
                assert store.expire_cursors(dry_run=True) == {}
                assert store.expire_cursors() == {}
                clock.ahead += 9 * MINUTE  # it was seen

        assert in_a_child(work) == 0
    assert "g" in kstore.LogStore(path).cursors()


def killed_reader(read: Callable[[], Iterator[object]], meanwhile: Callable[[], object]) -> None:
    """A member that reads, commits nothing, and is killed."""
    reads, pid = os.pipe(), os.fork()
    if pid == 0:
        cursor = read()
        list(cursor)
        os.write(reads[1], b"x")
        signal.pause()
        os._exit(1)
    assert os.read(reads[0], 1) == b"x"
    meanwhile()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for end in reads:
        os.close(end)


@pytest.mark.parametrize("seen", [False, True])
def test_one_that_was_killed_has_left_when_that_is_found(path: Path, seen: bool) -> None:
    """Whether or not it was seen before. It had joined a group whose last member left properly."""
    committed(path)
    clock = Clock()
    with store_of(path, clock, offsets_retention_minutes=10) as store:
        clock.ahead = 20 * MINUTE
        killed_reader(
            lambda: kstore.LogStore(path).cursor("g", ["t"]), store.expire_cursors if seen else lambda: None
        )
        clock.ahead = 40 * MINUTE
        assert store.expire_cursors(dry_run=True) == {}
        assert store.expire_cursors() == {}
        clock.ahead = 49 * MINUTE
        assert store.expire_cursors() == {}
        clock.ahead = 51 * MINUTE
        assert store.expire_cursors() == {"g": [("t", 0), ("t", 1)]}


def test_another_member_leaves_before_it_is_killed(path: Path) -> None:
    """Who leaves says so of itself, not of the group."""
    committed(path)
    clock = Clock()

    def another() -> None:
        with kstore.LogStore(path).open("t", 1).cursor("g"):
            pass

    killed_reader(lambda: kstore.LogStore(path).open("t", 0).cursor("g"), another)
    with store_of(path, clock, offsets_retention_minutes=10) as store:
        clock.ahead = 40 * MINUTE
        assert store.expire_cursors(dry_run=True) == {}
        assert store.expire_cursors() == {}
        clock.ahead = 51 * MINUTE
        assert store.expire_cursors() == {"g": [("t", 0), ("t", 1)]}


def test_somebody_reads_what_the_group_has_not_committed(path: Path) -> None:
    """Of another partition, in this process or in another: the group is read for."""
    with kstore.LogStore(path).open("t", 0).cursor("g") as cursor:
        list(cursor)
        cursor.commit()
    clock = Clock()

    def expires() -> None:
        with store_of(path, clock, offsets_retention_minutes=10) as store:
            assert store.expire_cursors(dry_run=True) == {}
            assert store.expire_cursors() == {}

    with kstore.LogStore(path).open("t", 1).cursor("g"):
        for clock.ahead in (20 * MINUTE, 35 * MINUTE, 50 * MINUTE):
            expires()
            assert in_a_child(expires) == 0
    clock.ahead = 60 * MINUTE
    with store_of(path, clock, offsets_retention_minutes=10) as store:
        assert store.expire_cursors() == {"g": [("t", 0)]}


def test_one_that_was_killed_after_a_commit(path: Path) -> None:
    def work() -> None:
        with kstore.LogStore(path).cursor("g", ["t"]) as cursor:
            for _ in cursor:
                pass
            cursor.commit()
            os._exit(0)

    assert in_a_child(work) == 0
    clock = Clock()
    with store_of(path, clock, offsets_retention_minutes=10) as store:
        clock.ahead = 11 * MINUTE
        assert store.expire_cursors() == {}
        clock.ahead = 22 * MINUTE
        assert store.expire_cursors() == {"g": [("t", 0), ("t", 1)]}


def test_of_the_command_line(path: Path) -> None:
    committed(path)
    assert run(path, "--expire", 10).stdout.count("\n") == 1
    assert "g " in run(path, "--expire", 0, "--dry-run").stdout
    assert run(path, "--expire", 0).stdout.count("\n") == 3
    assert kstore.LogStore(path).cursors() == {}
    for wrong in (
        ("--expire", "-1"),
        ("--expire", 1, "--import", path),
        ("--dry-run",),
        ("--offsets-partitions", 1),
    ):
        assert run(path, *wrong).returncode != 0
