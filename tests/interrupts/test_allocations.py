"""An allocation of an operation finds no memory, be it in C, in Cython or in Python: no crash, no wrong
record.

At EFFORT=1 one allocation of a few operations fails, at EFFORT=N N of N times as many. In one of two attempts
those that follow fail, too, for a while. CPython 3.11 and numpy do not survive every failure themselves: they
say that an error has no exception, free twice when they compile, and wait for threads that had no memory to
begin.
"""

import contextlib
import random
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.children import run, say
from tests.helpers.effort import SEED, some
from tests.interrupts.attempts import EVERY, Act, attempt, in_memory

testcapi = pytest.importorskip(
    "_testcapi", reason="this Python is without its own tests, which can let allocations fail"
)
A_WHILE = 20  # allocations
# What CPython 3.11 says in place of MemoryError.
INSTEAD = re.compile(
    "not PosixPath|without (setting an )?exception|with an exception set|can't (allocate lock|start new thread)"
)
# Of others, CPython's own failures are too many for each change.
SURVIVED = ["append", "append_batches", "append_batches, idempotent", "extend", "flush", "get, find", "roll"]
ROOT = Path(kstore.__file__).parent


def without_memory(first: int, count: int, _: Any, act: Act) -> object:
    """So many allocations fail, from `first` on; what CPython loses then is not complained of."""
    sys.unraisablehook = threading.excepthook = lambda e: None
    try:
        testcapi.set_nomemory(first - 1, first - 1 + count)
        try:
            return act()
        finally:
            testcapi.remove_mem_hooks()
    except (TypeError, SystemError, RuntimeError) as e:
        if any(INSTEAD.search(str(each)) for each in (e, e.__context__)):
            raise MemoryError from e
        raise


def count_allocations(name: str) -> int:
    """At least as many as an operation makes, at most twice as many: none fails then."""
    operation = EVERY[name]

    def work(nth: int, directory: Path) -> None:
        subject = operation.ready(directory / "counted")
        without_memory(nth, 1000, subject, partial(operation.act, subject))
        say("nothing failed")

    nth = 64
    while True:
        with in_memory() as directory:
            if "nothing failed" in run(partial(work, nth, directory)).text:
                return nth
        nth *= 2
        assert nth < 1_000_000, f"{name} fails for another reason"


# numpy does not survive a lack of memory in its first layout.
with tempfile.TemporaryDirectory() as directory:
    with kstore.open(directory, "a") as log:
        log.append(b"v")
    kstore.open(directory).segments[0].read_headers()
NOW = some(SURVIVED, 3, "allocations")


@pytest.mark.parametrize(
    "name", [*NOW, *(pytest.param(name, marks=pytest.mark.nightly) for name in EVERY if name not in NOW)]
)
def test_no_memory(name: str, tried: Callable[[int], None]) -> None:
    rng = random.Random(f"{SEED} {name}")
    wrong = []
    chosen = some(range(1, count_allocations(name) + 1), 2, name)
    for nth in chosen:
        count = rng.choice((1, A_WHILE))
        ended = attempt(name, partial(without_memory, nth, count), may_leave=True)
        if ended.wrong:
            wrong.append(f"{count} allocations from {nth} on: {ended.wrong}\n{ended.text[-1500:]}")
    tried(len(chosen))
    assert not wrong, f"SEED={SEED}, {len(wrong)} of {len(chosen)} attempts:\n" + "\n".join(wrong)


def test_no_with_statement_in_cython() -> None:
    """Cython's `with` ends the process if its block raises and there is no memory for a traceback."""
    sources = list(ROOT.rglob("*.pyx"))
    found = [
        f"{path.name}: {line.strip()}"
        for path in sources
        for line in path.read_text().splitlines()
        if re.match(r"\s+with (?!nogil|gil).*:$", line)  # one in a docstring has no colon
    ]
    assert sources
    assert found == []


@pytest.mark.nightly
def test_numpy_without_memory(tmp_path: Path) -> None:
    """It makes another layout than asked, and says nothing: headers would be written beyond their memory."""
    with kstore.open(tmp_path, "a") as log:
        for _ in range(3):
            log.append(b"v")

    def work(nth: int) -> None:
        segment = kstore.open(tmp_path).segments[0]
        with contextlib.suppress(MemoryError, TypeError, ValueError, OSError):
            testcapi.set_nomemory(nth, nth + 1)
            try:
                segment.read_headers()
            finally:
                testcapi.remove_mem_hooks()
        headers = segment.read_headers()
        say(f"headers: {headers['base_offset'].tolist()} {headers['last_offset'].tolist()}")

    told = [ended.text for nth in range(100) if "headers: " in (ended := run(partial(work, nth))).text]
    assert [text for text in told if "headers: [0, 1, 2] [0, 1, 2]" not in text] == []
    assert len(told) > 50  # CPython and numpy do not survive every failure
