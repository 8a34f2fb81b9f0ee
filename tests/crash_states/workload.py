"""A workload of a log: random operations on one partition, with what each of them guarantees.

It begins with an opening, which may have to recover what an earlier workload left, and ends with a close or
without one.
"""

import contextlib
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import kstore
from kstore.testing import Recorder, Trace
from tests.crash_states.expected import Book, Expected, number_of
from tests.helpers.key_files import remember, settle
from tests.helpers.markers import marker, transactional

TIME = 1_700_000_000_000
OPERATIONS = {  # with how often each is chosen
    "append": 6,
    "extend": 5,
    "append_batch": 3,
    "transaction": 3,
    "end_transaction": 4,
    "roll": 2,
    "flush": 3,
    "retain": 2,
    "delete_records": 2,
    "truncate": 4,
    "regrow": 1,
    "start_anew": 1,
    "adopt": 2,
    "reopen": 1,
    "die_and_reopen": 2,
    "wait": 1,
    "make_key_files": 3,
    "configure": 1,
}


@dataclass(frozen=True)
class Setting:
    """How a log is opened. `partition`: "log", or "t-0" in a log directory, which has its checkpoints.
    `slow_disk`: the threads in the background get nothing done."""

    durability: str = "none"
    partition: str = "log"
    file_delete_delay_ms: int = 0
    preallocate: bool = False
    flush_messages: int = 0
    compression_type: str = "producer"
    segment_bytes: int = 1500
    retention_ms: int = -1
    slow_disk: bool = False

    @classmethod
    def chosen(cls, rng: random.Random) -> "Setting":
        return cls(
            durability=rng.choice(("none", "group", "each")),
            partition=rng.choice(("log", "t-0")),
            file_delete_delay_ms=rng.choice((0, 0, 60_000)),
            preallocate=rng.random() < 0.2,
            flush_messages=rng.choice((0, 0, 5)),
            compression_type=rng.choice(("producer", "producer", "lz4")),
            segment_bytes=rng.choice((700, 1500)),
            retention_ms=rng.choice((-1, -1, 1)),  # 1: every record is old enough to be deleted
            slow_disk=rng.random() < 0.5,
        )

    def open(self, root: Path) -> kstore.LogWriter:
        """Opens the log for writing; creates it if it is missing."""
        more = {"flush_messages": self.flush_messages} if self.flush_messages else {}
        return kstore.open(
            root / self.partition,
            "a",
            durability=self.durability,
            internal_segment_bytes=self.segment_bytes,
            segment_index_bytes=256,
            index_interval_bytes=100,
            segment_jitter_ms=0,
            file_delete_delay_ms=self.file_delete_delay_ms,
            retention_bytes=4000,
            retention_ms=self.retention_ms,
            preallocate=self.preallocate,
            compression_type=self.compression_type,
            message_timestamp_before_max_ms=2**63 - 1,
            producer_id_expiration_ms=2**62,
            **more,
        )

    def prepare(self, root: Path) -> None:
        """Makes what is there before the first opening."""
        if self.partition != "log":
            (root / "meta.properties").write_text("version=1\nbroker.id=1\n")


class Marks(Protocol):
    """Takes what is expected at each moment: a Recorder, or a pipe to another process."""

    def mark(self, value: object) -> None: ...


def time_of(value: bytes) -> int:
    """The timestamp of a record, later than those before it."""
    return TIME + number_of(value)


def key_of(value: bytes) -> bytes:
    """One of a few keys, so that most of them come again."""
    return b"key-%d" % (number_of(value) % 7)


