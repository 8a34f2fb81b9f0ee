"""A writer's life: random operations on one partition, with what each of them promises.

A life begins with an opening, which may have to recover what an earlier life left, and ends with a close or without one.
"""

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import kstore
from kstore.testing.recorder import Recorder, Trace
from tests.crash_states.promises import Promise, Promises, number_of
from tests.helpers.key_files import remember, settle
from tests.helpers.markers import marker

TIME = 1_700_000_000_000
STAGING = "staged"


@dataclass(frozen=True)
class Setting:
    """How a log is opened."""

    durability: str = "none"
    partition: str = (
        "log"  # "t-0" beside a meta.properties: in a log directory, with its checkpoints in there
    )
    file_delete_delay_ms: int = 0
    preallocate: bool = False
    flush_messages: int = 0
    compression_type: str = "producer"
    segment_bytes: int = 1500
    retention_ms: int = -1
    slow_disk: bool = False  # so slow that the background has synced nothing when the process dies

    def open(self, root: Path) -> kstore.LogWriter:
        """Opens it for writing; made if it is missing."""
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
        """What is there before the first opening."""
        if self.partition != "log":
            (root / "meta.properties").write_text("version=1\nbroker.id=1\n")


def time_of(value: bytes) -> int:
    """When a record was made: later than those before it."""
    return TIME + number_of(value)


def key_of(value: bytes) -> bytes:
    """One of a few, so that most keys come again."""
    return b"key-%d" % (number_of(value) % 7)


