"""A log or a store that an operation is tried on, and what is done with it afterwards."""

import contextlib
import gc
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kstore
from tests.interrupts.state import Between, Broken, Extras, Refusal, Shown, State, fail_softly, require

OPTIONS = {
    "durability": "each",
    "internal_segment_bytes": 1000,
    "segment_index_bytes": 128,
    "index_interval_bytes": 100,
    "file_delete_delay_ms": 0,
}


class Subject:
    """A log below `directory`. `handle`: it, open for writing, or None. `held`: cursors, appenders and what
    else is open.

    `extras`: values that were appended besides those of the operation. `hook`: called by arguments and
    clocks.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.root = directory
        self.directory = directory / "t-0"
        self.options: dict[str, Any] = dict(OPTIONS)
        self.handle: Any = None
        self.neighbour: Any = None  # another log of the same log directory
        self.held: list[Any] = []
        self.number = 0
        self.extras: Extras = {}
        self.extra_number = 90_000
        self.kept: list[BaseException] = []  # as a prompt keeps one, whose traceback has what was made so far
        self.checks: list[Callable[[], None]] = []  # of what is held, before it is closed
        self.complaints: list[str] = []  # of what ran within the operation
        self.was_closed = False  # by what ran within the operation
        self.hook: Callable[[], None] | None = None
        self.descriptors = count_descriptors()

    def values(self, count: int) -> list[bytes]:
        """Values that were never used before, of 205 bytes: four records fill a segment."""
        self.number += count
        return [b"%05d" % i + b"." * 200 for i in range(self.number - count, self.number)]

    def extra(self, name: str = "t-0") -> bytes:
        """A value that is about to be appended to a log besides those of the operation."""
        self.extra_number += 1
        value = b"%05d" % self.extra_number + b"." * 200
        self.extras[value] = name, None
        return value

    def append(self, count: int = 1) -> None:
        """Appends single records."""
        for value in self.values(count):
            self.handle.append(value)

    def clock(self) -> int:
        """The time in ms; the hook is called once."""
        hook, self.hook = self.hook, None
        if hook is not None:
            hook()
        return time.time_ns() // 1_000_000

    def open(self) -> Any:
        self.handle = kstore.open(self.directory, "a", **self.options)
        return self.handle

    def logs(self) -> dict[str, Any]:
        """The logs that are open for writing."""
        return {"t-0": self.handle}

    def shown(self) -> State:
        """What the open log shows."""
        return State({name: Shown.of(log) for name, log in self.logs().items()})

    def shown_to_readers(self) -> State | None:
        """What it shows when it is opened for reading now; None if there is none."""
        try:
            with kstore.open(self.directory) as log:
                return State({"t-0": Shown.of(log)})
        except kstore.LogNotFoundError:
            return None

    def reports_failure(self) -> bool:
        """Whether an operation that returned has failed in part."""
        return False

    def require_clean(self) -> None:
        """Broken unless the log that was opened just now had been closed cleanly, without findings."""
        require(self.handle.recovery.clean, "closed, and not clean")
        # Offsets that an operation left out on purpose are a finding, too.
        found = [finding for finding in self.handle.recovery.findings if finding.kind != "gap"]
        require(not found, f"findings: {found}")


class StoreSubject(Subject):
    """A store of two log directories."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.directories = (directory / "one", directory / "two")
        self.background = False
        self.options["retention_ms"] = -1

    def open(self) -> Any:
        self.handle = kstore.LogStore(*self.directories, mode="a", background=self.background, **self.options)
        return self.handle

    def logs(self) -> dict[str, Any]:
        return {
            f"{topic}-{number}": self.handle.log(topic, number)
            for topic, numbers in self.handle.topics.items()
            for number in numbers
        }

    def shown(self) -> State:
        return replace(super().shown(), topics=self._topics(self.handle))

    def shown_to_readers(self) -> State | None:
        directories = [path for path in self.directories if path.is_dir()]
        if not directories:
            return None
        store = kstore.LogStore(*directories)
        logs = {}
        for topic, numbers in store.topics.items():
            for number in numbers:
                with store.open(topic, number) as log:
                    logs[f"{topic}-{number}"] = Shown.of(log)
        return State(logs, self._topics(store))

    def reports_failure(self) -> bool:
        return self.handle is not None and not self.handle.is_closed and not self.handle.health().ok

    def _topics(self, store: Any) -> dict[str, tuple[int, object]]:
        for topic, numbers in store.topics.items():
            whole = numbers == list(range(len(numbers)))
            require(whole or self.reports_failure(), f"the partitions of {topic} are {numbers}")
        return {
            topic: (len(numbers), store.describe(topic).options.get("retention_bytes"))
            for topic, numbers in store.topics.items()
        }

    def require_clean(self) -> None:
        require(self.handle.health().ok, f"not healthy: {self.handle.health()}")
        require(not self.handle.others, f"{self.handle.others} are left")
        for name, log in self.logs().items():
            require(log.recovery.clean and not log.recovery.findings, f"{name}: {log.recovery}")
        self.handle.create_topic("another", 1)


