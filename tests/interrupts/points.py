"""One operation, interrupted at one point; and all points of it.

python tests/interrupts/points.py                          a table of all operations (KSTORE_INTERRUPTS=all: all points)
python tests/interrupts/points.py OPERATION                its points that fail
python tests/interrupts/points.py all WHAT KIND            a table of all points of one kind
python tests/interrupts/points.py OPERATION WHAT KIND N    one of them again, with everything that it has to tell
"""

import contextlib
import faulthandler
import gc
import itertools
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kstore
from tests.helpers.children import JOBS, LIMIT, Ended, begin_another_process, run, run_all, say
from tests.interrupts.injector import KINDS, InjectedInterrupt, InjectedMemoryError, Injector, raiser
from tests.interrupts.operation import Operation, S
from tests.interrupts.operations import OPERATIONS
from tests.interrupts.store_operations import STORE_OPERATIONS
from tests.interrupts.world import Broken, require

with contextlib.suppress(ImportError):
    import numpy  # noqa: F401 - so that no operation imports it

BATCH = 40  # points that one child tries, one after the other
MOST = int(os.environ.get("KSTORE_INTERRUPTS_MOST", "20"))  # points of each operation in a table
ALL = os.environ.get("KSTORE_INTERRUPTS") == "all"
SEED = int(os.environ.get("KSTORE_INTERRUPTS_SEED", "1"))
EVERY: dict[str, Operation[Any]] = {**OPERATIONS, **STORE_OPERATIONS}
ERRORS: dict[str, type[BaseException]] = {
    "KeyboardInterrupt": InjectedInterrupt,
    "MemoryError": InjectedMemoryError,
}


class Failure(NamedTuple):
    """A point at which something went wrong."""

    nth: int
    where: str
    wrong: str


class Points(NamedTuple):
    """Those of an operation: `warm` of them, if the process has done the same before; and the numbers of those that only its
    first run has, one for each place. The warm ones have numbers from 1 on, and the others those behind."""

    warm: int
    cold: list[int]
    places: list[str]  # of the cold ones

    @property
    def total(self) -> int:
        return self.warm + len(self.cold)


_counted: dict[tuple[str, str], int] = {}
_points: dict[tuple[str, str], Points] = {}
_tried_cold: set[tuple[str, str, str]] = set()


def count_points(operation: Operation[Any], kind: str, directory: Path) -> int:
    """How many points a first run of the operation has; everything must be sound without an interruption, too."""
    if (operation.name, kind) not in _counted:
        _counted[operation.name, kind] = len(_places(operation, kind, directory, warm=False))
    return _counted[operation.name, kind]


def points_of(operation: Operation[Any], kind: str, directory: Path) -> Points:
    """The points of the operation; everything must be sound without an interruption, too."""
    if (operation.name, kind) not in _points:
        warm = _places(operation, kind, directory, warm=True)
        cold = {}
        for nth, place in enumerate(_places(operation, kind, directory, warm=False), 1):
            cold.setdefault(place, nth)
        for place in warm:
            cold.pop(place, None)
        _points[operation.name, kind] = Points(len(warm), list(cold.values()), list(cold))
    return _points[operation.name, kind]


def _places(operation: Operation[Any], kind: str, directory: Path, *, warm: bool) -> list[str]:
    """Where the points are."""
    own = directory / "counted"
    own.mkdir()

    def work() -> None:
        if warm:
            warm_up(operation, own)
        world = operation.world(own / "counted")
        gc.collect()
        gc.disable()
        with Injector(kind) as injector:
            operation.act(world)
        (own / "places").write_text("\n".join(injector.where))
        world.go_on()

    ended = run(work)
    places = (own / "places").read_text().splitlines() if not ended.wrong else []
    shutil.rmtree(own, ignore_errors=True)
    if ended.wrong:
        raise Broken(f"{operation.name} without an interruption: {ended.wrong}\n{ended.text}")
    return places


def warm_up(operation: Operation[Any], directory: Path) -> None:
    """Does it once, so that the next time is like any other."""
    world = operation.world(directory / "warm")
    operation.act(world)
    world.go_on()


