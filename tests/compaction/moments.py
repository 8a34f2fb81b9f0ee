"""Run as `python moments.py LIBRARY NAME SEED`, with calls.c preloaded as LIBRARY: readers at moments within
a compaction.

NAME is a function below. Nothing is printed but what is wrong, and "done".
"""

import ctypes
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kstore
from tests.helpers.markers import end_transaction, transactional

CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)


class Moments:
    """Calls a function before each open for reading, rename and unlink of this thread, except its own."""

    def __init__(self, library: str, function: Callable[[str, str], object]) -> None:
        self.function = function
        self.is_busy = False
        self._library = ctypes.CDLL(library)
        self._callback = CALLBACK(self._called)

    def _called(self, call: bytes, path: bytes) -> None:
        if self.is_busy or threading.get_ident() != self._thread:
            return
        self.is_busy = True
        try:
            self.function(call.decode(), path.decode())
        finally:
            self.is_busy = False

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        self._library.before_each_call(self._callback)

    def __exit__(self, *error: object) -> None:
        self._library.before_each_call(None)


# ---- readers of the directory ------------------------------------------------------------------------------


class Life:
    """A log of keys that come again, and of transactions that are aborted, and what was appended to it."""

    def __init__(self, delay_ms: int, segment_bytes: int, path: Path = Path("t-0")) -> None:
        self.path = path
        self.log = kstore.open(
            path,
            "a",
            cleanup_policy="compact",
            min_cleanable_dirty_ratio=0,
            internal_segment_bytes=segment_bytes,
            segment_index_bytes=800,
            index_interval_bytes=100,
            file_delete_delay_ms=delay_ms,
        )
        self.appended: dict[int, tuple[bytes, bytes, bool]] = {}  # by offset: key, value, whether it counts
        self.sequence = 0

    def append(self, key: bytes) -> None:
        value = b"%d" % self.log.log_end_offset + b"." * 40
        self.appended[self.log.append(value, key)] = key, value, True

    def abort(self, key: bytes) -> None:
        batch = transactional((self.log.clock_ms(), key, b"aborted", None), sequence=self.sequence)
        self.sequence += 1
        self.appended[self.log.append_batches(batch).first_offset] = key, b"aborted", False
        end_transaction(self.log, "ABORT", self.log.clock_ms())

    def fill(self) -> None:
        for n in (1, 2, 3, 1, 2, 3, 4, 5):
            self.append(b"%d" % n)
        self.abort(b"6")
        for n in (1, 1, 2, 7):
            self.append(b"%d" % n)
        self.log.roll()

    def check(self, reader: kstore.PartitionLog) -> None:
        """The last record of each key up to the end of the reader's log, and no aborted one."""
        end = reader.log_end_offset
        found = [(r.offset, r.key, r.value) for r in reader.records(isolation="read_committed")]
        assert found == sorted(set(found))
        for offset, key, value in found:
            assert self.appended[offset] == (key, value, True), offset
        last = {key: offset for offset, (key, _, counts) in self.appended.items() if offset < end and counts}
        assert {key: offset for offset, key, _ in found} == last, (found, last, end)
        for offset in last.values():
            assert reader.get(offset).offset == offset
        every = [r.offset for r in reader]
        assert every == sorted(set(every))
        assert set(last.values()) <= set(every)


def readers(library: str, seed: str) -> None:
    """At every moment of several compactions a reader can be opened, and finds all; one that was opened
    before does so, too, or raises LogChangedError and can be refreshed."""
    chance = random.Random(seed)
    life = Life(chance.choice((0, 60_000)), chance.choice((200, 400, 1000)))
    kept: list[kstore.PartitionLog] = []
    moments = 0

    def check_kept(reader: kstore.PartitionLog) -> None:
        try:
            life.check(reader)
        except kstore.LogChangedError as e:
            assert ".swap" not in str(e), e
            assert ".cleaned" not in str(e), e
            reader.refresh()
            life.check(reader)

    def check_now(call: str, path: str) -> None:
        nonlocal moments
        if call == "open":
            return
        moments += 1
        for reader in chance.sample(kept, min(len(kept), 4)):
            check_kept(reader)
        fresh = kstore.open("t-0")
        if chance.random() < 0.7:
            life.check(fresh)
        kept.append(fresh)

    with Moments(library, guarded(check_now)), life.log as log:
        for round_ in range(4):
            life.fill()
            if round_ == 2:
                log.configure(internal_segment_bytes=1_000_000)
            log.compact()
    assert moments > 20
    for reader in kept:
        check_kept(reader)
        reader.refresh()
        life.check(reader)


