"""Python code of others runs while a thread is inside a log: signal handlers, clocks, finalizers, what arguments do.

Whatever it does with that log, it ends, with an answer or an error of kstore's, and nothing is lost.
"""

import gc
import itertools
import random
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

import kstore
from tests.helpers.children import run, say
from tests.interrupts.actions import ACTIONS
from tests.interrupts.injector import Injector
from tests.interrupts.operation import Operation
from tests.interrupts.operations import OPERATIONS, eleven
from tests.interrupts.points import ALL, SEED, called_at, count_points, in_directories, outcome
from tests.interrupts.world import World, require

KIND = "check"  # CPython runs handlers there
POINTS = 40 if ALL else 1  # of each operation and action
SHARE = 1 if ALL else 4  # only every fourth of the combinations, otherwise
ALLOCATIONS = 50 if ALL else 5
READING = (  # they count the records
    "get, find",
    "records, batches",
    "scan",
    "follow",
    "read, send",
    "follower, of a reader",
    "cursor, followed",
    "cursor, iterated and committed",
    "cursor, iterated by a reader",
    "cursor.batch",
    "cursor.batch, of a reader",
)
WRITING = [name for name in OPERATIONS if not name.startswith("open")]


@pytest.mark.parametrize("name", OPERATIONS)
def test_handlers_at_points(ram: Path, name: str) -> None:
    """A handler of a signal that comes at a point of the operation."""
    operation = OPERATIONS[name]
    total = count_points(operation, KIND, ram)
    tasks: list[tuple[int, Callable[[Path], None]]] = []
    names: list[str] = []
    for number, (what, action) in enumerate(ACTIONS.items()):
        if (number + list(OPERATIONS).index(name)) % SHARE:
            continue
        if name in READING and what in ("append", "appender"):
            continue
        for nth in _chosen(total, POINTS, SEED + number):
            tasks.append(
                (len(tasks), lambda own, nth=nth, action=action: called_at(operation, action, KIND, nth, own))
            )
            names.append(f"{what} at {KIND} {nth}")
    found = [
        f"{names[key]}: {_first(ended.text)}: {ended.wrong}"
        for key, ended in in_directories(ram, tasks)
        if ended.wrong
    ]
    assert not found, f"{len(found)} of {len(tasks)}, seed {SEED}\n" + "\n".join(found[:10])


def _chosen(total: int, most: int, seed: int) -> list[int]:
    """Of each part of equal size one."""
    rng = random.Random(seed)
    edges = [i * total // most for i in range(most + 1)]
    return sorted({rng.randint(a + 1, max(a + 1, b)) for a, b in itertools.pairwise(edges)})


def _first(text: str) -> str:
    return next((line for line in text.splitlines() if line.startswith("at ")), "nowhere")


def _points_in(operation: Operation[World], files: Sequence[str], directory: Path) -> list[int]:
    """The points of the operation that lie in some files, or in what is called from there."""

    def work() -> None:
        world = operation.world(directory / "looked at")
        with Injector(KIND) as injector:
            operation.act(world)
        say(
            "points "
            + " ".join(str(i + 1) for i, where in enumerate(injector.where) if any(f in where for f in files))
        )

    ended = run(work)
    assert not ended.wrong, ended.text
    return [int(word) for word in ended.text.partition("points ")[2].split()]


def _find_first(world: World) -> None:
    require(world.log.find(timestamp=0).offset == 0, "another record is the first")


@pytest.mark.parametrize(
    ("name", "action", "files"),
    [
        ("close, unsynced", ACTIONS["close"], ["log/write/flusher.py", "log/background.py"]),
        ("get, find", _find_first, ["log/read/max_timestamp_index.py"]),
    ],
)
def test_handlers_wherever_a_thread_may_wait(
    ram: Path, name: str, action: Callable[[World], None], files: list[str]
) -> None:
    """The handler waits for what the thread that it interrupts waits for, or has taken."""
    points = _points_in(OPERATIONS[name], files, ram)
    assert points
    tasks: list[tuple[int, Callable[[Path], None]]] = [
        (nth, lambda own, nth=nth: called_at(OPERATIONS[name], action, KIND, nth, own)) for nth in points
    ]
    found = [
        f"{nth}: {_first(ended.text)}: {ended.wrong}"
        for nth, ended in in_directories(ram, tasks, 10)
        if ended.wrong
    ]
    assert not found, f"{len(found)} of {len(tasks)}\n" + "\n".join(found[:10])


@pytest.mark.parametrize("what", ACTIONS)
def test_handlers_of_real_signals(ram: Path, what: str) -> None:
    """A timer's signals, hundreds a second, while the main thread appends, rolls, flushes, retains and reads."""

    def work() -> None:
        world = World(ram)
        world.options |= {"durability": "group", "retention_bytes": 20_000}
        world.open()
        calls = depth = 0

        def handle(*_: object) -> None:
            nonlocal calls, depth
            calls += 1
            # On a slow machine the next signal comes before this one is done, and so on: nothing else would ever go on.
            if depth > 3 or time.monotonic() > until or (what == "close" and calls <= 20):
                return
            depth += 1
            try:
                if what == "read":
                    list(world.log.records())
                else:
                    ACTIONS[what](world)
            finally:
                depth -= 1

        until = time.monotonic() + (5 if ALL else 0.5)
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0017)
        try:
            while time.monotonic() < until:
                world.append()
                values = world.values(6)
                world.ack(world.log.extend(values)[0], values)
                world.log.roll()
                world.log.flush()
                world.log.retain()
                world.log.get(world.log.log_end_offset - 1)
        except kstore.LogClosedError:
            require(what == "close", "nobody closed it")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        require(calls > 0, "no signal came")
        say(f"{calls} signals")
        require(not world.complaints, "; ".join(world.complaints[:3]))
        acked = world.acked
        if not world.log.is_closed:
            world.log.close()
        with kstore.open(world.directory) as log:
            require(log.recovery.clean, "closed, and not clean")
            there = {r.offset: bytes(r.value) for r in log.records()}
            start = log.log_start_offset
        missing = [o for o in acked if o >= start and there.get(o) != acked[o]]
        require(not missing, f"acknowledged, and gone: {missing[:9]} of {start} to {max(there, default=0)}")
        require(len(set(there.values())) == len(there), "a value is there twice")

    ended = run(work)
    assert not ended.wrong, ended.wrong + "\n" + ended.text[-3000:]


