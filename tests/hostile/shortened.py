"""Run as `python shortened.py NAME…`, in an empty directory: index files are shortened under a writer that
has them mapped.

Each name is a function below that does so. `trials` does so to a writer that is about to do each of ACTIONS.
"""

import contextlib
import faulthandler
import mmap
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import kstore
from tests.helpers.effort import some

COUNT = 1500
INDEX, TIME_INDEX = NAMES = f"{0:020}.index", f"{0:020}.timeindex"


def value(offset: int) -> bytes:
    return b"value %d" % offset


def opened(path: str) -> kstore.LogWriter:
    """Each record is a batch of its own and has entries in both indexes."""
    log = kstore.open(path, "a", index_interval_bytes=0)
    for offset in range(log.log_end_offset, COUNT):
        log.append(value(offset), timestamp=1000 + offset)
    return log


def check(records: Iterable[kstore.Record], first: int, last: int = COUNT) -> None:
    assert [(r.offset, r.value) for r in records] == [(n, value(n)) for n in range(first, last)]


def check_error(e: Exception, name: str) -> None:
    assert isinstance(e, kstore.LogFailedError), e
    assert f"{name} was shortened by another program" in str(e), e


# ---- a writer is about to do something ---------------------------------------------------------------------


class Trial:
    """A log whose index is shortened. Every record below `acknowledged` must be there afterwards."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.log = opened(path)
        self.segment = self.log.segments[0]
        self.index, self.times = self.segment.offset_index, self.segment.time_index
        self.acknowledged = COUNT

    def append(self) -> None:
        for n in range(COUNT, 2 * COUNT):
            self.acknowledged = self.log.append(value(n), timestamp=1000 + n) + 1

    def extend(self) -> None:
        try:
            self.log.extend([value(n) for n in range(COUNT, 2 * COUNT)], batch_bytes=64)
        finally:
            self.acknowledged = self.log.log_end_offset

    def flush(self) -> None:
        self.acknowledged = self.log.append(value(COUNT)) + 1
        self.log.flush()

    def truncate(self) -> None:
        self.acknowledged = 700
        self.log.truncate_to(700)
        check(self.log.records(0), 0, 700)

    def truncate_behind_a_roll(self) -> None:
        self.log.roll()
        self.truncate()

    def get(self) -> None:
        for n in [*range(0, COUNT, 7), *range(COUNT - 1, 0, -7)]:
            check([self.log.get(n)], n, n + 1)

    def find(self) -> None:
        for n in range(0, COUNT, 7):
            assert self.log.find(timestamp=1000 + n)[:2] == (n, 1000 + n)  # type: ignore[index]

    def read(self) -> None:
        check(self.log.records(700), 700)
        check(self.log.read(700, max_bytes=1 << 20), 700)
        check(self.log.records(700, isolation="read_committed"), 700)
        assert [b.base_offset for b in self.log.batches(700)] == list(range(700, COUNT))

    def scan(self) -> None:
        options: list[dict[str, Any]] = [{"start": 700}, {"since": 1700}, {"start": 700, "threads": 2}]
        for given in options:
            assert sum(len(b) for b in self.log.scan(["offset"], **given)) == COUNT - 700

    def index_at_hand(self) -> None:
        list(self.index), list(self.times), self.index.to_bytes(), self.times.copy()
        self.index.lookup(700), self.times.lookup(1700)

    def segment_at_hand(self) -> None:
        assert self.segment.translate(700).base_offset == 700  # type: ignore[union-attr]
        assert self.segment.find_timestamp(1700)[0] == 700  # type: ignore[index]


ACTIONS: dict[str, Callable[[Trial], object]] = {
    **{name: action for name, action in vars(Trial).items() if not name.startswith("_")},
    "roll": lambda trial: trial.log.roll(),
    "close": lambda trial: trial.log.close(),
}


def trials() -> None:
    # How much of the file is left. If it is made long again, the rest reads as zeros, and there is no signal.
    ways = [
        (name, keep, again) for name in NAMES for keep, again in ((0, False), (4096, False), (4100, True))
    ]
    for action, name, keep, again in some(
        [(a, *way) for a in ACTIONS for way in ways], 2 * len(ACTIONS), "index"
    ):
        print(action, name, keep, again, flush=True)
        path = f"{action}-{name}-{keep}-{again}/t-0"
        os.makedirs(path)  # noqa: PTH103
        opened(path).close()
        trial = Trial(path)
        size = os.path.getsize(f"{path}/{name}")  # noqa: PTH202
        os.truncate(f"{path}/{name}", keep)
        if again:
            os.truncate(f"{path}/{name}", size)
        try:
            ACTIONS[action](trial)
        except kstore.KstoreError as e:
            check_error(e, name)
        with contextlib.suppress(kstore.LogFailedError):
            trial.log.close()
        last = trial.acknowledged
        with kstore.open(path) as log:
            check(list(log.records(0))[:last], 0, last)
            for n in range(0, last, 50):
                check([log.get(n)], n, n + 1)
        with kstore.open(path, "a", index_interval_bytes=0) as log:
            check(list(log.records(0))[:last], 0, last)
            offset = log.append(b"goes on", timestamp=9000)
            assert log.get(offset).value == b"goes on"
        assert not kstore.open(path, clean=False).recovery.losses


def reader_first() -> None:
    """A fault of a reader, before the writer by itself touches what is gone."""
    for name in NAMES:
        path = f"{name}/t-0"
        os.makedirs(path)  # noqa: PTH103
        log = opened(path)
        os.truncate(f"{path}/{name}", 0)
        check([log.get(700)], 700, 701)
        assert log.find(timestamp=1700)[0] == 700  # type: ignore[index]
        changes: list[Callable[[], object]] = [
            lambda log=log: log.append(b"x"),
            lambda log=log: log.extend([b"x"]),
            log.roll,
            lambda log=log: log.truncate_to(3),
            log.flush,
            lambda log=log: log.delete_records(3),
        ]
        for change in changes:
            try:
                change()
            except kstore.LogFailedError as e:
                check_error(e, name)
            else:
                raise AssertionError(change)
        check(log.records(0), 0)
        check([log.get(n) for n in range(COUNT)], 0)
        log.close()
        with kstore.open(path) as log:
            assert not log.recovery.clean
            check(log.records(0), 0)
        with kstore.open(path, "a", index_interval_bytes=0) as log:
            assert log.append(b"goes on") == COUNT


def sealed() -> None:
    """The index of a sealed segment is no reason to refuse."""
    log = opened("t-0")
    log.roll()
    for name in NAMES:
        os.truncate("t-0/" + name, 4096)
    check([log.get(1200)], 1200, 1201)
    assert log.find(timestamp=2200).offset == 1200  # type: ignore[union-attr]
    assert log.append(value(COUNT)) == COUNT
    log.close()
    with kstore.open("t-0") as log:
        assert log.recovery.clean
        check(log.records(0), 0, COUNT + 1)


def fork() -> None:
    """A child of a fork reads an index that its parent has mapped."""
    log = opened("t-0")
    index = log.segments[0].offset_index
    os.truncate("t-0/" + INDEX, 0)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            index.lookup(700)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    check([log.get(700)], 700, 701)


def threads() -> None:
    """Threads that read meanwhile find right records."""

    def read(log: kstore.LogWriter, failures: list[Exception], step: int) -> None:
        try:
            for n in range(0, COUNT, step):
                check([log.get(n)], n, n + 1)
                assert log.find(timestamp=1000 + n).offset == n  # type: ignore[union-attr]
                records = list(log.read(n, max_bytes=500, whole_batches=True))
                check(records, n, n + len(records))
                assert records
        except Exception as e:  # noqa: BLE001 - for the main thread
            failures.append(e)

    for attempt in range(3):
        log = opened(f"t-{attempt}")
        failures: list[Exception] = []
        readers = [threading.Thread(target=read, args=(log, failures, step)) for step in (7, 11, 13)]
        for thread in readers:
            thread.start()
        for name in NAMES:
            os.truncate(f"{log.path}/{name}", 4096 * attempt)
        with contextlib.suppress(kstore.LogFailedError):
            for n in range(COUNT, 2 * COUNT):
                log.append(value(n), timestamp=1000 + n)
        for thread in readers:
            thread.join()
        assert not failures, failures
        check(log.records(0), 0, log.log_end_offset)
        with contextlib.suppress(kstore.LogFailedError):
            log.close()


# ---- other handlers of SIGBUS ------------------------------------------------------------------------------


def enable_faulthandler() -> None:
    faulthandler.enable()


def open_log() -> None:
    _open.append(opened(f"t-{len(_open)}"))


def shorten() -> None:
    """Both indexes of the logs that are open."""
    for log in _open:
        index = log.segments[0].offset_index
        for name in NAMES:
            os.truncate(f"{log.path}/{name}", 0)
        index.lookup(700)
        check([log.get(700)], 700, 701)
        assert log.find(timestamp=1800).offset == 800  # type: ignore[union-attr]
        log.close()
    _open.clear()


def touch_another() -> None:
    """A mapped file that is none of kstore's."""
    with open("another", "w+b") as file:  # noqa: PTH123
        file.truncate(8192)
        mapped = mmap.mmap(file.fileno(), 8192)
        file.truncate(0)
        print("touching", flush=True)
        mapped[5000]
        print("still here", flush=True)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGBUS)
    print("still here", flush=True)


def own_handler() -> None:
    """A handler of the program gets what is not kstore's."""
    seen = []
    signal.signal(signal.SIGBUS, lambda *_: seen.append(1))
    log = opened("t-0")
    os.kill(os.getpid(), signal.SIGBUS)
    assert seen == [1]
    signal.signal(signal.SIGBUS, lambda *_: seen.append(2))
    log.roll()
    for n in range(COUNT, COUNT + 3):
        log.append(value(n))
    os.kill(os.getpid(), signal.SIGBUS)
    assert seen == [1, 2]
    os.truncate(f"t-0/{COUNT:020}.index", 0)
    check([log.get(COUNT + 2)], COUNT + 2, COUNT + 3)
    with contextlib.suppress(kstore.LogFailedError):  # the flush of the sealed segment has met it first
        log.close()
    signal.signal(signal.SIGBUS, signal.SIG_IGN)
    with opened("t-1"):
        os.kill(os.getpid(), signal.SIGBUS)
    assert seen == [1, 2]


_open: list[kstore.LogWriter] = []

if __name__ == "__main__":
    for each in sys.argv[1:]:
        globals()[each]()