@dataclass
class Operation:
    """`prepare` prepares a `subject`; `act` does the one thing that is interrupted, and returns what can be
    compared.

    `closes`: it closes the log. `compacts`: it removes records one by one. `pending`: what it appends may be
    appended later. `retries`: it may be done again without doubling anything. `late`: the lock may be given
    up a little later. `check`: another thing that must hold when the log was opened again.
    """

    name: str
    subject: type[Subject]
    prepare: Callable[[Any], None]
    act: Callable[[Any], object]
    closes: bool = False
    compacts: bool = False
    pending: bool = False
    retries: bool = False
    late: bool = False
    check: Callable[[Any], None] = lambda subject: None

    def ready(self, directory: Path, *, clocked: bool = False) -> Any:
        """A log or store that is about to meet the operation. `clocked`: its clock calls the hook."""
        subject = self.subject(directory)
        if clocked:
            subject.options["clock"] = subject.clock
        self.prepare(subject)
        return subject


def go_on(operation: Operation, subject: Any, allowed: Between) -> State:
    """Uses, closes and opens the log again after it was interrupted; what it shows at the end."""
    _free_locks_of_python()
    if subject.handle is not None:
        allowed = _use(operation, subject, allowed)
        _close(subject)
    _drop_held(subject)
    gc.collect()
    shown = open_again(operation, subject, allowed)
    subject.kept.clear()
    gc.collect()
    _require_soon(lambda: not other_threads(), lambda: f"the threads {other_threads()} go on after close()")
    gc.collect()  # what the threads have left
    _require_soon(
        lambda: count_descriptors() <= subject.descriptors,
        lambda: f"{count_descriptors() - subject.descriptors} descriptors are left open",
    )
    return shown


def _use(operation: Operation, subject: Any, allowed: Between) -> Between:
    """Reads, and appends a record to each log: it must be there, or be refused with a reason. Then what is
    held.

    Returns what the log may show when it is opened again.
    """
    try:
        shown = subject.shown()
        if subject.reports_failure():  # partitions of a log directory that is out of use are missing
            shown.topics = allowed.before.topics
        allowed.check(shown, subject.extras, whole=False)
    except kstore.LogClosedError:
        require(operation.closes or subject.was_closed, "the log reports that it is closed")
        return allowed
    except Refusal as e:  # a store's log that is out of use
        fail_softly(e)
        require(isinstance(subject, StoreSubject), f"it cannot be read: {e}")
        return allowed
    taken = [append_extra(subject, name, log) for name, log in subject.logs().items()]
    usable = all(taken)
    if usable and operation.retries:
        operation.act(subject)
        _require_once(allowed.after, subject.shown())
    for check in subject.checks:
        check()
    return allowed.narrowed(subject.shown(), usable=usable, pending=operation.pending)


def append_extra(subject: Any, name: str, log: Any) -> bool:
    """Whether a log takes another record; it must be what is read then."""
    value, end = subject.extra(name), log.log_end_offset
    try:
        offset = log.append(value, value[:5])
    except Refusal as e:
        fail_softly(e)
        del subject.extras[value]
        with contextlib.suppress(kstore.LogClosedError):
            require(log.log_end_offset == end, f"{name}: a refused append moved the end from {end}")
        return False
    require(offset == end, f"{name}: the next append got {offset}, where the log ended at {end}")
    require(bytes(log.get(offset).value) == value, f"{name}: what was appended at {offset} is not there")
    subject.extras[value] = name, offset
    return True


def _require_once(after: State, shown: State) -> None:
    """Broken unless each value of a batch that was sent again is there once; Shown.of looks for doubles."""
    wanted, found = after.logs["t-0"].records.values(), shown.logs["t-0"].records.values()
    require({*wanted} <= {*found}, "a producer's batch that was sent again is not there")


def _close(subject: Any) -> None:
    """Closes the log: the first time may fail, with a reason."""
    for _ in range(2):
        try:
            subject.handle.close()
        except Refusal as e:
            fail_softly(e)
    require(subject.handle.is_closed, "closed twice, and not closed")
    subject.handle = None


