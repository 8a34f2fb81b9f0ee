"""A log in the hands of a test: what was acknowledged of it, what was only tried, and what must hold of it."""

import contextlib
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import kstore
from tests.helpers.children import in_another_process

OPTIONS = {
    "durability": "each",
    "internal_segment_bytes": 1000,
    "segment_index_bytes": 128,
    "index_interval_bytes": 100,
    "file_delete_delay_ms": 0,
}
Content = dict[int, bytes]


class Broken(AssertionError):
    """What must hold does not."""


def require(truth: object, text: str) -> None:
    """Broken with this text unless it is true."""
    if not truth:
        raise Broken(text)


class World:
    """One log, with what its user knows of it.

    `acked`: the records whose append returned, by offset. `tried`: the batches of values whose append has not returned
    yet, in order; the log may hold the first of them. `starts`: where the log may begin. `cut_from`: records from there
    on may be gone, because a truncation has begun. `may_go`: so may these, because a compaction or an erasure has.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory / "t-0"
        self.options: dict[str, Any] = dict(OPTIONS)
        self.log: Any = None
        self.acked: Content = {}
        self.tried: list[list[bytes]] = []
        self.starts: set[int] = {0}
        self.also_starts: set[int] = set()  # where it may begin at any later opening
        self.cut_from: int | None = None
        self.may_go: set[int] = set()
        self.keyed = False  # records have keys, without which a compacted log takes none
        self.number = 0
        self.held: list[Any] = []  # appenders, iterators, other logs
        self.neighbour: Any = None
        self.never_committed: set[bytes] = set()
        self.all_or_none_committed: set[bytes] = set()
        self.committed: set[bytes] = set()
        self.retry: bytes | None = None  # a producer's batch, to be sent again until it was acknowledged
        self.moved: tuple[Path, list[bytes]] | None = None  # a file that is taken over, and its values
        self.gap = ""  # how a finding begins about the offsets that the operation was to leave out
        self.descriptors = count_descriptors()
        self.pending = False  # an appender may still append what was tried
        self.patience = 0.0  # seconds that the lock may take to be given up
        self.ends_log = False  # the operation closes the log
        self.may_lose_threads = False  # CPython forgets a thread that finds no memory while it begins
        self.checks: list[Callable[[Any], None]] = []  # of the log that was opened again
        self.live_checks: list[Callable[[Any], None]] = []
        self.complaints: list[str] = []  # of what ran within the operation

    # ---- what is done with it ---------------------------------------------------------------------------------

    def open(self) -> Any:
        self.log = kstore.open(self.directory, "a", **self.options)
        return self.log

    def values(self, count: int) -> list[bytes]:
        """Values that were never used before."""
        self.number += count
        return [b"%05d" % i + b"." * 200 for i in range(self.number - count, self.number)]

    def ack(self, first: int, values: Iterable[bytes]) -> None:
        """Their append has returned."""
        values = list(values)
        for i, value in enumerate(values):
            require(first + i not in self.acked, f"offset {first + i} was given out twice")
            self.acked[first + i] = value
        self.tried = [batch for batch in self.tried if not set(batch) & set(values)]

    def append(self, count: int = 1) -> None:
        """Appends single records."""
        for value in self.values(count):
            self.tried.append([value])
            self.ack(self.log.append(value, self.key_of(value)), [value])

    def key_of(self, value: bytes) -> bytes | None:
        """Another one for each value."""
        return value[:5] if self.keyed else None

    def truncated(self, offset: int) -> None:
        """A truncation has returned: what lies from there on must be gone."""
        self.acked = {o: v for o, v in self.acked.items() if o < offset}
        self.cut_from = None

    def deleted(self) -> None:
        """A deletion of the oldest records has returned: the log begins where it says now."""
        start = self.log.log_start_offset
        self.starts = {start}
        self.acked = {o: v for o, v in self.acked.items() if o >= start}

    # ---- what must hold ---------------------------------------------------------------------------------------

    def look(self, log: Any, what: str) -> Content:
        """Everything in the log, read in more than one way; Broken where that is not what may be there."""
        records = [(r.offset, bytes(r.value)) for r in log.records()]
        there = dict(records)
        start, end = log.log_start_offset, log.log_end_offset
        offsets = [offset for offset, _ in records]
        say = f"{what}: offsets {_short(offsets)}, start {start}, end {end}, acknowledged {_short(self.acked)}: "
        require(offsets == sorted(set(offsets)), say + "offsets do not rise")
        require(all(start <= o < end for o in offsets), say + "records lie outside")
        require(len(set(there.values())) == len(records), say + "a value is there twice")
        require(
            start in self.starts | self.also_starts,
            say + f"it begins at {start}, not at one of {sorted(self.starts)[:9]}",
        )
        for offset, value in there.items():
            if offset in self.acked:
                require(value == self.acked[offset], say + f"another value at offset {offset}")
                require(bytes(log.get(offset).value) == value, say + f"get({offset}) differs")
                require(log.find(offset=offset).offset == offset, say + f"find({offset}) differs")
        due = [offset for offset in sorted(self.acked) if offset in there or offset not in self.may_go]
        run = [offset in there for offset in due]
        first = run.index(True) if True in run else len(run)
        last = len(run) - run[::-1].index(True) if True in run else len(run)
        gone = [o for o in due if o not in there]
        require(all(run[first:last]), say + f"acknowledged records in the middle are gone: {gone}")
        for offset in gone:
            cut = self.cut_from is not None and offset >= self.cut_from
            require(cut or (offset < start and start in self.starts), say + f"acknowledged, and gone: {gone}")
        self._look_at_tried([v for o, v in records if o not in self.acked], say)
        self._look_at_committed(log, there, say)
        return there

    def _look_at_tried(self, values: list[bytes], say: str) -> None:
        for batch in self.tried:
            if not values:
                return
            require(values[: len(batch)] == batch, say + f"of a batch tried only {[v[:5] for v in values]}")
            values = values[len(batch) :]
        require(not values, say + f"nobody appended {[v[:5] for v in values]}")

    def _look_at_committed(self, log: Any, there: Content, say: str) -> None:
        committed = {bytes(r.value) for r in log.records(isolation="read_committed")}
        require(committed <= set(there.values()), say + "committed, and not there")
        require(not committed & self.never_committed, say + "read_committed gives aborted records")
        part = committed & self.all_or_none_committed
        require(part in (set(), self.all_or_none_committed), say + "a part of a transaction is committed")
        require(self.committed <= committed, say + "committed records are not given")

    # ---- afterwards -------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Appends, reads, closes, opens again, and looks each time: after an interruption everything must be sound."""
        usable, live = False, None
        free_locks_of_python()
        if self.log is not None:
            live = self._look_live("after the interruption")
            usable = self._try_to_append()
            if usable:
                live = self._look_live("after one more append")
            if self.neighbour is not None:
                self._use_neighbour()
            close_twice(self.log)
            self._let_go()
        elif self.neighbour is not None:
            self._use_neighbour()
        read = self._read(live)
        self._open_again(live, read, usable)

    def _look_live(self, what: str) -> Content | None:
        try:
            there = self.look(self.log, what)
            for check in self.live_checks:
                check(self.log)
        except kstore.LogClosedError:
            require(self.ends_log or self.log.is_closed, f"{what}: the log says that it is closed")
            return None
        return there

    def _try_to_append(self) -> bool:
        """Whether the log still takes records; otherwise it must say why not."""
        value = self.values(1)
        tried = self.tried[:]
        self.tried.append(value)
        before = None if self.log.is_closed else self.log.log_end_offset
        try:
            if self.retry is not None:
                self._send_again()
                before = self.log.log_end_offset
            offset = self.log.append(value[0], self.key_of(value[0]))
        except (kstore.KstoreError, OSError) as e:
            require(str(e), f"{type(e).__name__} without a word")
            self.tried = tried
            with contextlib.suppress(kstore.KstoreError):  # closed
                now = self.log.log_end_offset
                require(now == before, f"a refused append moved the end from {before} to {now}")
            return False
        require(offset == before, f"the next append got {offset}, where the log ended at {before}")
        self.settle()
        require(self.acked.get(offset) == value[0], f"what was appended at {offset} is not there")
        return True

    def settle(self) -> None:
        """The log goes on: what it holds now is what it must hold from here on."""
        self.acked = {r.offset: bytes(r.value) for r in self.log.records()}
        self.tried = [
            batch for batch in self.tried if self.pending and not set(batch) & {*self.acked.values()}
        ]
        self.cut_from = None
        self.starts = {self.log.log_start_offset}

    def _send_again(self) -> None:
        assert self.retry is not None
        done = self.log.append_batches(self.retry)
        values = [bytes(r.value) for b in [kstore.RecordBatch(self.retry)] for r in b.records()]
        there = {r.offset: bytes(r.value) for r in self.log.records()}
        found = [o for o, v in there.items() if v in values]
        require(
            found == list(range(done.first_offset, done.last_offset + 1)),
            f"a producer's batch that was sent again is at {found}, {done}",
        )
        for offset, value in zip(found, values, strict=True):
            self.acked[offset] = value
        self.tried = [batch for batch in self.tried if batch != values]
        self.retry = None

    def _use_neighbour(self) -> None:
        offset = self.neighbour.append(b"beside")
        require(self.neighbour.get(offset).value == b"beside", "the log beside does not go on")

    def _let_go(self) -> None:
        """Nothing of the log is left: no thread, no lock."""
        # then CPython may have lost a reference to a cursor, too: it does not go by itself
        if self.may_lose_threads:
            for each in self.held:
                if isinstance(each, kstore.Cursor):
                    each.close()
        self.held.clear()
        if self.neighbour is not None:
            return
        require_no_threads(self.may_lose_threads)

    def _read(self, live: Content | None) -> Content | None:
        try:
            with kstore.open(self.directory) as log:
                return self.look(log, "opened for reading")
        except kstore.LogNotFoundError:
            require(not self.acked, "the log is not there any more")
            return None

    def _open_again(self, live: Content | None, read: Content | None, usable: bool) -> None:
        until = time.monotonic() + self.patience
        while self.patience and time.monotonic() < until:
            with contextlib.suppress(kstore.LogLockedError):
                self.open().abandon()
                break
            time.sleep(0.01)
        try:
            log = self.open()
        except kstore.LogLockedError as e:
            gc.collect()
            self.log = None
            try:
                self.open()
            except kstore.LogLockedError:
                raise Broken(f"the lock was not given up, nor after gc.collect(): {e}") from e
            raise Broken(f"the lock was given up only after gc.collect(): {e}") from e
        there = self.look(log, "opened for writing")
        if usable:
            require(
                log.recovery.clean, "it took records, close() returned, and the next opening is not clean"
            )
            same = there == live or (self.pending and live is not None and there.items() >= live.items())
            require(same, f"closed with {_short(live)}, opened again with {_short(there)}")
        if live is not None:
            hoped = {value for batch in self.tried for value in batch}
            back = [o for o in there.keys() - live.keys() if there[o] not in hoped]
            require(not back or self.pending, f"offsets {_short(back)} were gone, and are back")
        if read is not None:
            require(read == there, f"for reading {_short(read)}, for writing {_short(there)}")
        if self.moved is not None:
            path, values = self.moved
            inside = set(values) & set(there.values())
            require(inside in (set(), set(values)), f"a part of {path.name} is in the log")
            require(bool(inside) != path.exists(), f"{path.name} is there and adopted, or neither")
        for check in self.checks:
            check(log)
        if self.retry is not None:
            self._send_again()
        self.pending = False
        self.settle()
        self.append(5)
        log.flush()
        log.roll()
        self.append(1)
        there = self.look(log, "after more appends")
        log.close()
        if self.neighbour is not None:
            self._use_neighbour()
            self.neighbour.close()
            self.neighbour = None
        self.log = log = None
        self._let_go()
        gc.collect()
        require_descriptors(self.descriptors)
        self._open_elsewhere(there)

    def _open_elsewhere(self, expected: Content) -> None:
        in_another_process(partial(self.open_as_another, expected))

    def open_as_another(self, expected: Content) -> None:
        """Another process opens it for writing."""
        with kstore.open(self.directory, "a", **self.options) as log:
            require(log.recovery.clean, "closed, and not clean for another process")
            found = [f for f in log.recovery.findings if not f.text.startswith(self.gap or "-")]
            require(not found, f"findings: {found}")
            require(self.look(log, "in another process") == expected, "another process reads another log")
            log.append(b"the end", self.key_of(b"the end"))

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs of it."""
        left_out = {"log": None, "neighbour": None, "held": [], "checks": [], "live_checks": []}
        return self.__dict__ | left_out


def close_twice(opened: kstore.LogWriter | kstore.LogStore) -> None:
    """Closes what a broken operation was about: the first time may fail, with a word."""
    error = ""
    for _ in range(2):
        try:
            opened.close()
        except (kstore.KstoreError, OSError) as e:
            require(str(e), f"{type(e).__name__} without a word")
            error = f": {e}"
    require(opened.is_closed, f"closed twice, and not closed{error}")


def require_soon(fact: Callable[[], object], seconds: float, text: Callable[[], str]) -> None:
    """Broken with this text unless it is so before long."""
    until = time.monotonic() + seconds
    while not fact():
        require(time.monotonic() < until, text())
        time.sleep(0.001)


def require_no_threads(may_lose_threads: bool) -> None:
    """Broken if threads of a log, or of a store, go on. One that was to begin may do so late, and ends at once."""

    def text() -> str:
        return f"the threads {other_threads(may_lose_threads)} go on after close()"

    require_soon(lambda: not other_threads(may_lose_threads), 5, text)


def require_descriptors(most: int) -> None:
    """Broken if more files are open. Threads that end let go late."""

    def text() -> str:
        return f"{count_descriptors() - most} descriptors are left open"

    require_soon(lambda: count_descriptors() <= most, 2, text)


def other_threads(may_lose_threads: bool) -> list[str]:
    """Those that run, or are about to. One that found no memory to begin with stands in Python's list for good."""
    alive = {int(thread.name) for thread in Path("/proc/self/task").iterdir()}
    begins = len(alive) > 1 and not may_lose_threads
    return [
        thread.name
        for thread in threading.enumerate()
        if thread is not threading.current_thread()
        and (thread.native_id in alive or (thread.native_id is None and begins))
    ]


def free_locks_of_python() -> None:
    """CPython leaves its own locked if it is interrupted, or finds no memory, just as it enters or leaves them."""
    limbo: Any = threading._active_limbo_lock  # type: ignore[attr-defined]
    lock: Any = logging._lock  # type: ignore[attr-defined]
    for each in (limbo, lock):
        if each.acquire(timeout=3):  # a thread may be inside, and wait for its turn on a busy machine
            while each._is_owned():
                each.release()
        else:
            each._release_save()


def _short(offsets: Iterable[int] | None) -> str:
    """Offsets as ranges."""
    if offsets is None:
        return "nothing"
    parts: list[list[int]] = []
    for offset in sorted(offsets):
        if parts and parts[-1][1] == offset - 1:
            parts[-1][1] = offset
        else:
            parts.append([offset, offset])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in parts) or "none"


def count_descriptors() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208
