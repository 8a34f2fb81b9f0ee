"""A power cut while several processes write one log: no record that was acknowledged as durable is lost, whichever
process has written, rolled and synced, and whichever has died."""

import multiprocessing
import os
import random
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.testing import State, Trace, crash_states
from tests.crash_states.shared_recorder import SharedRecorder
from tests.helpers.effort import SEED, times
from tests.shared.processes import ended, started

PROCESSES = 4
CALLS = 12  # of each
NAME = "t-0"


def live(recorder: SharedRecorder, root: Path, name: int, seed: str) -> None:
    """One process."""
    recorder.begin_in_child()
    rng = random.Random(f"{seed} {name}")
    durability = rng.choice(["none", "group", "group"])
    with kstore.open(
        root / NAME,
        "a",
        shared=True,
        durability=durability,  # type: ignore[arg-type]
        internal_segment_bytes=rng.choice([900, 3000]),
        segment_index_bytes=256,
        index_interval_bytes=100,
    ) as log:
        mine: list[tuple[int, str]] = []
        for n in range(CALLS):
            values = [f"{name}.{n}.{i}" + "." * 40 for i in range(rng.choice([1, 1, 1, 7]))]
            first = log.extend([value.encode() for value in values]).start
            mine += [(first + i, value) for i, value in enumerate(values)]
            what = rng.randrange(6)
            if what == 0:
                log.roll()
            if what == 1:
                log.flush()
            if durability == "group" or what == 1:
                for known in mine:
                    recorder.tell(*known)
                mine.clear()


def record(ram: Path, seed: str, deaths: int) -> Trace:
    root = ram / "lives"
    (root / NAME).mkdir(parents=True)  # so that no process creates a file there before it is recorded
    with SharedRecorder(str(root), random.Random(seed), deaths) as recorder:
        children = [started(lambda name=name: live(recorder, root, name, seed)) for name in range(PROCESSES)]
        for child in children:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert status == 0 or (deaths and status < 0)
    return recorder.trace


def judge(ram: Path, state: State, number: int) -> None:
    """Opens what the power cut has left, by reading, and by writing alone or with others."""
    root = ram / f"state{number}"
    root.mkdir()
    state.image.write_to(root)
    path = root / NAME
    durable: dict[int, str] = state.value or {}
    if not durable and not list(path.glob("*.log")):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kstore.DataLossWarning)  # of what was not durable
        for shared in (None, number % 2 == 0):
            log = kstore.open(path) if shared is None else kstore.open(path, "a", shared=shared)
            there = {record.offset: (record.value or b"").decode() for record in log}
            missing = {offset: value for offset, value in durable.items() if there.get(offset) != value}
            assert not missing, (missing, state.at, state.model, state.text)
            assert list(there) == sorted(there)
            assert len(set(there.values())) == len(there)
            if shared is not None:
                end = log.log_end_offset
                assert end > max(there, default=-1)
                assert log.append(b"last") == end
                log.close()
                assert kstore.open(path).recovery.clean


@pytest.mark.parametrize("deaths", [0, 2])
def test_shared_lives(ram: Path, deaths: int) -> None:
    for n in range(times(1)):
        seed = f"{SEED} {deaths} {n}"
        (ram / str(n)).mkdir()
        trace = record(ram / str(n), seed, deaths)
        states = 0
        for state in crash_states(trace, most=1, moments=40, seed=seed):
            judge(ram / str(n), state, states)
            states += 1
        assert states > 20
        assert any(call.name == "mark" for call in trace.calls)


def test_a_roll_after_another_process_has_raised_the_recovery_point(ram: Path) -> None:
    """The recovery point is where the new segment begins, and the old one still has room that was set aside."""
    root = ram / "lives"
    options: dict[str, Any] = {"internal_segment_bytes": 4000, "preallocate": True}
    (root / NAME).mkdir(parents=True)
    turn = multiprocessing.get_context("fork").Barrier(2)

    def flush() -> None:
        recorder.begin_in_child()
        with kstore.open(root / NAME, "a", shared=True, **options) as log:
            turn.wait()
            turn.wait()
            log.flush()
            recorder.tell(1, "durable")

    with (
        SharedRecorder(str(root), random.Random(0), 0) as recorder,
        kstore.open(root / NAME, "a", shared=True, **options) as log,
    ):
        log.append(b"first")
        log.roll()
        child = started(flush)
        turn.wait()
        log.append(b"durable")
        turn.wait()
        assert ended(child) == 0
        log.roll()
    for number, state in enumerate(crash_states(recorder.trace, models=["strict"], most=1, seed=str(SEED))):
        judge(ram, state, number)


class DyingRecorder(SharedRecorder):
    """A child dies when it has made a file whose path ends in `dies_at`; its own thread has synced nothing."""

    dies_at = ""

    def _send(self, *message: Any) -> None:
        name, path = message[:2]
        if name == "syncs" and threading.current_thread() is not threading.main_thread():
            time.sleep(60)
        super()._send(*message)
        if name == "open" and self.dies_at and path.endswith(self.dies_at):
            os.kill(os.getpid(), signal.SIGKILL)


def test_an_append_after_another_process_has_died_in_a_roll(ram: Path) -> None:
    """The next one recovers the last segments only; what was sealed before is not on the disk, either."""
    root = ram / "lives"
    (root / NAME).mkdir(parents=True)

    def roll_twice() -> None:
        recorder.begin_in_child()
        recorder.dies_at = f"{2:020d}.log"
        with kstore.open(root / NAME, "a", shared=True) as log:
            for value in (b"first", b"second"):
                log.append(value)
                log.roll()

    with (
        DyingRecorder(str(root), random.Random(0), 0) as recorder,
        kstore.open(root / NAME, "a", shared=True, durability="group") as log,
    ):
        assert ended(started(roll_twice)) == -signal.SIGKILL
        recorder.mark({log.append(b"durable"): "durable"})
    for number, state in enumerate(crash_states(recorder.trace, models=["strict"], most=1, seed=str(SEED))):
        judge(ram, state, number)
