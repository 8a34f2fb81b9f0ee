"""Processes that write one log at random, are stopped, and are killed at any moment and at any system call: each
acknowledged record is there once, in an order on which all agree."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import SEED, times
from tests.shared.judge import Journals
from tests.shared.life import live
from tests.shared.processes import started

APPENDS = ["append", "append", "extend", "batch", "retry", "transaction", "read", "scan"]
# what the processes of a log do
KINDS = {
    "appends": [*APPENDS, "flush"],
    "rolls": [*APPENDS, "roll", "flush", "configure"],
    "deletes": [*APPENDS, "roll", "delete_records", "retain", "configure"],
    "truncates": [*APPENDS, "roll", "truncate", "flush"],
    "compacts": [*APPENDS, "roll", "roll", "compact"],
    "commits": ["append", "extend", "read", "commit", "commit"],
    # but no transactions: a recovery forgets that one was aborted that began before what was deleted
    "all": [
        "append", "extend", "batch", "retry", "read", "scan", "roll", "flush", "configure", "delete_records", "retain",
        "truncate", "compact", "commit",
    ],
}  # fmt: skip
LIVES = 14  # of one log
PATIENCE = 60  # s that processes may take, far more than they need


class Population:
    """Processes that live at the same time, of which some die."""

    def __init__(self, directory: Path, journals: Path, kind: str, seed: str) -> None:
        self._directory = directory
        self._journals = journals
        self._operations = KINDS[kind]
        self._rng = random.Random(seed)
        self._seed = seed
        self._living: set[int] = set()
        self._name = 0

    def run(self) -> None:
        most = self._rng.randint(2, 8)
        until = time.monotonic() + PATIENCE
        while self._name < LIVES or self._living:
            assert time.monotonic() < until, f"{len(self._living)} processes wait for ever"
            while self._name < LIVES and len(self._living) < most:
                self._begin()
            time.sleep(self._rng.random() * 0.02)
            self._reap()
            self._disturb()

    def end(self) -> None:
        for child in self._living:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def _begin(self) -> None:
        self._name += 1
        name, rng = self._name, self._rng
        seed = f"{self._seed} {name}"
        dies_at = rng.choice([0, 0, rng.randint(1, 60), rng.randint(1, 600)])
        how = rng.choice(["kill", "kill_half"])
        self._living.add(
            started(
                lambda: live(
                    self._directory, self._journals, name, seed, self._operations, dies_at=dies_at, how=how
                )
            )
        )

    def _reap(self) -> None:
        for child in list(self._living):
            if os.waitpid(child, os.WNOHANG)[0]:
                self._living.discard(child)

    def _disturb(self) -> None:
        if not self._living or self._rng.random() < 0.5:
            return
        child = self._rng.choice(sorted(self._living))
        if self._rng.random() < 0.2:
            os.kill(child, signal.SIGKILL)
            return
        os.kill(child, signal.SIGSTOP)
        time.sleep(self._rng.random() * 0.02)
        os.kill(child, signal.SIGCONT)


def check(directory: Path, journals: Path) -> None:
    said = Journals(journals)
    if not list(directory.glob("*.log")):  # all were killed before there was one, or when it was replaced
        assert not said.errors, said.errors
        assert not said.acked or said.removals
        return
    said.check(kstore.open(directory))
    with kstore.open(directory, "a", shared=True) as log:
        assert not log.recovery.losses
        said.check(log)
        end = log.append(b"last", b"key")
    assert not (directory / "kstore-shared").exists()
    again = kstore.open(directory)
    assert again.recovery.clean
    assert not again.recovery.findings
    assert again.get(end).value == b"last"


@pytest.mark.parametrize("kind", KINDS)
def test_lives(ram: Path, kind: str) -> None:
    for n in range(times(1)):
        directory, journals = ram / f"t{n}-0", ram / f"journals{n}"
        journals.mkdir()
        population = Population(directory, journals, kind, f"{SEED} {kind} {n}")
        try:
            population.run()
        finally:
            population.end()
        check(directory, journals)