# ---- what arguments do ----------------------------------------------------------------------------------------------


class Index(int):
    """A number that does something when it is asked for."""

    def __new__(cls, number: int, do: Callable[[], None]) -> Self:
        made = super().__new__(cls, number)
        made.do = do
        return made

    do: Callable[[], None]

    def __index__(self) -> int:
        self.do()
        return int.__add__(self, 0)

    __int__ = __index__


class Headers(Mapping[str, bytes]):
    def __init__(self, do: Callable[[], None]) -> None:
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
    def __init__(self, values: list[bytes], do: Callable[[], None]) -> None:
        self.values = values
        self.do = do

    def __getitem__(self, i: Any) -> Any:
        self.do()
        return self.values[i]

    def __len__(self) -> int:
        self.do()
        return len(self.values)


class FilePath:
    def __init__(self, path: Path, do: Callable[[], None]) -> None:
        self.path = path
        self.do = do

    def __fspath__(self) -> str:
        self.do()
        return str(self.path)


def with_timestamp(world: World, do: Callable[[], None]) -> None:
    values = world.values(1)
    world.tried.append(values)
    world.ack(world.log.append(values[0], timestamp=Index(int(time.time() * 1000), do)), values)


def with_headers(world: World, do: Callable[[], None]) -> None:
    values = world.values(1)
    world.tried.append(values)
    world.ack(world.log.append(values[0], headers=Headers(do)), values)


def with_many_headers(world: World, do: Callable[[], None]) -> None:
    values = world.values(3)
    world.tried += [[value] for value in values]
    world.ack(world.log.extend(values, headers=[Headers(do)] * 3)[0], values)


def with_values(world: World, do: Callable[[], None]) -> None:
    values = world.values(6)
    world.tried += [[value] for value in values]
    world.ack(world.log.extend(Values(values, do), batch_bytes=300)[0], values)


def with_appender(world: World, do: Callable[[], None]) -> None:
    values = world.values(1)
    world.tried.append(values)
    world.pending = True
    out = world.log.appender(linger_ms=1000)
    world.held.append(out)
    ticket = out.append(values[0], headers=Headers(do), timestamp=Index(int(time.time() * 1000), do))
    out.flush()
    world.ack(ticket.wait(), values)


def with_offset(world: World, do: Callable[[], None]) -> None:
    world.cut_from = 4
    world.starts |= {4}
    world.log.truncate_to(Index(4, do))
    world.truncated(4)


def with_start(world: World, do: Callable[[], None]) -> None:
    world.starts |= {5}
    world.log.delete_records(Index(5, do))
    world.deleted()


def with_epoch(world: World, do: Callable[[], None]) -> None:
    world.log.assign_leader_epoch(Index(3, do))


def with_path(world: World, do: Callable[[], None]) -> None:
    world.log.adopt(FilePath(world.directory / "none", do))


ARGUMENTS = [
    with_timestamp,
    with_headers,
    with_many_headers,
    with_values,
    with_appender,
    with_offset,
    with_start,
    with_epoch,
    with_path,
]


