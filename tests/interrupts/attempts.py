"""An operation is tried in a child process while something disturbs it, and the log is used and opened again
afterwards.

python -m tests.interrupts.attempts OPERATION WHAT KIND N     tries one point again
"""

import contextlib
import gc
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import kstore
from tests.helpers.children import LIMIT, Ended, run
from tests.helpers.injector import InjectedInterrupt, InjectedMemoryError, Injector, raiser
from tests.interrupts.operations import OPERATIONS
from tests.interrupts.state import Between, Refusal, State, require
from tests.interrupts.store_operations import STORE_OPERATIONS
from tests.interrupts.subject import Operation, append_extra, go_on, open_again, open_elsewhere

with contextlib.suppress(ImportError):
    import numpy  # noqa: F401 - so that no operation imports it
for name in kstore.__all__:
    getattr(kstore, name)  # nor a module of kstore
EVERY: dict[str, Operation] = {**OPERATIONS, **STORE_OPERATIONS}
TRIED: dict[str, Operation] = {**EVERY}  # and operations that single tests add
ERRORS: dict[str, type[BaseException]] = {
    "KeyboardInterrupt": InjectedInterrupt,
    "MemoryError": InjectedMemoryError,
}
Act = Callable[[], object]
# calls the act of an operation on a subject, and something else meanwhile
Disturb = Callable[[Any, Act], object]


class Whole(NamedTuple):
    """An undisturbed operation: what was shown before and after, what it returned, where its points are."""

    before: State
    after: State
    returned: object
    places: list[str]


@cache
def undisturbed(name: str, kind: str) -> Whole:
    """The operation without an interruption. AssertionError if something goes wrong then."""
    operation = TRIED[name]

    def work(directory: Path) -> None:
        subject = operation.ready(directory / "first")
        injector = Injector(kind)
        with injector:
            returned = operation.act(subject)
        after = _state(subject)
        go_on(operation, subject, Between(after, after, True, operation.compacts))
        subject = operation.ready(directory / "second")
        whole = Whole(_state(subject), after, returned, injector.where)
        (directory / "whole").write_bytes(pickle.dumps(whole))

    with in_memory() as directory:
        ended = run(lambda: work(directory))
        assert not ended.wrong, f"{name} without an interruption: {ended.wrong}\n{ended.text}"
        whole: Whole = pickle.loads((directory / "whole").read_bytes())
    return whole


def _state(subject: Any) -> State:
    """What the log shows, or what its readers see when it is not open."""
    if subject.handle is not None:
        with contextlib.suppress(kstore.LogClosedError):
            return subject.shown()
    return subject.shown_to_readers() or State()


def attempt(
    name: str,
    disturb: Disturb,
    *,
    kind: str = "check",
    limit: float = LIMIT,
    may_leave: bool = False,
    may_die: bool = False,
    clocked: bool = False,
) -> Ended:
    """Tries the operation by `disturb`, and goes on with the log; how that ended.

    `may_leave`: the process that had been disturbed is only asked what the log shows: it found no memory, and
    may keep locks and threads. `may_die`: it may be killed.
    """
    operation, whole = TRIED[name], undisturbed(name, kind)

    def work(directory: Path) -> None:
        subject = operation.ready(directory, clocked=clocked)
        allowed = Between(whole.before, whole.after, False, operation.compacts)

        def leave(expected: State | None) -> None:
            left = (allowed, expected, subject.extras, subject.extra_number, subject.options)
            directory.with_suffix(".left").write_bytes(pickle.dumps(left))

        if may_die:
            leave(None)
        gc.collect()
        try:
            returned = disturb(subject, lambda: operation.act(subject))
        except (InjectedInterrupt, MemoryError, *Refusal) as e:
            subject.kept.append(e)
        else:
            if not subject.reports_failure():
                allowed = Between(whole.after, whole.after, not operation.pending, operation.compacts)
            same = (
                returned == whole.returned
                or subject.extras
                or subject.was_closed
                or subject.reports_failure()
            )
            require(same, f"it returned {returned!r}, without an interruption {whole.returned!r}")
        require(not subject.complaints, "; ".join(subject.complaints))
        subject.options.pop("clock" if clocked else "", None)  # no other process can have it
        leave(_leave(subject, allowed) if may_leave else go_on(operation, subject, allowed))

    def elsewhere(directory: Path) -> None:
        left = pickle.loads(directory.with_suffix(".left").read_bytes())
        subject = operation.subject(directory)
        allowed, expected, subject.extras, subject.extra_number, subject.options = left
        if expected is None:
            expected = open_again(operation, subject, allowed)
        open_elsewhere(subject, expected)

    with in_memory() as directory:
        ended = run(lambda: work(directory / "tried"), limit)
        if not ended.wrong or (may_die and ended.wrong.endswith("SIGKILL")):
            then = run(lambda: elsewhere(directory / "tried"))
            ended = Ended(then.wrong and f"in another process: {then.wrong}", ended.text + then.text)
    return ended


def _leave(subject: Any, allowed: Between) -> None:
    """What the log shows must be right, if it can be read; it may take records or refuse them."""
    if subject.handle is None:
        return
    with contextlib.suppress(MemoryError, *Refusal):
        allowed.check(subject.shown(), subject.extras, whole=False)
        for name, log in subject.logs().items():
            append_extra(subject, name, log)


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """A directory in memory, where the system has such."""
    shm = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    try:
        yield made
    finally:
        shutil.rmtree(made)


# ---- points ------------------------------------------------------------------------------------------------


def within(make: Callable[[Any], AbstractContextManager[object]]) -> Disturb:
    """What a context manager does while an operation is done."""

    def disturb(subject: Any, act: Act) -> object:
        with make(subject):
            return act()

    return disturb


def interrupt(what: str, kind: str, nth: int, act: Act) -> object:
    """Raises at the nth point. Ctrl-C must come out, unless it came within a finalizer."""
    injector, ignored = Injector(kind, nth, raiser(ERRORS[what])), False

    def unraisable(e: "sys.UnraisableHookArgs") -> None:
        nonlocal ignored
        if isinstance(e.exc_value, InjectedInterrupt | InjectedMemoryError):
            ignored = True
        else:
            before(e)

    before, sys.unraisablehook = sys.unraisablehook, unraisable
    try:
        with injector:
            returned = act()
    finally:
        sys.unraisablehook = before
    swallowed = injector.done and not ignored and what == "KeyboardInterrupt"
    require(not swallowed, "the interrupt was swallowed: the operation returned")
    return returned


def at_point(name: str, what: str, kind: str, nth: int) -> Ended:
    """Interrupts the operation at its nth point."""
    disturb: Disturb = lambda _, act: interrupt(what, kind, nth, act)
    return attempt(name, disturb, kind=kind, may_leave=what == "MemoryError")


def explain(name: str, what: str, kind: str, nth: int, ended: Ended) -> str:
    """A failure in words, and how to try it again."""
    where = next((line for line in ended.text.splitlines() if line.startswith("at ")), "nowhere")
    again = f"python -m tests.interrupts.attempts {name!r} {what} {kind} {nth}"
    return f"{kind} {nth}, {where}: {ended.wrong}\nagain: {again}\n{ended.text[-2000:]}"


if __name__ == "__main__":
    asked = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    print(explain(*asked, at_point(*asked)))
