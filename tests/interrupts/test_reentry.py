"""Python code of others runs while a thread is inside a log: signal handlers, clocks, finalizers, what
arguments do.

Whatever it does with that log, it ends, with an answer or an error of kstore's, and nothing is lost. At
EFFORT=1 a few pairs of an operation and an action are tried, at EFFORT=N N times as many.
"""

import contextlib
import gc
import random
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

import kstore
from tests.helpers.children import Ended, run
from tests.helpers.effort import SEED, some, times
from tests.helpers.injector import Injector
from tests.interrupts.attempts import TRIED, attempt, undisturbed, within
from tests.interrupts.operations import OPERATIONS, eleven
from tests.interrupts.state import Refusal, fail_softly, require
from tests.interrupts.subject import Operation, Subject

LOGS = [name for name in OPERATIONS if not name.startswith("open")]

# ---- what is done with a log while the same thread is inside it --------------------------------------------


def append(subject: Subject) -> None:
    value = subject.extra()
    subject.extras[value] = "t-0", subject.handle.append(value, value[:5])


def use_appender(subject: Subject) -> None:
    value = subject.extra()
    with subject.handle.appender(linger_ms=1000) as out:
        ticket = out.append(value, value[:5])
        out.flush()
        offset = ticket.wait()
    subject.extras[value] = "t-0", offset


def close(subject: Subject) -> None:
    subject.was_closed = True
    subject.handle.close()


def read(subject: Subject) -> None:
    log = subject.handle
    offsets = [record.offset for record in log.records()]
    require(offsets == sorted(set(offsets)), f"a reader sees the offsets {offsets}")
    log.find(timestamp=0)


def open_another(subject: Subject) -> None:
    with contextlib.suppress(*Refusal):
        kstore.open(subject.root / "third-0", "a").close()
    kstore.open(subject.directory).close()


ACTIONS: dict[str, Callable[[Subject], None]] = {
    "append": append,
    "flush": lambda subject: subject.handle.flush(),
    "close": close,
    "read": read,
    "roll": lambda subject: subject.handle.roll(),
    "appender": use_appender,
    "open": open_another,
}


def act(what: str, subject: Subject) -> None:
    """Does it: kstore may refuse; anything else that goes wrong is noted, since the caller may swallow it."""
    if subject.handle is None:
        return
    try:
        ACTIONS[what](subject)
    except Refusal as e:
        if not str(e):
            subject.complaints.append(f"{type(e).__name__} without a message")
    except BaseException as e:  # noqa: BLE001
        subject.complaints.append(f"{type(e).__name__}: {e}")


def require_sound(ended: Ended, case: object) -> None:
    where = [line for line in ended.text.splitlines() if line.startswith("at ")][:1]
    assert not ended.wrong, f"SEED={SEED}, {case} {where}: {ended.wrong}\n{ended.text[-3000:]}"


# ---- signal handlers ---------------------------------------------------------------------------------------


def handler(what: str, nth: int, subject: Subject) -> Injector:
    """A handler of a signal that comes at the nth point."""
    return Injector("check", nth, partial(act, what, subject))


def handled(what: str, name: str, nth: int) -> None:
    ended = attempt(name, within(partial(handler, what, nth)))
    require_sound(ended, (what, "at point", nth, "of", name))


@pytest.mark.parametrize("what", ACTIONS)
def test_handlers_at_points(what: str) -> None:
    rng = random.Random(f"{SEED} {what}")
    for _ in range(times(2)):
        name = rng.choice(LOGS)
        total = len(undisturbed(name, "check").places)
        if total:  # else all is C
            handled(what, name, rng.randint(1, total))


@pytest.mark.nightly
@pytest.mark.parametrize(("what", "name"), [("close", "close, unsynced"), ("read", "get, find")])
def test_handlers_that_wait_for_what_they_interrupt(what: str, name: str) -> None:
    for nth in some(range(1, len(undisturbed(name, "check").places) + 1), 60, what):
        handled(what, name, nth)