def guarded(function: Callable[[str, str], object]) -> Callable[[str, str], object]:
    """ctypes prints an error of a callback, and continues."""

    def run(call: str, path: str) -> None:
        try:
            function(call, path)
        except BaseException as e:
            print(f"before {call} of {path}: {e!r}", flush=True)
            raise

    return run


def followers(library: str, seed: str) -> None:
    """Followers and following cursors of the directory, while the log is appended to and compacted between
    two of their calls of the system: each record comes once, in order, and the last one of each key, without
    an error."""
    for number in range(8):
        for kind in ("follower", "cursor"):
            chance = random.Random(f"{seed} {number}")
            path = Path(f"{kind}-{number}")
            life = Life(chance.choice((0, 60_000)), chance.choice((200, 400, 1000)), path)
            isolation = chance.choice(("read_uncommitted", "read_committed"))
            _follow(library, life, chance, kind, isolation)
            life.log.close()


def _follow(library: str, life: Life, chance: random.Random, kind: str, isolation: Any) -> None:
    compactions = 0

    def between(call: str, _: str) -> None:
        nonlocal compactions
        if call == "open" and compactions < 30 and chance.random() < 0.2:
            compactions += 1
            life.fill()
            life.log.compact()

    life.fill()
    moments = Moments(library, guarded(between))
    with kstore.open(life.path) as log:
        found: dict[bytes | None, int] = {}
        offset = -1
        reader = (
            log.follow(0, timeout=0, isolation=isolation)
            if kind == "follower"
            else log.cursor("g", follow=True, timeout=0, isolation=isolation)
        )
        while compactions < 30:
            life.fill()
            with moments:
                for record in reader:
                    assert record.offset > offset
                    offset = record.offset
                    found[record.key] = offset
        reader.close()
    shown = {record.key: record.offset for record in life.log.records(isolation=isolation)}
    assert {key: found.get(key) for key in shown} == shown, (kind, life.path)


# ---- readers of the writer ---------------------------------------------------------------------------------


def own_readers(library: str, _: str) -> None:
    """A reader of the writer opens a file by its name, and then by the name that it has once it was replaced.
    If it is replaced by one compaction before the first look, and by another before the second, the reader
    has it all the same."""
    keys = [b"%d" % i for i in range(5)]
    is_armed = False
    with kstore.open("t-0", "a", cleanup_policy="compact", min_cleanable_dirty_ratio=0) as log:

        def fill() -> None:
            for key in keys:
                log.append(b"of offset %d" % log.log_end_offset, key=key)
            log.roll()

        def compact(call: str, path: str) -> None:
            nonlocal is_armed
            if (
                is_armed and call == "open" and path.endswith(f"/{0:020}.log")
            ):  # it is about to be opened by this name
                is_armed = False
                for _ in range(2):
                    fill()
                    assert log.compact().records_removed

        calls: dict[str, Callable[[], list[bytes | None]]] = {
            "get": lambda: [log.get(0).key, *keys[1:]],
            "records": lambda: [r.key for r in log.records()],
            "committed": lambda: [r.key for r in log.records(isolation="read_committed")],
            "batches": lambda: [r.key for b in log.batches() for r in b],
            "scan": lambda: [key for b in log.scan(["key"]) for (key,) in b.rows()],
            "threads": lambda: [key for b in log.scan(["key"], threads=2) for (key,) in b.rows()],
            "read": lambda: [r.key for r in log.read(log.segments[0].base_offset)],
            "find": lambda: [log.get(getattr(log.find(timestamp=0), "offset", 0)).key, *keys[1:]],
            "last": lambda: [log.last(key).key for key in keys],  # type: ignore[union-attr]
            "history": lambda: [r.key for key in keys for r in log.history(key)],
            "follow": lambda: [r.key for r in log.follow(0, timeout=0)],
            "cursor": lambda: [r.key for r in log.cursor("g")],
        }
        moments = Moments(library, guarded(compact))
        for name, call in calls.items():
            fill()
            log.compact()
            kstore.limit_open_files(0)  # readers have to open the file
            kstore.limit_open_files(None)
            is_armed = True
            with moments:
                found = call()
            assert {*found} == {*keys}, (name, found)
            assert not is_armed or name in ("threads",), name


if __name__ == "__main__":
    globals()[sys.argv[2]](sys.argv[1], sys.argv[3])
    print("done")
