"""An allocation of an operation finds no memory, be it in C, in Cython or in Python: nothing is lost, and the log goes on.

KSTORE_ALLOCATIONS=N tries N allocations of each operation, the same for the same KSTORE_INTERRUPTS_SEED. In one child in two,
those that follow fail, too, for a while. KSTORE_ALLOCATIONS=all tries every one of them, in processes that have done the
operation once. It is no part of `make test`, because CPython 3.11 and numpy do not survive every failure themselves: their
"error return without exception set" is left out, but they also free twice when they compile, and wait for threads that had no
memory to begin.
"""

import contextlib
import os
import random
import re
import shutil
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.log.writer
from tests.helpers.children import LIMIT, run, say
from tests.interrupts.operation import Operation, Subject
from tests.interrupts.points import BATCH, EVERY, SEED, in_directories, one_by_one, sample, warm_up

testcapi = pytest.importorskip(
    "_testcapi", reason="this Python is without its own tests, which can let allocations fail"
)
ALL = os.environ.get("KSTORE_ALLOCATIONS") == "all"
MOST = 0 if ALL else int(os.environ.get("KSTORE_ALLOCATIONS", "0"))  # of each operation
A_WHILE = 20  # allocations
# what CPython 3.11 says in place of MemoryError
INSTEAD = re.compile("not PosixPath|without (setting an )?exception|can't (allocate lock|start new thread)")
for name in kstore.__all__:
    getattr(
        kstore, name
    )  # so that no operation imports: CPython's compiler does not survive a lack of memory
ROOT = Path(kstore.__file__).parent


