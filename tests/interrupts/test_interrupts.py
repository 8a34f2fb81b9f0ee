"""Ctrl-C and MemoryError at points of every operation: it is done or not done, or the log refuses writes;
nothing is lost.

At EFFORT=1 one point of some operations is tried, at EFFORT=N N points of N times as many.
"""

import itertools
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.files import checkpoints, layout
from kstore.log.read.page_cache import PageCache
from tests.helpers.effort import SEED, some, times
from tests.helpers.injector import InjectedInterrupt, Injector, raiser
from tests.interrupts.attempts import EVERY, at_point, attempt, explain, undisturbed, within

SIGNALS = 5  # of each operation
Tried = Callable[[int], None]


@pytest.mark.parametrize("name", some(list(EVERY), 28, "interrupts"))
def test_interrupted(name: str, tried: Tried) -> None:
    """Where CPython runs the handlers of signals."""
    try_points(name, "KeyboardInterrupt", "check", tried)


@pytest.mark.parametrize("name", some(list(EVERY), 8, "memory"))
def test_no_memory_at_a_line(name: str, tried: Tried) -> None:
    try_points(name, "MemoryError", "line", tried)


@pytest.mark.parametrize("kind", ["check", "line"])
def test_there_are_points(kind: str) -> None:
    assert len(undisturbed("truncate_to a batch", kind).places) > 100


def try_points(name: str, what: str, kind: str, tried: Tried) -> None:
    total = len(undisturbed(name, kind).places)  # none where all is C
    points = some(range(1, total + 1), 1, (name, what))
    ended = {nth: at_point(name, what, kind, nth) for nth in points}
    wrong = [explain(name, what, kind, nth, each) for nth, each in ended.items() if each.wrong]
    assert not wrong, f"SEED={SEED}, {len(wrong)} of {len(ended)} points:\n" + "\n".join(wrong[:10])
    tried(len(ended))


def test_an_interrupt_at_the_next_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterating again goes on with that segment; it was passed over."""
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=300) as log:
        for i in range(12):
            log.append(b"%060d" % i)
        assert len(log.segments) > 2
    enter, calls = PageCache.enter, itertools.count(1)

    def interrupted(*arguments: Any) -> int:
        if next(calls) % 2:
            raise KeyboardInterrupt
        return enter(*arguments)

    monkeypatch.setattr(PageCache, "enter", interrupted)
    records, found = iter(kstore.open(tmp_path / "t-0").records()), list[int]()
    while len(found) < 12:
        with suppress(KeyboardInterrupt):
            found.append(next(records).offset)
    assert found == list(range(12))


def test_an_interrupt_when_the_log_start_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers, and the next writer, find one log start; the writer found that which the directory remembered
    for another log."""
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 2)
        for i in range(10):
            store.log("t", 0).append(b"%d" % i)
    write_offsets = checkpoints.write_offsets

    def interrupted(path: str, offsets: Any) -> None:
        write_offsets(path, offsets)
        if path.endswith(layout.LOG_STARTS):
            monkeypatch.undo()
            raise KeyboardInterrupt

    with kstore.open(tmp_path / "t-1", "a"):
        log = kstore.open(tmp_path / "t-0", "a")
        monkeypatch.setattr(checkpoints, "write_offsets", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.delete_records(5)
        log.abandon()
        found = kstore.open(tmp_path / "t-0").log_start_offset
        with kstore.open(tmp_path / "t-0", "a") as log:
            assert kstore.open(tmp_path / "t-0").log_start_offset == log.log_start_offset == found == 5


# in the callback of a weak reference, CPython reports it instead of raising it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ends", ["close", "abandon"])
def test_an_interrupt_while_the_directory_is_unlocked(tmp_path: Path, ends: str) -> None:
    """The second call unlocks it, at every point of the first one."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log, Injector("check") as undisturbed_end:
        getattr(log, ends)()
    places = [nth for nth, place in enumerate(undisturbed_end.where, 1) if place.startswith("log/files/lo")]
    assert len(places) > 30
    for nth in places:
        log = kstore.open(path, "a")
        with suppress(InjectedInterrupt), Injector("check", nth, raiser(InjectedInterrupt)):
            getattr(log, ends)()
        getattr(log, ends)()
        assert log.is_closed
        kstore.open(path, "a").close()


@pytest.mark.nightly
@pytest.mark.parametrize("name", EVERY)
def test_signalled(name: str, tried: Tried) -> None:
    """A timer's signals, also between system calls and in waits."""
    rng = random.Random(f"{SEED} {name}")

    @contextmanager
    def signalled(_: object) -> Iterator[None]:
        is_over = False  # a thread may take the signal when the timer has been stopped
        signal.signal(signal.SIGALRM, lambda *_: None if is_over else raiser(InjectedInterrupt)())
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 0.01))
            yield
        finally:
            is_over = True
            signal.setitimer(signal.ITIMER_REAL, 0)

    for number in range(times(SIGNALS)):
        ended = attempt(name, within(signalled))
        assert not ended.wrong, f"SEED={SEED}, signal {number}: {ended.wrong}\n{ended.text[-3000:]}"
    tried(times(SIGNALS))
