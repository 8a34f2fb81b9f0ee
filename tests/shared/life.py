"""A process that writes a log beside others, and the journal of what it has done.

Each line of a journal is a JSON list: the time, what it says, and its data. The clock is one for all processes.
    begin OPERATION DATA    a call begins: the records that it may append, or the offset from which it removes
    acked [OFFSET, VALUE]…  it has returned: these records are there
    saw [OFFSET, VALUE]…    it has read these
    done DATA               it has returned
    error TEXT              it has raised what it must not
"""

import json
import os
import random
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import kstore
from kstore.testing import failing
from tests.helpers.markers import marker

OPTIONS = {
    "internal_segment_bytes": 6000,
    "segment_index_bytes": 2000,
    "index_interval_bytes": 200,
    "cleanup_policy": "delete",
    "retention_bytes": 20_000,
    "retention_ms": -1,
    "min_cleanable_dirty_ratio": 0.0,
    "key_files": False,
}
CHANGED = (kstore.OffsetOutOfRangeError, kstore.LogChangedError)  # beside what removes records


class Journal:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, *data: object) -> None:
        line = json.dumps([time.monotonic_ns(), what, *data]) + "\n"
        os.write(self._fd, line.encode())


def now_ms() -> int:
    return time.time_ns() // 1_000_000  # producers whose records are old are forgotten