class WithMemory:
    """Calls something with the memory that it needs. No closure: a world goes to other processes."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        testcapi.remove_mem_hooks()
        self._call(*args)


def spare_the_test(world: Subject) -> None:
    """Its own bookkeeping has memory, and what CPython loses on the way is not complained of."""
    world.ack = WithMemory(world.ack)
    # CPython 3.11 never gives back what a function is called with that has no memory for the cells of its closures: a log
    world.descriptors += 30
    world.may_lose_threads = True
    complain = sys.unraisablehook
    sys.unraisablehook = lambda e: None if _is_lack_of_memory(e.exc_value) else complain(e)
    ended = (
        threading.excepthook
    )  # a thread that found no memory is started again when there is something to do
    threading.excepthook = lambda e: None if _is_lack_of_memory(e.exc_value) else ended(e)


def _is_lack_of_memory(error: BaseException | None) -> bool:
    """Or what CPython 3.11 says in its place."""
    return error is not None and any(
        isinstance(each, MemoryError) or INSTEAD.search(str(each)) or _never_ran(each)
        for each in (error, error.__context__)
    )


def _never_ran(error: BaseException | None) -> bool:
    """Whether it is what a thread says that had begun when whoever started it found no memory to say so."""
    return isinstance(error, KeyError) and any(isinstance(each, threading.Thread) for each in error.args)


def fail(operation: Operation[Any], nth: int, count: int, directory: Path) -> None:
    """Tries the operation while so many of its allocations fail, from the nth on, and goes on with the log."""
    world = operation.world(directory)
    spare_the_test(world)
    with contextlib.suppress(MemoryError, kstore.KstoreError, OSError):
        try:
            testcapi.set_nomemory(nth - 1, nth - 1 + count)
            try:
                operation.act(world)
            finally:
                testcapi.remove_mem_hooks()
        except (TypeError, SystemError, RuntimeError) as e:
            if not _is_lack_of_memory(e):
                raise
    world.go_on()


def fail_some(operation: Operation[Any], numbers: list[int], directory: Path) -> None:
    """Tries it with one of these allocations at a time, one after the other, in a process that has done it once."""
    for nth, own in one_by_one(operation, numbers, directory):
        fail(operation, nth, 1, own)
        say(f"tried {nth}")


def count_allocations(operation: Operation[Any], directory: Path, *, warm: bool = False) -> int:
    """How many there are, about: the operation still fails if many from there on fail. `warm`: of one that has been done
    before."""
    low, high = 0, 64

    def fails(nth: int) -> bool:
        own = directory / str(nth)
        own.mkdir()

        def work() -> None:
            if warm:
                warm_up(operation, own)
            world = operation.world(own / "counted")
            testcapi.set_nomemory(nth, nth + 1000)
            try:
                operation.act(world)
            finally:
                testcapi.remove_mem_hooks()
            say("it did not fail")

        ended = run(work)
        shutil.rmtree(own, ignore_errors=True)
        return "it did not fail" not in ended.text

    while fails(high):
        assert high < 1_000_000, "it fails for another reason"
        low, high = high, 4 * high
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if fails(middle) else (low, middle)
    return high


@pytest.mark.skipif(not ALL, reason="KSTORE_ALLOCATIONS=all")
@pytest.mark.parametrize("name", EVERY)
def test_no_memory_anywhere(ram: Path, name: str, tried: Callable[[int], None]) -> None:
    operation = EVERY[name]
    total = count_allocations(operation, ram, warm=True)
    batches = [list(range(first, min(first + BATCH, total + 1))) for first in range(1, total + 1, BATCH)]
    wrong = {}

    def task(numbers: list[int]) -> tuple[int, Callable[[Path], None]]:
        return numbers[0], lambda own: fail_some(operation, numbers, own)

    while batches:
        by_first = {numbers[0]: numbers for numbers in batches}
        batches = []
        for first, ended in in_directories(ram, [task(each) for each in by_first.values()], LIMIT * BATCH):
            numbers = by_first[first]
            done = ended.text.count("tried ")
            tried(done)
            if ended.wrong and len(numbers) == 1:
                wrong[first] = ended.wrong + ended.text[-1500:]
            elif ended.wrong:  # once more, alone: what CPython lost at those before is not this one's fault
                one, rest = numbers[done : done + 1], numbers[done + 1 :]
                batches += [each for each in (one, rest) if each] or [[nth] for nth in numbers]
    assert not wrong, f"{len(wrong)} of {total} allocations: {wrong}"


@pytest.mark.skipif(MOST == 0, reason="KSTORE_ALLOCATIONS=N")
@pytest.mark.parametrize("name", EVERY)
def test_no_memory(ram: Path, name: str, tried: Callable[[int], None]) -> None:
    operation = EVERY[name]
    total = count_allocations(operation, ram)
    rng = random.Random(SEED)

    def task(nth: int) -> tuple[int, Callable[[Path], None]]:
        count = rng.choice((1, A_WHILE))
        return nth, lambda own: fail(operation, nth, count, own)

    chosen = sorted(set(sample(total, MOST, SEED)))
    wrong = {
        nth: ended.wrong + ended.text[-1500:]
        for nth, ended in in_directories(ram, [task(nth) for nth in chosen])
        if ended.wrong
    }
    tried(len(chosen))
    assert not wrong, f"seed {SEED}, {len(wrong)} of {len(chosen)} of {total} allocations: {wrong}"


def test_no_with_statement_in_cython() -> None:
    """Cython's `with` ends the process if its block raises and there is no memory for a traceback."""
    found = [
        f"{path.name}: {line.strip()}"
        for path in ROOT.rglob("*.pyx")
        for line in path.read_text().splitlines()
        if re.match(r"\s+with (?!nogil|gil)", line)
    ]
    assert list(ROOT.rglob("*.pyx"))
    assert found == []


def test_numpy_without_memory(tmp_path: Path) -> None:
    """It makes another layout than it is told then, and says nothing: headers would be written beyond their memory."""
    with kstore.open(tmp_path, "a") as log:
        for _ in range(3):
            log.append(b"v")

    def task(nth: int) -> None:
        import numpy  # noqa: F401

        segment = kstore.open(tmp_path).segments[0]
        with contextlib.suppress(MemoryError, TypeError, ValueError, OSError):
            testcapi.set_nomemory(nth, nth + 1)
            try:
                segment.read_headers()
            finally:
                testcapi.remove_mem_hooks()
        headers = segment.read_headers()
        say(f"headers: {headers['base_offset'].tolist()} {headers['last_offset'].tolist()}")

    told = [ended.text for nth in range(100) if "headers: " in (ended := run(partial(task, nth))).text]
    assert [text for text in told if "headers: [0, 1, 2] [0, 1, 2]" not in text] == []
    assert len(told) > 50  # CPython and numpy do not survive every failure
