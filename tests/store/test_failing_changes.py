"""A file operation of a change of topics fails, or is the last of the process: it is done, or not done.

Some of them each; all with KSTORE_CALLS=all.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore
from kstore.engine.io.file import calls_made, fail_call
from tests.helpers.calls import some_calls

State = dict[str, tuple[list[int], dict[str, object], list[bytes]]]


pytestmark = pytest.mark.usefixtures("sound_calls")


def _create(store: LogStore) -> None:
    store.create_topic("new", 5, retention_ms=77)


def _add(store: LogStore) -> None:
    store.add_partitions("old", 5)


def _alter(store: LogStore) -> None:
    store.alter_topic("old", retention_ms=78)


def _delete(store: LogStore) -> None:
    store.delete_topic("old")


def _again(store: LogStore) -> None:
    """A topic of the same name has nothing of the first."""
    store.delete_topic("old")
    store.create_topic("old", 2)


CHANGES = {"create": _create, "add": _add, "alter": _alter, "delete": _delete}


def opened(directory: Path, count: int) -> LogStore:
    return LogStore(*[directory / str(i) for i in range(count)], mode="a", internal_segment_bytes=10_000)


def filled(directory: Path, count: int) -> LogStore:
    store = opened(directory, count)
    store.create_topic("old", 3, retention_ms=-1)
    store.create_topic("other", 2)
    for i in range(30):
        store.append("old", b"%d" % i, b"%d" % i)
        store.append("other", b"%d" % i, b"%d" % i)
    log: Any = store.log("old", 1)
    log.delete_records(2)
    store.flush()
    return store


def state(store: LogStore) -> State:
    return {
        topic: (
            numbers,
            store.describe(topic).options,
            [value for batch in store.scan(topic, ["value"]) for (value,) in batch.rows()],
        )
        for topic, numbers in store.topics.items()
    }


def outcomes(directory: Path, count: int, change: Callable[[LogStore], None]) -> tuple[State, State, int]:
    """What is there before a change and after it, and how many calls the change makes."""
    with filled(directory, count) as store:
        before = state(store)
        fail_call(0, own=True)
        change(store)
        calls = calls_made()
        after = state(store)
    with opened(directory, count) as store:
        assert state(store) == after
    assert before != after
    return before, after, calls


def check(directory: Path, count: int, allowed: list[State]) -> State:
    with opened(directory, count) as store:
        assert store.health().ok
        found = state(store)
        assert found in allowed
        store.create_topic("goes.on", 4)
        for i in range(20):
            store.append("goes.on", b"v", b"%d" % i)
    again = LogStore(*[directory / str(i) for i in range(count)])
    assert again.closed_cleanly
    for tp in again:
        log = again.open(*tp)
        assert log.recovery.clean
        assert log.recovery.findings == []
    assert not again.others
    return found


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", CHANGES)
def test_killed_at_every_call(ram: Path, name: str, count: int) -> None:
    before, after, calls = outcomes(ram / "whole", count, CHANGES[name])
    assert calls > 4
    seen = []
    for how in ("kill", "kill_half"):
        for nth in some_calls(calls, count, (name, how)):
            directory = ram / f"{how}{nth}"
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    store = filled(directory, count)
                    fail_call(nth, how=how, own=True)
                    CHANGES[name](store)
                os._exit(0)
            assert os.WIFSIGNALED(os.waitpid(child, 0)[1]) or nth > calls - 3
            seen.append(check(directory, count, [before, after]))
    assert before in seen
    assert after in seen


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("name", CHANGES)
def test_any_call_fails(ram: Path, name: str, error: int, count: int) -> None:
    before, after, calls = outcomes(ram / "whole", count, CHANGES[name])
    for nth in some_calls(calls, 2 * count, (name, error)):
        directory = ram / f"t{nth}"
        store = filled(directory, count)
        fail_call(nth, error, own=True)
        failed = False
        try:
            CHANGES[name](store)
        except OSError as e:
            failed = e.errno == error
            assert failed
        finally:
            fail_call(0)
        if failed and store.health().unfinished:
            with pytest.raises(kstore.LogFailedError, match="not finished"):
                store.create_topic("another")
            assert store.append("other", b"30", b"30")[1] >= 0  # the others are in use
            before["other"][2].append(b"30")
            after["other"][2].append(b"30")
        elif failed:
            assert state(store) == before
            CHANGES[name](store)  # nothing has happened: it may be tried again
            assert state(store) == after
        elif store.health().ok:
            assert state(store) == after
        with contextlib.suppress(OSError, kstore.KstoreError):
            store.close()
        with opened(directory, count) as again:
            for topic in ("old", "other", "new"):
                wanted = [sorted(s[topic][2]) if topic in s else None for s in (before, after)]
                found = state(again)
                assert (sorted(found[topic][2]) if topic in found else None) in wanted
        check(directory, count, [_ordered(directory, count)])
        for kept in (before, after):
            if b"30" in kept["other"][2]:
                kept["other"][2].remove(b"30")


def _ordered(directory: Path, count: int) -> State:
    with opened(directory, count) as store:
        return state(store)


def test_a_second_topic_of_the_name_begins_anew(ram: Path) -> None:
    """Killed wherever: offsets of the first are never those of the second."""
    with filled(ram / "whole", 1) as store:
        fail_call(0, own=True)
        _again(store)
        calls = calls_made()
    for nth in some_calls(calls, 2, "again"):
        directory = ram / f"t{nth}"
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                store = filled(directory, 1)
                fail_call(nth, how="kill", own=True)
                _again(store)
            os._exit(0)
        os.waitpid(child, 0)
        with opened(directory, 1) as store:
            ends = [store.log("old", n).log_end_offset for n in store.topics.get("old", [])]
            assert len(ends) in (0, 2, 3)
            if len(ends) == 2:
                assert ends == [0, 0]
                assert store.append("old", b"v", b"k")[1] == 0
            if len(ends) == 3:
                assert sum(ends) == 30
