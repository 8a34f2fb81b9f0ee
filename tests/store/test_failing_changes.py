"""What a store refuses, and what it goes on with, after a system call of a change has failed. That a change is
done or not done, whatever call fails or kills, is tested for all operations in tests/interrupts."""

import contextlib
import errno
from pathlib import Path

import pytest

import kstore
from kstore.testing import count_calls, failing
from tests.store.stores import opened, writer


def test_a_change_that_is_not_finished(ram: Path) -> None:
    """No more topics are changed until the store is opened again; other logs are appended to."""

    def begin(path: Path) -> kstore.LogStore:
        store = opened(path)
        store.create_topic("old", 3)
        store.create_topic("other")
        writer(store, "old").append(b"v")
        return store

    with begin(ram / "whole") as store:
        calls = count_calls(lambda: store.delete_topic("old"))
    unfinished = 0
    for nth in range(1, calls + 1):
        store = begin(ram / str(nth))
        with failing(nth, errno.EIO, this_thread=True), contextlib.suppress(OSError):
            store.delete_topic("old")
        if store.health().unfinished:
            unfinished += 1
            with pytest.raises(kstore.LogFailedError, match="not finished"):
                store.create_topic("another")
        assert store.append("other", b"v")[1] == 0
        store.abandon()
        with opened(ram / str(nth)) as store:
            assert store.health().ok
            assert len(list(store.log("other"))) == 1
            store.create_topic("another")
    assert 0 < unfinished < calls


def test_flush_goes_on_after_a_failure(tmp_path: Path) -> None:
    with contextlib.suppress(OSError, kstore.KstoreError), opened(tmp_path) as store:
        store.create_topic("t", 2)
        logs = [writer(store, "t", number) for number in range(2)]
        for log in logs:
            log.append(b"v")
        with failing(1, this_thread=True), pytest.raises(OSError, match="Input/output"):
            store.flush()
        assert sorted(log.durable_offset for log in logs) == [0, 1]