@pytest.mark.parametrize("what", some(list(ACTIONS), 3, "real"))
def test_handlers_of_real_signals(ram: Path, what: str) -> None:
    """A timer's signals, some hundred a second, while the main thread uses the log."""

    def work() -> None:
        subject = Subject(ram)
        subject.options |= {"durability": "group", "retention_bytes": 20_000}
        log = subject.open()
        acked: dict[int, bytes] = {}
        calls = 0

        def handle(*_: object) -> None:
            nonlocal calls
            calls += 1
            if what != "close" or calls > 20:
                act(what, subject)
            signal.setitimer(signal.ITIMER_PROF, 0.002)  # s of this process, so that the main thread gets on

        signal.signal(signal.SIGPROF, handle)
        signal.setitimer(signal.ITIMER_PROF, 0.001)
        try:
            for _ in range(times(100)):
                values = subject.values(7)
                acked[log.append(values[0])] = values[0]
                acked |= zip(log.extend(values[1:]), values[1:], strict=True)
                log.roll()
                log.flush()
                log.retain()
                log.get(log.log_end_offset - 1)
        except kstore.LogClosedError:
            require(what == "close", "it was not closed")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, signal.SIG_IGN)
        require(calls > 0, "no signal came")
        require(not subject.complaints, "; ".join(subject.complaints[:3]))
        acked |= {offset: value for value, (_, offset) in subject.extras.items() if offset is not None}
        log.close()
        with kstore.open(subject.directory) as log:
            require(log.recovery.clean, "closed, and not clean")
            there = {record.offset: bytes(record.value) for record in log.records()}
            start = log.log_start_offset
        missing = [offset for offset in acked if offset >= start and there.get(offset) != acked[offset]]
        require(not missing, f"acknowledged, and gone: {missing[:9]} of {start} to {max(there, default=0)}")
        require(len(set(there.values())) == len(there), "a value is there twice")

    require_sound(run(work), what)


# ---- arguments and clocks ----------------------------------------------------------------------------------


class Index(int):
    """A number that does something when it is asked for."""

    do: Callable[[], object]

    def __new__(cls, number: int, do: Callable[[], object]) -> Self:
        made = super().__new__(cls, number)
        made.do = do
        return made

    def __index__(self) -> int:
        self.do()
        return int.__add__(self, 0)

    __int__ = __index__


class Headers(Mapping[str, bytes]):
    def __init__(self, do: Callable[[], object]) -> None:
        self.do = do

    def __getitem__(self, name: str) -> bytes:
        self.do()
        return b"value"

    def __iter__(self) -> Iterator[str]:
        self.do()
        yield "name"

    def __len__(self) -> int:
        self.do()
        return 1


class Values(Sequence[bytes]):
    def __init__(self, values: list[bytes], do: Callable[[], object]) -> None:
        self.values = values
        self.do = do

    def __getitem__(self, i: Any) -> Any:
        self.do()
        return self.values[i]

    def __len__(self) -> int:
        self.do()
        return len(self.values)


class FilePath:
    def __init__(self, path: Path, do: Callable[[], object]) -> None:
        self.path = path
        self.do = do

    def __fspath__(self) -> str:
        self.do()
        return str(self.path)


def with_appender(subject: Subject) -> int:
    out = subject.handle.appender(linger_ms=1000)
    subject.held.append(out)
    now = Index(int(time.time() * 1000), subject.clock)
    ticket = out.append(*subject.values(1), headers=Headers(subject.clock), timestamp=now)
    out.flush()
    return ticket.wait()


def with_path(subject: Subject) -> None:
    with contextlib.suppress(OSError):
        subject.handle.adopt(FilePath(subject.root / "none.log", subject.clock))


ARGUMENTS: dict[str, Callable[[Any], object]] = {
    "timestamp": lambda s: s.handle.append(*s.values(1), timestamp=Index(int(time.time() * 1000), s.clock)),
    "headers": lambda s: s.handle.append(*s.values(1), headers=Headers(s.clock)),
    "many headers": lambda s: s.handle.extend(s.values(3), headers=[Headers(s.clock)] * 3),
    "values": lambda s: s.handle.extend(Values(s.values(6), s.clock), batch_bytes=300),
    "of an appender": with_appender,
    "offset": lambda s: s.handle.truncate_to(Index(4, s.clock)),
    "start": lambda s: s.handle.delete_records(Index(5, s.clock)),
    "epoch": lambda s: s.handle.assign_leader_epoch(Index(3, s.clock)),
    "path": with_path,
}
for name, call in ARGUMENTS.items():
    pending = name == "of an appender"
    TRIED[f"argument: {name}"] = Operation(f"argument: {name}", Subject, eleven, call, pending=pending)


