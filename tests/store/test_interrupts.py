"""Interrupts of a store that keep nothing locked; and signal handlers that change topics.

What an interrupted operation has done is asked by tests/interrupts.
"""

import contextlib
import gc
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore
from tests.helpers.effort import SEED, some
from tests.helpers.injector import InjectedInterrupt, Injector
from tests.store.stores import opened, writer

CHANGES: dict[str, Callable[[LogStore], object]] = {
    "create": lambda store: store.create_topic("new", 3),
    "add": lambda store: store.add_partitions("old", 4),
    "alter": lambda store: store.alter_topic("old", segment_bytes=1 << 21),
    "delete": lambda store: store.delete_topic("old"),
}


def interrupt() -> None:
    raise InjectedInterrupt


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """As in a program whose garbage is not collected just now."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def make(path: Path, *, clean: bool = True) -> None:
    store = opened(path)
    store.create_topic("old", 2)
    store.create_topic("other")
    for topic in ("old", "other"):
        store.append(topic, b"v", b"k")
    store.close() if clean else store.abandon()


def with_a_log(path: Path) -> LogStore:
    store = opened(path, max_open_partitions=1)
    store.append("old", b"v", b"k")
    return store


def append(store: LogStore) -> None:
    store.append("other", b"v", b"k")


# of each: whether the store was closed cleanly, what comes first, and what is interrupted
OPERATIONS: dict[str, tuple[bool, Callable[[Path], Any], Callable[[Any], object]]] = {
    "open": (True, lambda path: path, opened),
    "recover": (False, lambda path: path, opened),
    "open a log": (True, opened, append),
    "close one log and open another": (True, with_a_log, append),
    "create": (True, opened, CHANGES["create"]),
    "delete": (True, with_a_log, CHANGES["delete"]),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # raised in a weak reference's callback
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_interrupt_keeps_nothing_locked(ram: Path, name: str) -> None:
    """Neither an exception that is kept, nor uncollected garbage has a lock. A store that was open goes on,
    but for changes of topics, if one is unfinished."""
    clean, prepare, operate = OPERATIONS[name]
    make(ram / "made", clean=clean)
    for run in ("warm", "whole"):  # what only a first run does is not counted
        shutil.copytree(ram / "made", ram / run)
        prepared = prepare(ram / run)
        with Injector("check") as counter:
            made = operate(prepared)
        for store in (prepared, made):
            if isinstance(store, LogStore):
                store.close()
    # one point of each place in kstore
    places = {place: nth for nth, place in enumerate(counter.where, 1) if not place.startswith("python")}
    assert len(places) > 50
    interrupted = 0
    for nth in some(sorted(places.values()), 10, name):
        path, case = ram / str(nth), f"{name} at check {nth}, SEED={SEED}"
        shutil.copytree(ram / "made", path)
        prepared = prepare(path)
        kept: list[Any] = []
        with without_collection():
            try:
                with Injector("check", nth, interrupt):
                    made = operate(prepared)
                if isinstance(made, LogStore):
                    made.close()
            except InjectedInterrupt as e:
                kept.append(e)
                interrupted += 1
            store = prepared if isinstance(prepared, LogStore) else opened(path)
            with store:
                if not store.health().unfinished:
                    assert store.health().ok, case
                    for topic in store.topics:
                        store.append(topic, b"v", b"k")
                    store.create_topic("another")
            assert store.closed_cleanly, case
            opened(path).close()
            for partition in path.glob("o*-[0-9]"):
                kstore.open(partition, "a").close()
        del kept
    assert interrupted > 5


@pytest.mark.parametrize("name", CHANGES)
def test_a_handler_changes_the_topic(ram: Path, name: str) -> None:
    """The signal comes while a log of the topic is written: the change is made or refused, and nothing is
    lost."""

    def write(log: kstore.LogWriter) -> None:
        log.append(b"more")
        log.flush()
        log.roll()

    make(ram / "made")
    shutil.copytree(ram / "made", ram / "whole")
    with opened(ram / "whole") as store:
        whole = writer(store, "old")
        with Injector("check") as counter:
            write(whole)
    outcomes: set[bool] = set()
    for nth in some(range(1, counter.count + 1), 6, name):
        path, case = ram / str(nth), f"at check {nth}, SEED={SEED}"
        shutil.copytree(ram / "made", path)
        store = opened(path)
        log, done = writer(store, "old"), []

        def change(store: LogStore = store, done: list[bool] = done) -> None:
            try:
                CHANGES[name](store)
                done.append(True)
            except kstore.ReentrantCallError:
                done.append(False)

        with contextlib.suppress(kstore.LogClosedError), Injector("check", nth, change):
            write(log)
        outcomes.update(done)
        made = any(done)  # a later run may have fewer points
        assert store.health().ok, case
        topics = {"old": 2, "other": 1}
        if made:
            topics |= {"create": {"new": 3}, "add": {"old": 4}}.get(name, {})
        if made and name == "delete":
            del topics["old"]
        assert {topic: len(numbers) for topic, numbers in store.topics.items()} == topics, case
        if "old" in topics:
            size = 1 << 21 if made and name == "alter" else 1 << 30
            assert log.config.segment_bytes == size, case
            end = log.append(b"last")
        store.close()
        with opened(path) as store:
            assert store.health().ok, case
            if "old" in topics:
                assert [r.value for r in store.open("old", 0)][-1] == b"last", case
                assert store.open("old", 0).log_end_offset == end + 1, case
    assert outcomes, f"SEED={SEED}"