def interrupt(
    operation: Operation[Any], error: type[BaseException], kind: str, nth: int, directory: Path
) -> bool:
    """Interrupts the operation at its nth point, and goes on with the log. Whether it had so many."""
    world = operation.world(directory)
    gc.collect()
    gc.disable()
    ignored = _Ignored()
    with ignored, Injector(kind, nth, raiser(error)) as injector:
        raised = outcome(operation, world)
    gc.enable()
    if injector.done and not ignored.found and error is InjectedInterrupt:
        require(raised, "the interrupt was swallowed: the operation returned")
    world.go_on()
    return injector.done


def one_by_one(operation: Operation[Any], numbers: list[int], directory: Path) -> Iterator[tuple[int, Path]]:
    """Each number with a directory of its own, in a process that has done the operation once."""
    begin_another_process()
    warm_up(operation, directory)
    gc.collect()
    gc.freeze()  # so that gc.collect() is cheap from here on
    for nth in numbers:
        faulthandler.dump_traceback_later(LIMIT, exit=True, file=2)
        own = directory / str(nth)
        yield nth, own
        shutil.rmtree(own, ignore_errors=True)


def interrupt_some(
    operation: Operation[Any], error: type[BaseException], kind: str, numbers: list[int], directory: Path
) -> None:
    """The same at warm points, one after the other."""
    for nth, own in one_by_one(operation, numbers, directory):
        if interrupt(operation, error, kind, nth, own):
            say(f"interrupted {nth}")


def interrupted_by(
    operation: Operation[Any], directory: Path, begin: Callable[[], object], end: Callable[[], object]
) -> None:
    """Calls `begin`, which may let something happen, runs the operation, calls `end`, and goes on with the log."""
    world = operation.world(directory)
    with _Ignored():
        begin()
        try:
            outcome(operation, world)
        finally:
            end()
    world.go_on()


def called_at(
    operation: Operation[S], action: Callable[[S], None], kind: str, nth: int, directory: Path
) -> None:
    """Calls something at the nth point of the operation, as a signal handler is called, and goes on with the log."""
    world = operation.world(directory)
    with Injector(kind, nth, lambda: action(world)):
        outcome(operation, world)
    require(not world.complaints, "; ".join(world.complaints))
    world.go_on()


def outcome(operation: Operation[S], world: S) -> bool:
    """Whether the operation raised what it may raise; other exceptions pass."""
    try:
        operation.act(world)
    except (InjectedInterrupt, InjectedMemoryError, kstore.KstoreError, OSError):
        return True
    return False


class _Ignored:
    """Whether the injected exception came out of a finalizer, which cannot raise it."""

    def __init__(self) -> None:
        self.found = False

    def __enter__(self) -> None:
        self._before = sys.unraisablehook
        sys.unraisablehook = self._take

    def _take(self, e: "sys.UnraisableHookArgs") -> None:
        if isinstance(e.exc_value, InjectedInterrupt | InjectedMemoryError):
            self.found = True
        else:
            self._before(e)

    def __exit__(self, *error: object) -> None:
        sys.unraisablehook = self._before