def _drop_held(subject: Any) -> None:
    while subject.held:
        each = subject.held.pop()
        if isinstance(each, kstore.Cursor | kstore.Follower):
            with contextlib.suppress(*Refusal):
                each.close()


def _is_unfinished(directory: Path) -> bool:
    """Whether a truncation or an adoption was not finished, which the next writer does."""
    file = directory / "kstore.json"
    is_truncated = file.exists() and bool(json.loads(file.read_text()).get("pending"))
    return is_truncated or any(directory.glob("*.moved"))


def open_again(operation: Operation, subject: Any, allowed: Between) -> State:
    """Reads, opens for writing, appends, closes; what the log shows at the end."""
    if subject.neighbour is None and (subject.root / "beside-0").exists():
        subject.neighbour = kstore.open(subject.root / "beside-0", "a")
    if subject.neighbour is not None:
        offset = subject.neighbour.append(b"beside")
        require(subject.neighbour.get(offset).value == b"beside", "the log beside does not go on")
    read = subject.shown_to_readers()
    if read is not None:
        allowed.check(read, subject.extras, whole=False)
    unfinished = {name for name in ({} if read is None else read.logs) if _is_unfinished(subject.root / name)}
    until = time.monotonic() + (60 if operation.late else 0)
    while True:
        try:
            subject.open()
            break
        except kstore.LogLockedError as e:
            if time.monotonic() > until:
                raise Broken(f"the lock was not given up: {e}") from e
        time.sleep(0.01)
    shown = subject.shown()
    allowed.check(shown, subject.extras)
    for name, log in ({} if read is None else read.logs).items():
        require(
            name in unfinished or shown.logs.get(name) == log,
            f"{name} shows {log} for reading, {shown.logs.get(name)} for writing",
        )
    operation.check(subject)
    if operation.retries:
        operation.act(subject)
        _require_once(allowed.after, subject.shown())
    for name, log in subject.logs().items():
        require(append_extra(subject, name, log), f"{name} takes no records")
        for group in ("g", *log.cursors()):
            log.cursor(group).close()  # it is not locked
        log.flush()
        log.roll()
        append_extra(subject, name, log)
    shown = subject.shown()
    subject.handle.close()
    subject.handle = None
    if subject.neighbour is not None:
        subject.neighbour.close()
        subject.neighbour = None
    return shown


def open_elsewhere(subject: Any, expected: State) -> None:
    """Another process opens it for writing: it was closed cleanly, and shows the same."""
    subject.extras = {}
    subject.open()
    shown = subject.shown()
    require(shown == expected, f"another process sees {shown}, not {expected}")
    subject.require_clean()
    for name, log in subject.logs().items():
        require(append_extra(subject, name, log), f"{name} takes no records of another process")
        for group in log.cursors():
            _commit_all(log, group)
    subject.handle.close()


def _commit_all(log: Any, group: str) -> None:
    """A cursor takes the group over, and goes on from its position, or from the log start if that is lost."""
    with log.cursor(group) as cursor:
        if not log.log_start_offset <= cursor.position <= log.log_end_offset:
            cursor.seek("earliest")
        with contextlib.suppress(kstore.OffsetOutOfRangeError):
            for _ in cursor:
                pass
            cursor.commit()
            position = log.cursors()[group].offset
            require(position == cursor.position, f"a commit of {group} left the position {position}")


# ---- what must not be left behind --------------------------------------------------------------------------


def count_descriptors() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def _require_soon(fact: Callable[[], object], text: Callable[[], str]) -> None:
    """Broken with this text unless it is so before long: threads that end let go late."""
    until = time.monotonic() + 60
    while not fact():
        require(time.monotonic() < until, text())
        time.sleep(0.001)


def other_threads() -> list[str]:
    """Those that run, or are about to; Python's list also has some that were interrupted before."""
    alive = {int(path.name) for path in Path("/proc/self/task").iterdir()} | {None}
    me = threading.current_thread()
    return [thread.name for thread in threading.enumerate() if thread is not me and thread.native_id in alive]


def _free_locks_of_python() -> None:
    """CPython leaves its own locked if it is interrupted just as it enters or leaves them."""
    limbo: Any = threading._active_limbo_lock  # type: ignore[attr-defined]
    lock: Any = logging._lock  # type: ignore[attr-defined]
    for each in (limbo, lock):
        if each.acquire(timeout=3):  # a thread may be inside, and wait for its turn on a busy machine
            while each._is_owned():
                each.release()
        else:
            each._release_save()