class Producer:
    """Of one process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sequence = 0

    def begin_anew(self) -> None:
        self.number += 1000
        self.sequence = 0

    def encode(self, life: "Life", values: list[bytes], *, transactional: bool = False) -> bytes:
        return kstore.encode_batch(
            [(now_ms(), life.key(), value, None) for value in values],
            producer_id=self.number,
            producer_epoch=0,
            base_sequence=self.sequence,
            transactional=transactional,
        )


class Life:
    """Of one process. `name` is one of its own."""

    def __init__(self, directory: Path, journal: Journal, name: int, seed: str) -> None:
        self.directory = directory
        self.journal = journal
        self.name = name
        self.rng = random.Random(seed)
        self.count = 0
        self.idempotent = Producer(name)
        self.transactional = Producer(1_000_000 + name)
        self.last_batch = b""
        self.is_forgotten = False  # perhaps: what producers have appended, because it was removed
        self.log: kstore.LogWriter

    def run(self, operations: list[str], openings: int, calls: int) -> None:
        """Opens the log so often, and makes up to so many calls each time."""
        self.is_forgotten = not {"truncate", "delete_records"}.isdisjoint(operations)
        for _ in range(openings):
            durability = self.rng.choice(["none", "none", "group"])
            options = {**OPTIONS, "cleanup_policy": "compact,delete" if "compact" in operations else "delete"}
            with kstore.open(self.directory, "a", shared=True, durability=durability, **options) as self.log:  # type: ignore[arg-type]
                for _ in range(self.rng.randint(1, calls)):
                    OPERATIONS[self.rng.choice(operations)](self)

    def values(self, count: int) -> list[bytes]:
        first = self.count
        self.count += count
        return [
            b"%d-%d-%s" % (self.name, n, b"." * self.rng.choice([0, 0, 20, 300]))
            for n in range(first, self.count)
        ]

    def acked(self, first: int, values: list[bytes]) -> None:
        self.journal.write("acked", *([first + n, value.decode()] for n, value in enumerate(values)))

    def key(self) -> bytes:
        return b"k%d" % self.rng.randrange(9)


def _begin(life: Life, operation: str, values: list[bytes]) -> None:
    life.journal.write("begin", operation, *(value.decode() for value in values))


def append(life: Life) -> None:
    values = life.values(1)
    _begin(life, "append", values)
    life.acked(life.log.append(values[0], life.key()), values)


def extend(life: Life) -> None:
    values = life.values(life.rng.randint(1, 60))
    _begin(life, "extend", values)
    keys = [life.key() for _ in values]
    life.acked(life.log.extend(values, keys, batch_bytes=life.rng.choice([200, 3000])).start, values)


def batch(life: Life) -> None:
    """An idempotent producer."""
    values = life.values(life.rng.randint(1, 5))
    producer = life.idempotent
    encoded = producer.encode(life, values)
    _begin(life, "batch", values)
    try:
        done = life.log.append_batches(encoded)
    except kstore.OutOfOrderSequenceError:
        assert life.is_forgotten
        producer.begin_anew()
        return
    assert not done.duplicate
    producer.sequence += len(values)
    life.last_batch = encoded
    life.acked(done.first_offset, values)


def retry(life: Life) -> None:
    """The producer sends its last batch again."""
    if life.last_batch and not life.is_forgotten:
        life.journal.write("begin", "retry")
        assert life.log.append_batches(life.last_batch).duplicate
        life.journal.write("done")


def transaction(life: Life) -> None:
    values = life.values(life.rng.randint(1, 3))
    producer = life.transactional
    kind = life.rng.choice(["ABORT", "COMMIT"])
    _begin(life, "transaction", values)
    try:
        done = life.log.append_batches(producer.encode(life, values, transactional=True))
    except kstore.OutOfOrderSequenceError:
        assert life.is_forgotten
        producer.begin_anew()
        return
    producer.sequence += len(values)
    life.acked(done.first_offset, values)
    _begin(life, kind, values)
    end = marker(kind, producer.number, now_ms())
    life.log.append_batches(end, origin="coordinator", transaction_version=0)
    life.journal.write("done")


def read(life: Life) -> None:
    try:
        start, end = life.log.log_start_offset, life.log.log_end_offset
        if start < end:
            record = life.log.get(life.rng.randrange(start, end))
            if record is not None and record.value is not None:
                life.journal.write("saw", [record.offset, record.value.decode()])
    except CHANGED:
        pass


def scan(life: Life) -> None:
    try:
        view = life.log.view()
        found = [[record.offset, record.value.decode()] for record in view if record.value is not None]
    except CHANGED:
        return
    offsets = [offset for offset, _ in found]
    assert offsets == sorted(set(offsets))
    life.journal.write("saw", *found[-20:])


def roll(life: Life) -> None:
    life.log.roll()


def flush(life: Life) -> None:
    end = life.log.log_end_offset
    life.journal.write("begin", "flush")
    flushed = life.log.flush()
    life.journal.write("done", min(end, flushed))


def configure(life: Life) -> None:
    life.log.configure(
        index_interval_bytes=life.rng.choice([100, 200, 4096]),
        internal_segment_bytes=life.rng.choice([5000, 6000, 9000]),
    )


def delete_records(life: Life) -> None:
    start, end = life.log.log_start_offset, life.log.log_end_offset
    offset = min(start + life.rng.randint(0, 30), end)
    life.journal.write("begin", "delete", offset)
    try:
        life.log.delete_records(offset)
    except kstore.OffsetOutOfRangeError:  # it was truncated meanwhile
        life.journal.write("done")


def retain(life: Life) -> None:
    life.journal.write("begin", "delete", life.log.log_end_offset)
    life.log.retain()


def truncate(life: Life) -> None:
    offset = max(life.log.log_end_offset - life.rng.randint(0, 40), 0)
    life.journal.write("begin", "truncate", offset)
    life.log.truncate_to(offset)
    life.journal.write("done")


def compact(life: Life) -> None:
    life.journal.write("begin", "compact")
    try:
        life.log.compact()
    except kstore.LogChangedError:
        life.journal.write("done")


def commit(life: Life) -> None:
    """A group of its own commits one record more."""
    with life.log.cursor(f"g{life.name}") as cursor:
        try:
            record = next(iter(cursor), None)
        except CHANGED:
            return
        if record is not None:
            cursor.commit(record)
            life.journal.write("committed", record.offset)


OPERATIONS: dict[str, Callable[[Life], None]] = {
    made.__name__: made
    for made in (
        append, extend, batch, retry, transaction, read, scan, roll, flush, configure, delete_records, retain,
        truncate, compact, commit,
    )
}  # fmt: skip


def live(
    directory: Path,
    journals: Path,
    name: int,
    seed: str,
    operations: list[str],
    *,
    openings: int = 2,
    calls: int = 40,
    dies_at: int = 0,
    how: str = "kill",
) -> None:
    """Lives, and dies at this system call on files, if it makes so many."""
    journal = Journal(journals / f"{name}.journal")
    try:
        life = Life(directory, journal, name, seed)
        if not dies_at:
            life.run(operations, openings, calls)
            return
        with failing(dies_at, how=how):
            life.run(operations, openings, calls)
    except BaseException:
        journal.write("error", traceback.format_exc())
        raise