def sample(total: int, most: int, seed: int) -> list[int]:
    """So many of 1 .. total, one of every part of equal size; all where KSTORE_INTERRUPTS=all."""
    if ALL or total <= most:
        return list(range(1, total + 1))
    rng = random.Random(seed)
    return [
        rng.randrange(i * total // most, max((i + 1) * total // most, i * total // most + 1)) + 1
        for i in range(most)
    ]


def in_directories(
    directory: Path, tasks: list[tuple[int, Callable[[Path], None]]], limit: float = LIMIT
) -> Iterator[tuple[int, Ended]]:
    """Runs tasks in children, each with a directory of its own, which goes afterwards."""

    def task(key: int, work: Callable[[Path], None]) -> tuple[int, Callable[[], None]]:
        own = directory / str(key)
        own.mkdir()
        return key, lambda: work(own)

    for key, ended in run_all((task(*item) for item in tasks), limit):
        shutil.rmtree(directory / str(key), ignore_errors=True)
        yield key, ended


def failures(
    operation: Operation[Any], what: str, kind: str, directory: Path, most: int = 1 << 30, seed: int = SEED
) -> tuple[int, int, list[Failure]]:
    """How many points there are, how many were tried, and those that fail."""
    points = points_of(operation, kind, directory)
    chosen = sorted(set(sample(points.total, most, seed)))
    warm = [nth for nth in chosen if nth <= points.warm]
    size = max(min(BATCH, -(-len(warm) // JOBS)), 1)
    batches = [warm[at : at + size] for at in range(0, len(warm), size)]
    ones = []
    for nth in chosen[len(warm) :]:
        place = what, kind, points.places[nth - points.warm - 1]
        if place not in _tried_cold:  # as another operation has it, where a process has done nothing yet
            _tried_cold.add(place)
            ones.append([nth])
    tried, found, alone = 0, [], []
    for numbers, ended in _interrupted(operation, ERRORS[what], kind, points, [*batches, *ones], directory):
        tried += ended.text.count("interrupted ")
        if ended.wrong and len(numbers) > 1:
            alone += numbers  # to see which of them it is
            together = Failure(numbers[0], f"one of {numbers}, after those before", ended.wrong)
            tried -= ended.text.count("interrupted ")
        elif ended.wrong:
            found.append(Failure(numbers[0], _where(ended.text), ended.wrong))
    for numbers, ended in _interrupted(
        operation, ERRORS[what], kind, points, [[nth] for nth in alone], directory
    ):
        tried += ended.text.count("interrupted ")
        if ended.wrong:
            found.append(Failure(numbers[0], _where(ended.text), ended.wrong))
    if alone and not found:
        found.append(together)
    return points.total, tried, sorted(found)


def _interrupted(
    operation: Operation[Any],
    error: type[BaseException],
    kind: str,
    points: Points,
    batches: Iterable[list[int]],
    directory: Path,
) -> Iterator[tuple[list[int], Ended]]:
    """Tries some numbers in a child of their own each: warm points, or one that only a first run has."""

    def task(numbers: list[int]) -> Callable[[Path], None]:
        return lambda own: again(operation, error, kind, points, numbers, own)

    by_first = {numbers[0]: numbers for numbers in batches}
    tasks = [(first, task(numbers)) for first, numbers in by_first.items()]
    for first, ended in in_directories(directory, tasks, LIMIT * (BATCH + 1)):
        yield by_first[first], ended


def again(
    operation: Operation[Any],
    error: type[BaseException],
    kind: str,
    points: Points,
    numbers: list[int],
    directory: Path,
) -> None:
    """Tries points by their numbers, in this process."""
    if numbers[0] <= points.warm:
        interrupt_some(operation, error, kind, numbers, directory)
    elif interrupt(operation, error, kind, points.cold[numbers[0] - points.warm - 1], directory / "cold"):
        say(f"interrupted {numbers[0]}")


def _where(text: str) -> str:
    return next((line[3:] for line in text.splitlines() if line.startswith("at ")), "nowhere")


def explain(operation: str, what: str, kind: str, tried: int, found: list[Failure]) -> str:
    """The failures in words, and how to run them again."""
    lines = [f"{len(found)} of {tried} points tried fail:"]
    lines += [f"  {kind} {f.nth}, {f.where}: {f.wrong}" for f in found[:10]]
    lines += [f"again: python tests/interrupts/points.py {operation!r} {what} {kind} {found[0].nth}"]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    directory = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        if len(arguments) == 4:
            name, what, kind, nth = arguments
            points = points_of(EVERY[name], kind, directory)
            ended = run(lambda: again(EVERY[name], ERRORS[what], kind, points, [int(nth)], directory))
            print(ended.text, ended.wrong or "all is well", sep="\n")
            return
        one = bool(arguments) and arguments[0] != "all"
        whats, kinds = ([arguments[1]], [arguments[2]]) if len(arguments) > 2 else (list(ERRORS), list(KINDS))
        print("operation | what | kind | points | tried | fail | for example")
        for name in [arguments[0]] if one else EVERY:
            for what, kind in itertools.product(whats, kinds):
                try:
                    total, tried, found = failures(
                        EVERY[name], what, kind, directory, 1 << 30 if one else MOST
                    )
                except Broken as e:
                    print(f"{name} | {what} | {kind} | | | all | {str(e).splitlines()[0]}", flush=True)
                    continue
                for f in (found if one else found[len(found) // 2 :][:1]) or [None]:
                    example = f"{f.nth}: {f.where}: {f.wrong}" if f else ""
                    row = f"{name} | {what} | {kind} | {total} | {tried} | {len(found)} | {example}"
                    print(row, flush=True)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main(sys.argv[1:])
