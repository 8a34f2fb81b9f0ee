"""A system call of an operation fails, the process dies at it, or the power fails: the operation is done or
not done, or the log refuses writes; nothing acknowledged is lost.

At EFFORT=1 one call of some operations fails, one of others kills, and states of one moment of a power cut
are opened; at EFFORT=N N calls and moments of N times as many operations.
"""

import errno
import pickle
import shutil
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from kstore.testing import Recorder, count_calls, crash_states, failing
from tests.helpers.calls import FAILURES, WAYS, ends
from tests.helpers.children import run
from tests.helpers.effort import SEED, some, times
from tests.interrupts.attempts import EVERY, Act, attempt, in_memory, undisturbed, within
from tests.interrupts.state import Between
from tests.interrupts.subject import open_again, open_elsewhere

KILLS = WAYS[len(FAILURES) :]
# what was not acknowledged may be lost, and options that were given may not be kept
pytestmark = [
    pytest.mark.filterwarnings("ignore::kstore.DataLossWarning"),
    pytest.mark.filterwarnings("ignore:.*not kept for the next opening"),
]


@cache
def calls_of(name: str) -> int:
    """How many system calls an operation makes."""
    operation = EVERY[name]

    def work(directory: Path) -> None:
        subject = operation.ready(directory / "counted")
        total = count_calls(partial(operation.act, subject))
        (directory / "total").write_bytes(pickle.dumps(total))

    with in_memory() as directory:
        ended = run(partial(work, directory))
        assert not ended.wrong, f"{name}: {ended.wrong}\n{ended.text}"
        total: int = pickle.loads((directory / "total").read_bytes())
    return total


@pytest.mark.parametrize(
    ("name", "how"), [(name, how) for how in ("fails", "kills") for name in some(list(EVERY), 60, how)]
)
def test_a_call(name: str, how: str, tried: Callable[[int], None]) -> None:
    chosen = ends(calls_of(name), 1, (name, how), FAILURES if how == "fails" else KILLS)
    for end in chosen:
        ended = attempt(name, within(lambda _, end=end: failing(*end)), may_die=how == "kills")
        assert not ended.wrong, f"SEED={SEED}, {end}: {ended.wrong}\n{ended.text[-3000:]}"
    tried(len(chosen))


@pytest.mark.parametrize("name", some(list(EVERY), 20, "EINTR"))
def test_an_interrupted_call_is_made_again(name: str) -> None:
    def disturb(nth: int, _: object, act: Act) -> object:
        with failing(nth, errno.EINTR):
            try:
                return act()
            except InterruptedError as e:
                raise AssertionError from e

    for nth in some(range(1, calls_of(name) + 1), 1, name):
        ended = attempt(name, partial(disturb, nth))
        assert not ended.wrong, f"SEED={SEED}, call {nth}: {ended.wrong}\n{ended.text[-3000:]}"


@pytest.mark.parametrize("name", some(list(EVERY), 40, "power"))
def test_a_power_cut(name: str, tried: Callable[[int], None]) -> None:
    """What was there before the operation began was on the disk."""
    operation, whole = EVERY[name], undisturbed(name, "check")

    def work(directory: Path) -> None:
        subject = operation.ready(directory / "recorded")
        time.sleep(0.1)  # a Recorder begins when no thread is about to rename a draft
        with Recorder(subject.root) as recorder:
            operation.act(subject)
        options = {key: value for key, value in subject.options.items() if key != "clock"}
        (directory / "trace").write_bytes(pickle.dumps((recorder.trace, options)))

    def reopen(left: Path, options: dict[str, Any]) -> None:
        subject = operation.subject(left)
        subject.options = options
        allowed = Between(whole.before, whole.after, False, operation.compacts)
        open_elsewhere(subject, open_again(operation, subject, allowed))

    with in_memory() as directory:
        ended = run(partial(work, directory))
        assert not ended.wrong, f"{name}: {ended.wrong}\n{ended.text}"
        trace, options = pickle.loads((directory / "trace").read_bytes())
        states = list(crash_states(trace, most=1, moments=times(1), seed=SEED))
        for state in states:
            left = directory / "left"
            left.mkdir()
            state.image.write_to(left)
            ended = run(partial(reopen, left, options))
            why = f"SEED={SEED}, after call {state.at}, {state.model}: {state.text}"
            assert not ended.wrong, f"{why}: {ended.wrong}\n{ended.text[-3000:]}"
            shutil.rmtree(left)
    tried(len(states))
