"""One operation, interrupted at one point; and all points of it.

python tests/interrupts/points.py                          a table of all operations (KSTORE_INTERRUPTS=all: all points)
python tests/interrupts/points.py OPERATION                its points that fail
python tests/interrupts/points.py all WHAT KIND            a table of all points of one kind
python tests/interrupts/points.py OPERATION WHAT KIND N    one of them again, with everything that it has to tell
"""

import contextlib
import gc
import itertools
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import kstore
from tests.helpers.children import LIMIT, Ended, run, run_all, say
from tests.interrupts.injector import KINDS, InjectedInterrupt, InjectedMemoryError, Injector, raiser
from tests.interrupts.operations import OPERATIONS, Operation
from tests.interrupts.world import Broken, World, require

with contextlib.suppress(ImportError):
    import numpy  # noqa: F401 - so that no operation imports it

MOST = int(os.environ.get("KSTORE_INTERRUPTS_MOST", "20"))  # points of each operation in a table
ALL = os.environ.get("KSTORE_INTERRUPTS") == "all"
SEED = int(os.environ.get("KSTORE_INTERRUPTS_SEED", "1"))
ERRORS: dict[str, type[BaseException]] = {
    "KeyboardInterrupt": InjectedInterrupt,
    "MemoryError": InjectedMemoryError,
}


class Failure(NamedTuple):
    """A point at which something went wrong."""

    nth: int
    where: str
    wrong: str


_counted: dict[tuple[str, str], int] = {}


def count_points(operation: Operation, kind: str, directory: Path) -> int:
    """How many points the operation has; everything must be sound without an interruption, too."""
    if (operation.name, kind) not in _counted:
        _counted[operation.name, kind] = _count_points(operation, kind, directory)
    return _counted[operation.name, kind]


def _count_points(operation: Operation, kind: str, directory: Path) -> int:

    def work() -> None:
        world = operation.world(directory / "counted")
        gc.collect()
        gc.disable()
        with Injector(kind) as injector:
            operation.act(world)
        say(f"points {injector.count}")
        world.go_on()

    ended = run(work)
    shutil.rmtree(directory / "counted", ignore_errors=True)
    if ended.wrong:
        raise Broken(f"{operation.name} without an interruption: {ended.wrong}\n{ended.text}")
    return int(ended.text.partition("points ")[2].split()[0])


def interrupt(operation: Operation, error: type[BaseException], kind: str, nth: int, directory: Path) -> None:
    """Interrupts the operation at its nth point, and goes on with the log."""
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


def interrupted_by(
    operation: Operation, directory: Path, begin: Callable[[], object], end: Callable[[], object]
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
    operation: Operation, action: Callable[[World], None], kind: str, nth: int, directory: Path
) -> None:
    """Calls something at the nth point of the operation, as a signal handler is called, and goes on with the log."""
    world = operation.world(directory)
    with Injector(kind, nth, lambda: action(world)):
        outcome(operation, world)
    require(not world.complaints, "; ".join(world.complaints))
    world.go_on()


def outcome(operation: Operation, world: World) -> bool:
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
    operation: Operation, what: str, kind: str, directory: Path, most: int = 1 << 30, seed: int = SEED
) -> tuple[int, int, list[Failure]]:
    """How many points there are, how many were tried, and those that fail."""
    total = count_points(operation, kind, directory)
    chosen = sorted(set(sample(total, most, seed)))

    def task(nth: int) -> tuple[int, Callable[[Path], None]]:
        return nth, lambda own: interrupt(operation, ERRORS[what], kind, nth, own)

    found = [
        Failure(nth, _where(ended.text), ended.wrong)
        for nth, ended in in_directories(directory, [task(nth) for nth in chosen])
        if ended.wrong
    ]
    return total, len(chosen), sorted(found)


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
            ended = run(
                lambda: interrupt(OPERATIONS[name], ERRORS[what], kind, int(nth), directory / "again")
            )
            print(ended.text, ended.wrong or "all is well", sep="\n")
            return
        one = bool(arguments) and arguments[0] != "all"
        whats, kinds = ([arguments[1]], [arguments[2]]) if len(arguments) > 2 else (list(ERRORS), list(KINDS))
        print("operation | what | kind | points | tried | fail | for example")
        for name in [arguments[0]] if one else OPERATIONS:
            for what, kind in itertools.product(whats, kinds):
                try:
                    total, tried, found = failures(
                        OPERATIONS[name], what, kind, directory, 1 << 30 if one else MOST
                    )
                except Broken as e:
                    print(f"{name} | {what} | {kind} | | | all | {str(e).splitlines()[0]}", flush=True)
                    continue
                for f in found if one else found[len(found) // 2 :][:1] or [None]:
                    example = f"{f.nth}: {f.where}: {f.wrong}" if f else ""
                    row = f"{name} | {what} | {kind} | {total} | {tried} | {len(found)} | {example}"
                    print(row, flush=True)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main(sys.argv[1:])