class Workload:
    """Runs in `root`, and marks what is expected around each operation. `book` is of earlier workloads."""

    log: kstore.LogWriter

    def __init__(self, root: Path, marks: Marks, book: Book, rng: random.Random, setting: Setting) -> None:
        self.root = root
        self.marks = marks
        self.book = book
        self.rng = rng
        self.setting = setting
        self.is_open = False
        self.open_transactions: dict[int, int] = {}  # producer id -> first offset
        self.ended: dict[int, tuple[int, int]] = {}  # producer id -> first offset, offset of the marker
        self.count = 0
        self._may_run = threading.Event()  # of threads in the background

    # ---- what is known -------------------------------------------------------------------------------------

    def shown(self) -> dict[int, int]:
        """The number of each record in the log, by offset; a reader that opens it now must see the same."""
        shown = {record.offset: number_of(record.value) for record in self.log}
        with kstore.open(self.root / self.setting.partition) as reader:
            assert {record.offset: number_of(record.value) for record in reader} == shown
        return shown

    def mark(self) -> None:
        self.marks.mark(self.book.now)

    def begin(self, doing: str, **withdrawn: int | None) -> None:
        """Marks that an operation begins."""
        self.count += 1
        self.book.begin(f"{self.count} {doing}", **withdrawn)  # type: ignore[arg-type]
        self.mark()

    def end(self, *, durable: int | None = None) -> None:
        """Marks that the operation has returned: all below `durable`, or what the log reports, is on disk."""
        below = self.log.durable_offset if durable is None else max(durable, self.log.durable_offset)
        self.book.durable(self.shown(), below)
        self.book.change(doing=f"after {self.book.now.doing}")
        self.mark()

    def end_append(self) -> None:
        self.end(durable=None if self.setting.durability == "none" else self.log.log_end_offset)

    # ---- beginning and ending ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _threads_held(self) -> Iterator[None]:
        """Threads that begin from here on wait before their first function until the workload continues."""

        def wait(*_: object) -> None:
            self._may_run.wait()
            sys.setprofile(None)

        threading.setprofile(wait)
        try:
            yield
        finally:
            self._may_run.set()
            threading.setprofile(None)

    def run(self, done: Callable[[int], bool]) -> None:
        """Opens the log and tries random operations until `done` of their count; mostly closes it."""
        with contextlib.ExitStack() as stack:
            if self.setting.slow_disk:
                stack.enter_context(self._threads_held())
            self.mark()
            self.open()
            stack.callback(lambda: self.log.abandon())  # the last one that was opened
            steps = 0
            while not done(steps):
                self.step()
                steps += 1
            if self.rng.random() < 0.5:
                self.close()

    def step(self) -> None:
        """Some operation."""
        getattr(self, self.rng.choices(list(OPERATIONS), list(OPERATIONS.values()))[0])()

    def open(self) -> None:
        """Opens the log, which recovers what is there."""
        self.begin(f"open {self.setting.durability}")
        self._may_run.clear()
        self.log = self.setting.open(self.root)
        self.book.truncated(self.log.log_end_offset)
        self.open_transactions.clear()
        self.ended.clear()
        for batch in self.log.batches():
            if batch.producer_id >= 0 and batch.is_control:
                first = self.open_transactions.pop(batch.producer_id, None)
                if first is not None:
                    self.ended[batch.producer_id] = (first, batch.base_offset)
            elif batch.is_transactional:
                self.open_transactions.setdefault(batch.producer_id, batch.base_offset)
        self.end()

    def close(self) -> None:
        shown, start, end = self.shown(), self.log.log_start_offset, self.log.log_end_offset
        self.begin("close")
        self._may_run.set()
        self.log.close()
        self.book.remove(below=start)
        self.book.start(start)
        self.book.change(end_least=end)
        self.book.durable(shown, end)
        self.book.change(doing=f"after {self.book.now.doing}")
        self.mark()

    def reopen(self) -> None:
        self.close()
        self.open()

    def die_and_reopen(self) -> None:
        """The process dies: what it wrote is in the page cache, and no more is guaranteed than before."""
        self.begin("kill")
        self.log.abandon()
        self._may_run.set()
        self.setting = replace(self.setting, durability=self.rng.choice(("none", "group", "each")))
        self.open()

    # ---- appending -----------------------------------------------------------------------------------------

    def append(self) -> None:
        (value,) = self.book.next_values(1, self.log.log_end_offset, self.rng.choice((10, 40, 300)))
        self.begin("append")
        self.log.append(value, key_of(value), timestamp=time_of(value))
        self.end_append()

    def extend(self) -> None:
        values = self.book.next_values(self.rng.randrange(1, 30), self.log.log_end_offset)
        self.begin(f"extend {len(values)}")
        self._extend(self.log, values, self.rng.choice((150, 300, 700)))
        self.end_append()

    def _extend(self, log: kstore.LogWriter, values: list[bytes], batch_bytes: int) -> None:
        keys, times = [key_of(value) for value in values], [time_of(value) for value in values]
        log.extend(values, keys, timestamps=times, batch_bytes=batch_bytes)

    def append_batch(self) -> None:
        values = self.book.next_values(self.rng.randrange(1, 6), self.log.log_end_offset)
        self.begin(f"append_batches {len(values)}")
        self.log.append_batches(
            kstore.encode_batch([(time_of(value), key_of(value), value, None) for value in values])
        )
        self.end_append()

    def transaction(self, count: int = 0) -> None:
        """A batch of a new transaction."""
        first = self.log.log_end_offset
        values = self.book.next_values(count or self.rng.randrange(1, 4), first)
        producer = max(self.book.now.written) * 10
        records = [(time_of(value), key_of(value), value, None) for value in values]
        batch = transactional(*records, producer=producer)
        self.begin(f"transactional batch of {producer}")
        self.log.append_batches(batch)
        self.open_transactions[producer] = first
        self.end_append()

    def end_transaction(self) -> None:
        if not self.open_transactions:
            return self.transaction()
        producer = self.rng.choice(list(self.open_transactions))
        kind = self.rng.choice(("ABORT", "ABORT", "COMMIT"))
        at = self.log.log_end_offset
        self.begin(f"{kind.lower()} {producer}")
        self.log.append_batches(marker(kind, producer, TIME), origin="coordinator", transaction_version=0)
        self.ended[producer] = (self.open_transactions.pop(producer), at)
        self.end_append()

    def adopt(self) -> None:
        base = self.log.log_end_offset
        values = self.book.next_values(self.rng.randrange(1, 8), base)
        self.begin(f"adopt {len(values)}")
        with kstore.open(
            self.root / "staged" / str(self.book.number), "a", segment_index_bytes=256
        ) as staged:
            self._extend(staged, values, 200)
            path = staged.segments[-1].path
        self.log.adopt(path)
        self.end(durable=base)

    # ---- rolling, flushing, deleting -----------------------------------------------------------------------

    def roll(self) -> None:
        self.begin("roll")
        self.log.roll()
        self.end()

    def flush(self) -> None:
        self.begin("flush")
        durable = self.log.flush()
        self.book.change(end_least=durable)
        self.end(durable=durable)

    def wait(self) -> None:
        """Waits until the sealed segments are synced in the background."""
        self.begin("wait")
        self._may_run.set()
        until = time.monotonic() + 60
        while self.log.durable_offset < self.log.segments[-1].base_offset and time.monotonic() < until:
            time.sleep(0.001)
        self.end()

    def make_key_files(self) -> None:
        self.begin("make_key_files")
        self.log.make_key_files()
        remember(Path(self.log.path))
        self.end()

    def configure(self) -> None:
        """Changes an option that no opening sets: the value that is kept in the directory counts."""
        number = self.rng.choice((None, *range(1000, 1005)))
        self.book.change(kept=(self.book.now.kept[-1], number))
        self.begin(f"configure delete_retention_ms={number}")
        self.log.configure(delete_retention_ms=number)
        self.book.change(kept=(number,))
        self.end()

    def retain(self) -> None:
        deleted = sum(decision.delete for decision in self.log.retain(dry_run=True))
        bases = [segment.base_offset for segment in self.log.segments] + [self.log.log_end_offset]
        start = bases[deleted] if deleted else self.log.log_start_offset
        self.begin(f"retain to {start}", start_most=start, from_=start)
        self.log.retain()
        self.end()

    def delete_records(self) -> None:
        offset = self.rng.randint(self.log.log_start_offset, self.log.log_end_offset)
        self.begin(f"delete_records {offset}", start_most=offset)
        start = self.log.delete_records(offset)
        self.book.remove(below=start)
        self.book.start(start)
        self.end()

    # ---- truncating ----------------------------------------------------------------------------------------

    def truncate(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        low = self.rng.choice((max(start - 5, 0), max(start, end - 12), max(start, end - 12)))
        offset = self.rng.randint(low, end)
        self.book.jump(offset)
        # Below the first segment all of them are deleted, and for a moment the log is those that are left.
        all_go = offset < self.log.segments[0].base_offset
        self.begin(f"truncate_to {offset}", below=offset, start_least=offset, start_most=end if all_go else 0)
        if self.log.truncate_to(offset):
            self._truncated(offset)
            self.book.start(self.log.log_start_offset)
        self.end()

    def _truncated(self, offset: int) -> None:
        self.book.remove(from_=offset)
        self.book.truncated(offset)
        self.open_transactions |= {p: first for p, (first, at) in self.ended.items() if at >= offset}
        self.open_transactions = {p: first for p, first in self.open_transactions.items() if first < offset}
        self.ended = {p: (first, at) for p, (first, at) in self.ended.items() if at < offset}

    def regrow(self) -> None:
        """Truncates, and appends as much by another producer: an end stored before must not count."""
        end = self.log.log_end_offset
        self.reopen()
        self.truncate()
        if 0 < end - self.log.log_end_offset < 12:  # a batch that fits into the smallest segments
            self.transaction(end - self.log.log_end_offset)
        self.reopen()

    def start_anew(self) -> None:
        end = self.log.log_end_offset
        offset = self.rng.choice((end, end + 50, self.log.log_start_offset, self.rng.randint(0, end + 20)))
        self.book.jump(offset)
        self.begin(
            f"truncate_fully_and_start_at {offset}", below=0, start_least=offset, start_most=max(end, offset)
        )
        self.log.truncate_fully_and_start_at(offset)
        self._truncated(0)
        self.book.start(offset)
        self.book.change(end_least=offset)
        self.end()


def record(
    root: Path, seed: str, steps: int, setting: Setting | None = None, before: Expected | None = None
) -> Trace:
    """The record of so many steps in `root`, which holds what a workload with `before` has left."""
    rng = random.Random(seed)
    book = Book(before)
    if setting is None:
        setting = Setting.chosen(rng)
    settle(root)
    if before is None:
        setting.prepare(root)
    for path in (root / setting.partition).glob("*.log"):
        book.jump(int(path.stem))  # a gap that an earlier power cut has left between segments stays
    with Recorder(root) as recorder, warnings.catch_warnings():
        # of sound batches that nothing had made durable
        warnings.simplefilter("ignore", kstore.DataLossWarning)
        Workload(root, recorder, book, rng, setting).run(lambda done: done >= steps)
    recorder.trace.setting = setting
    return recorder.trace