@pytest.mark.parametrize("what", ACTIONS)
def test_arguments_that_call_the_log(ram: Path, what: str) -> None:
    def work(own: Path, call: Callable[[World, Callable[[], None]], None]) -> None:
        world = World(own)
        eleven(world)
        try:
            call(world, lambda: ACTIONS[what](world))
        except (kstore.KstoreError, OSError, TypeError, ValueError) as e:
            say(f"{type(e).__name__}: {e}")
        require(not world.complaints, "; ".join(world.complaints[:3]))
        world.go_on()

    tasks = [(i, lambda own, call=call: work(own, call)) for i, call in enumerate(ARGUMENTS)]
    found = [
        f"{ARGUMENTS[key].__name__}: {ended.wrong}\n{ended.text[-1500:]}"
        for key, ended in in_directories(ram, tasks)
        if ended.wrong
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("what", ACTIONS)
def test_clocks_that_call_the_log(ram: Path, what: str) -> None:
    """A clock is called within operations."""
    names = [name for name in WRITING if name != "garbage" and name not in READING]
    names = names[list(ACTIONS).index(what) % SHARE :: SHARE]

    def work(own: Path, name: str) -> None:
        operation = OPERATIONS[name]
        armed = inside = False
        calls = 0

        def clock() -> int:
            nonlocal inside, calls
            if armed and not inside:
                inside = True
                calls += 1
                ACTIONS[what](worlds[0])
                inside = False
            return int(time.time() * 1000)

        worlds: list[World] = []
        made = World.__init__

        def make(world: World, directory: Path) -> None:
            made(world, directory)
            world.options["clock"] = clock
            worlds.append(world)

        World.__init__ = make  # type: ignore[method-assign]
        world = operation.world(own)
        armed = True
        outcome(operation, world)
        armed = False
        say(f"{calls} calls of the clock")
        require(not world.complaints, "; ".join(world.complaints[:3]))
        del world.options["clock"]  # which no other process can have
        world.go_on()

    tasks = [(i, lambda own, name=name: work(own, name)) for i, name in enumerate(names)]
    found = [f"{names[key]}: {ended.wrong}" for key, ended in in_directories(ram, tasks) if ended.wrong]
    assert not found, "\n".join(found)


# ---- garbage --------------------------------------------------------------------------------------------------------


class Trash:
    """Garbage that only the collector finds, with a last word: in __del__, or in the callback of a weak reference."""

    def __init__(self, last_word: Callable[[], None], *, dels: bool) -> None:
        self.itself = self
        self.last_word = last_word
        if not dels:
            REFERENCES.append(weakref.ref(self, lambda _: last_word()))
            self.last_word = lambda: None

    def __del__(self) -> None:
        self.last_word()


REFERENCES: list[object] = []


def last_word_of(action: Callable[[World], None], world: World, *, dels: bool) -> threading.Event:
    """Leaves garbage that does the action; the event is set once it is done.

    A thread of the log may be the one that collects. The world's books know one thread: another one only flushes, and
    leaves the garbage to be found again.
    """
    said = threading.Event()

    def last_word() -> None:
        if threading.current_thread() is threading.main_thread():
            action(world)
            said.set()
        else:
            ACTIONS["flush"](world)
            Trash(last_word, dels=dels)

    Trash(last_word, dels=dels)
    return said


def opened_at_last(path: Path) -> kstore.LogWriter:
    """A log that was open for writing, and is collected just now, perhaps by another thread."""
    until = time.monotonic() + 60
    while True:
        try:
            return kstore.open(path, "a")
        except kstore.LogLockedError:
            if time.monotonic() > until:
                raise
        time.sleep(0.01)


@pytest.mark.parametrize("what", ["append", "close", "read", "a writer of its own", "a writer beside"])
def test_finalizers(ram: Path, what: str) -> None:
    """The collector is let loose at the nth allocation within an operation, and finds what calls the log."""
    names = [n for n in WRITING if n not in READING] if what in ACTIONS else list(OPERATIONS)

    def work(own: Path, name: str, nth: int) -> None:
        operation = OPERATIONS[name]
        world = operation.world(own)
        gc.collect()
        gc.disable()
        lost: Any = None
        third = own / ("third-0" if what == "a writer beside" else "own") / "t-0"
        said = threading.Event()
        if what in ACTIONS:
            said = last_word_of(ACTIONS[what], world, dels=nth % 2 == 0)
        else:
            third.parent.mkdir()
            lost = [kstore.open(third, "a")]
            lost.append(lost)
            lost[0].append(b"x")
        del lost
        gc.set_threshold(gc.get_count()[0] + nth)
        gc.enable()
        outcome(operation, world)
        gc.set_threshold(700)
        gc.collect()
        while what in ACTIONS and not said.is_set():  # another thread collects, or did
            time.sleep(0.001)
            gc.collect()
        require(not world.complaints, "; ".join(world.complaints[:3]))
        if what not in ACTIONS:
            with opened_at_last(third) as log:
                require([r.value for r in log.records()] == [b"x"], "the record of the other log is gone")
            del log  # its descriptors go with the last reference
        world.go_on()

    rng = random.Random(SEED)
    chosen = [
        (name, nth) for name in names for nth in sorted({rng.randrange(1, 150) for _ in range(ALLOCATIONS)})
    ]
    if not ALL:
        chosen = rng.sample(chosen, 30)
    tasks = [
        (i, lambda own, name=name, nth=nth: work(own, name, nth)) for i, (name, nth) in enumerate(chosen)
    ]
    found = [f"{chosen[key]}: {ended.wrong}" for key, ended in in_directories(ram, tasks) if ended.wrong]
    assert not found, f"{len(found)} of {len(tasks)}, seed {SEED}\n" + "\n".join(found[:20])