class Life:
    """Lives in `root`, recorded. `promises` go on from the lives before."""

    def __init__(
        self, root: Path, recorder: Recorder, promises: Promises, rng: random.Random, setting: Setting
    ) -> None:
        self.root = root
        self.recorder = recorder
        self.promises = promises
        self.rng = rng
        self.setting = setting
        self.log: kstore.LogWriter | None = None
        self.open_transactions: dict[int, int] = {}  # producer id -> first offset
        self.ended: dict[int, tuple[int, int]] = {}  # producer id -> first offset, that of the marker
        self.done: list[str] = []

    # ---- what is known ------------------------------------------------------------------------------------------

    def shown(self) -> dict[int, int]:
        """What the log shows, by offset."""
        assert self.log is not None
        return {record.offset: number_of(record.value) for record in self.log}

    def begin(self, doing: str, **withdrawn: int | None) -> None:
        """Marks that an operation begins."""
        self.done.append(doing)
        self.promises.begin(f"{len(self.done)} {doing}", **withdrawn)  # type: ignore[arg-type]
        self.mark()

    def end(self, *, durable: int | None = None) -> None:
        """Marks that it has returned; everything below `durable` is on the disk, or what the log says."""
        assert self.log is not None
        below = self.log.durable_offset if durable is None else max(durable, self.log.durable_offset)
        shown = self.shown()
        self._look_beside(shown)
        self.promises.durable(shown, below)
        self.promises.idle()
        self.mark()

    def _look_beside(self, shown: dict[int, int]) -> None:
        """Who opens it for reading now sees what the writer does."""
        with kstore.open(self.root / self.setting.partition) as beside:
            assert {record.offset: number_of(record.value) for record in beside} == shown

    def mark(self) -> None:
        self.recorder.mark(self.promises.now)

    @property
    def acknowledged(self) -> int | None:
        """Where durability of appends reaches once one has returned."""
        assert self.log is not None
        return None if self.setting.durability == "none" else self.log.log_end_offset

    # ---- beginning and ending -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Opens the log, which recovers what is there."""
        self.begin(f"open {self.setting.durability}")
        self.log = self.setting.open(self.root)
        if self.setting.slow_disk:
            self.log._flusher.sealed = lambda: None
        self.promises.cut(self.log.log_end_offset)
        self._look_round()
        self.end()

    def _look_round(self) -> None:
        assert self.log is not None
        self.open_transactions.clear()
        self.ended.clear()
        for batch in self.log.batches():
            if batch.producer_id >= 0 and batch.is_control:
                first = self.open_transactions.pop(batch.producer_id, None)
                if first is not None:
                    self.ended[batch.producer_id] = (first, batch.base_offset)
            elif batch.is_transactional:
                self.open_transactions.setdefault(batch.producer_id, batch.base_offset)

    def close(self) -> None:
        """Closes the log."""
        assert self.log is not None
        log = self.log
        shown, start, end = self.shown(), log.log_start_offset, log.log_end_offset
        self.begin("close")
        log.close()
        self.log = None
        self.promises.remove(below=start)
        self.promises.bounds(start=start, end=end)
        self.promises.durable(shown, end)
        self.promises.idle()
        self.mark()

    def kill(self) -> None:
        """The process dies: what it wrote is in the page cache, and nobody has promised more than before."""
        assert self.log is not None
        self.begin("kill")
        self.log.abandon()
        self.log = None

    # ---- operations ---------------------------------------------------------------------------------------------

    def append(self) -> None:
        log = self.log
        (value,) = self.promises.next_values(1, log.log_end_offset, self.rng.choice((10, 40, 300)))
        self.begin("append")
        log.append(value, key_of(value), timestamp=time_of(value))
        self.end(durable=self.acknowledged)

    def extend(self) -> None:
        log = self.log
        values = self.promises.next_values(self.rng.randrange(1, 30), log.log_end_offset)
        self.begin(f"extend {len(values)}")
        log.extend(
            values,
            [key_of(value) for value in values],
            timestamps=[time_of(value) for value in values],
            batch_bytes=self.rng.choice((150, 300, 700)),
        )
        self.end(durable=self.acknowledged)

    def append_batch(self) -> None:
        log = self.log
        values = self.promises.next_values(self.rng.randrange(1, 6), log.log_end_offset)
        self.begin(f"append_batches {len(values)}")
        log.append_batches(
            kstore.encode_batch([(time_of(value), key_of(value), value, None) for value in values])
        )
        self.end(durable=self.acknowledged)

    def transaction(self, count: int = 0) -> None:
        """A batch of a new transaction."""
        log = self.log
        first = log.log_end_offset
        values = self.promises.next_values(count or self.rng.randrange(1, 4), first)
        producer = max(self.promises.now.written) * 10
        batch = kstore.encode_batch(
            [(time_of(value), key_of(value), value, None) for value in values],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        self.begin(f"transactional batch of {producer}")
        log.append_batches(batch)
        self.open_transactions[producer] = first
        self.end(durable=self.acknowledged)

    def end_transaction(self) -> None:
        log = self.log
        if not self.open_transactions:
            return self.transaction()
        producer = self.rng.choice(list(self.open_transactions))
        kind = self.rng.choice(("ABORT", "ABORT", "COMMIT"))
        at = log.log_end_offset
        self.begin(f"{kind.lower()} {producer}")
        log.append_batches(marker(kind, producer, TIME), origin="coordinator", transaction_version=0)
        self.ended[producer] = (self.open_transactions.pop(producer), at)
        self.end(durable=self.acknowledged)

    def roll(self) -> None:
        self.begin("roll")
        self.log.roll()
        self.end()

    def flush(self) -> None:
        self.begin("flush")
        durable = self.log.flush()
        self.promises.bounds(end=durable)
        self.end(durable=durable)

    def retain(self) -> None:
        log = self.log
        decisions = [d for d in log.retain(dry_run=True) if d.delete]
        bases = [s.base_offset for s in log.segments] + [log.log_end_offset]
        to = bases[len(decisions)] if decisions else log.log_start_offset
        self.begin(f"retain to {to}", start_most=to, from_=to)
        log.retain()
        self.end()

    def delete_records(self) -> None:
        log = self.log
        offset = self.rng.randint(log.log_start_offset, log.log_end_offset)
        self.begin(f"delete_records {offset}", start_most=offset)
        start = log.delete_records(offset)
        self.promises.remove(below=start)
        self.promises.bounds(start=start)
        self.end()

    def _rest(self, offset: int) -> tuple[int, int]:
        """What a truncation to an offset leaves for certain: records below the first of these offsets (the batch that has
        it goes as a whole), and a log that ends at the second or later (nothing else tells of a gap)."""
        end = self.log.segments[0].base_offset
        for segment in self.log.segments:  # also what lies below the log start
            headers = segment.read_headers()
            for first, last in zip(
                headers["base_offset"].tolist(), headers["last_offset"].tolist(), strict=True
            ):
                if first <= offset <= last:
                    return first, min(first, end)
                if last < offset:
                    end = last + 1
        return offset, min(offset, end)

    def truncate(self) -> None:
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        low = self.rng.choice((max(start - 5, 0), max(start, end - 12), max(start, end - 12)))
        offset = self.rng.randint(low, end)
        rest, told = self._rest(offset)
        self.promises.jump(offset)
        # below the first segment all of them go, and whichever is left for a moment is the log
        all_go = offset < log.segments[0].base_offset
        self.begin(
            f"truncate_to {offset}",
            below=rest,
            start_least=offset,
            start_most=end if all_go else 0,
            end_least=told,
        )
        if log.truncate_to(offset):
            self.promises.remove(from_=rest)
            self.promises.cut(rest)
            self._forget(rest)
            self.promises.bounds(start=log.log_start_offset)
        self.end()

    def _forget(self, offset: int) -> None:
        """Transactions after a truncation."""
        for producer, (first, at) in list(self.ended.items()):
            if at >= offset:
                del self.ended[producer]
                self.open_transactions[producer] = first
        self.open_transactions = {p: first for p, first in self.open_transactions.items() if first < offset}

    def regrow(self) -> None:
        """Truncates, and writes as much by another producer: what told of this end before must not count any more."""
        end = self.log.log_end_offset
        self.reopen()
        self.truncate()
        if 0 < end - self.log.log_end_offset < 12:  # a batch that fits into the smallest segments
            self.transaction(end - self.log.log_end_offset)
        self.reopen()

    def start_anew(self) -> None:
        log = self.log
        end = log.log_end_offset
        offset = self.rng.choice((end, end + 50, log.log_start_offset, self.rng.randint(0, end + 20)))
        self.promises.jump(offset)
        self.begin(
            f"truncate_fully_and_start_at {offset}", below=0, start_least=offset, start_most=max(end, offset)
        )
        log.truncate_fully_and_start_at(offset)
        self.promises.remove(from_=0)
        self.promises.cut(0)
        self._forget(0)
        self.promises.bounds(start=offset, end=offset)
        self.end()

    def adopt(self) -> None:
        log = self.log
        base = log.log_end_offset
        values = self.promises.next_values(self.rng.randrange(1, 8), base)
        self.begin(f"adopt {len(values)}")
        source = self.root / STAGING / str(self.promises.number)
        with kstore.open(source, "a", segment_index_bytes=256) as staged:
            staged.extend(
                values,
                [key_of(value) for value in values],
                timestamps=[time_of(value) for value in values],
                batch_bytes=200,
            )
            path = staged.segments[-1].path
        log.adopt(path)
        self.promises.durable(self.shown(), base)
        self.end()

    def reopen(self) -> None:
        self.close()
        self.open()

    def die_and_reopen(self) -> None:
        self.kill()
        self.setting = replace(self.setting, durability=self.rng.choice(("none", "group", "each")))
        self.open()

    def wait(self) -> None:
        """Waits until the background has synced what it wants to."""
        self.begin("wait")
        self.log._sync_sealed()
        self.end()

    def make_key_files(self) -> None:
        self.begin("make_key_files")
        self.log.make_key_files()
        remember(Path(self.log.path))
        self.end()

    def configure(self) -> None:
        """An option that nobody gives at an opening: the one that is kept counts."""
        number = self.rng.choice((None, *range(1000, 1005)))
        known = self.promises.now.kept
        self.promises.keep(known[-1], number)
        self.begin(f"configure delete_retention_ms={number}")
        self.log.configure(delete_retention_ms=number)
        self.promises.keep(number)
        self.end()

    def step(self) -> None:
        """Some operation."""
        names = list(OPERATIONS)
        name = self.rng.choices(names, [OPERATIONS[n] for n in names])[0]
        operation: Callable[[], None] = getattr(self, name)
        operation()


OPERATIONS = {
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


def setting_of(rng: random.Random) -> Setting:
    """Some way to open a log."""
    return Setting(
        durability=rng.choice(("none", "group", "each")),
        partition=rng.choice(("log", "t-0")),
        file_delete_delay_ms=rng.choice((0, 0, 60_000)),
        preallocate=rng.random() < 0.2,
        flush_messages=rng.choice((0, 0, 5)),
        compression_type=rng.choice(("producer", "producer", "lz4")),
        segment_bytes=rng.choice((700, 1500)),
        retention_ms=rng.choice((-1, -1, 1)),  # 1: every record is old enough to go
        slow_disk=rng.random() < 0.5,
    )


def live(
    root: Path,
    seed: str,
    steps: int,
    setting: Setting | None = None,
    before: Promise | None = None,
    calls: int = 0,
) -> Trace:
    """A life in `root`, which holds what lives before have left with the promises `before`; its record. It has so many
    steps, and then more until it has made so many calls."""
    rng = random.Random(seed)
    promises = Promises(before)
    if setting is None:
        setting = setting_of(rng)
    settle(root)
    if before is None:
        setting.prepare(root)
    for path in (root / setting.partition).glob("*.log"):
        promises.jump(int(path.stem))  # a hole that an earlier power cut has left between segments stays
    with Recorder(root) as recorder, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", kstore.DataLossWarning
        )  # of sound batches behind a hole, which nobody promised
        life = Life(root, recorder, promises, rng, setting)
        try:
            life.mark()
            life.open()
            while steps > 0 or len(recorder.trace.calls) < calls:
                life.step()
                steps -= 1
            if rng.random() < 0.5:
                life.close()
        finally:
            if life.log is not None:
                life.log.abandon()
    recorder.trace.setting = setting
    return recorder.trace