def hooked(what: str, subject: Subject, do: Callable[[], object]) -> object:
    """The clock of a log, or an argument, does something with that log."""
    subject.hook = partial(act, what, subject)
    return do()


@pytest.mark.parametrize(
    ("name", "what"), some([(name, what) for name in ARGUMENTS for what in ACTIONS], 9, "arguments")
)
def test_arguments_that_call_the_log(name: str, what: str) -> None:
    require_sound(attempt(f"argument: {name}", partial(hooked, what)), (name, what))


@pytest.mark.parametrize(
    ("name", "what"),
    some([(name, what) for name in LOGS for what in ACTIONS if name != "garbage"], 9, "clocks"),
)
def test_clocks_that_call_the_log(name: str, what: str) -> None:
    require_sound(attempt(name, partial(hooked, what), clocked=True), (name, what))


# ---- garbage -----------------------------------------------------------------------------------------------

REFERENCES: list[object] = []


class Trash:
    """Garbage that only the collector finds, with a last call in __del__ or of a weak reference."""

    def __init__(self, last_call: Callable[[], None], *, dels: bool) -> None:
        self.itself = self
        self.last_call = last_call
        if not dels:
            REFERENCES.append(weakref.ref(self, lambda _: last_call()))
            self.last_call = lambda: None

    def __del__(self) -> None:
        self.last_call()


@contextlib.contextmanager
def collected(what: str, nth: int, subject: Subject) -> Iterator[None]:
    """The collector runs at about the nth allocation, and finds what calls the log."""
    done = threading.Event()

    def last_call() -> None:
        # A thread of the log may collect. Another thread leaves the garbage to be found again.
        if threading.current_thread() is threading.main_thread():
            act(what, subject)
            done.set()
        else:
            Trash(last_call, dels=nth % 2 == 0)

    gc.disable()
    Trash(last_call, dels=nth % 2 == 0)
    gc.set_threshold(gc.get_count()[0] + nth)
    gc.enable()
    try:
        yield
    finally:
        gc.set_threshold(700)
        until = time.monotonic() + 60
        while not done.is_set() and time.monotonic() < until:
            gc.collect()
        require(done.is_set(), "the garbage was never collected")


@contextlib.contextmanager
def lost_writer(where: str, nth: int, subject: Subject) -> Iterator[None]:
    """The collector finds another log that was open for writing."""
    third = subject.root / where / "t-0"
    third.parent.mkdir()
    gc.disable()
    lost: list[Any] = [kstore.open(third, "a")]
    lost[0].append(b"x")
    lost.append(lost)
    del lost
    gc.set_threshold(gc.get_count()[0] + nth)
    gc.enable()
    try:
        yield
    finally:
        gc.set_threshold(700)
        gc.collect()
        until = time.monotonic() + 60
        while True:  # another thread may collect just now
            try:
                log = kstore.open(third, "a")
                break
            except kstore.LogLockedError as e:
                fail_softly(e)
                require(time.monotonic() < until, "the lock of a collected log stays")
        require([record.value for record in log] == [b"x"], "the record of the other log is gone")
        log.close()


@pytest.mark.parametrize("what", ["append", "close", "read", "a writer of its own", "a writer beside"])
def test_finalizers(what: str) -> None:
    rng = random.Random(f"{SEED} {what}")
    for _ in range(times(2)):
        name, nth = rng.choice(LOGS), rng.randrange(1, 150)
        where = "third-0" if what == "a writer beside" else "own"
        disturb = partial(collected, what, nth) if what in ACTIONS else partial(lost_writer, where, nth)
        require_sound(attempt(name, within(disturb)), (what, nth, name))
