"""Logs of many shapes, written by kstore: what each is called, its configuration, and what is done to it."""

import itertools
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kstore
from tests.helpers.markers import marker
from tests.kafka.jvm import NOW

SMALL = {"internal_segment_bytes": 4096, "index_interval_bytes": 256}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Clock:
    """Stands still until told to move."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


Steps = Callable[[kstore.LogWriter, Clock, random.Random], None]


@dataclass(frozen=True)
class Shape:
    name: str
    config: kstore.LogConfig
    steps: tuple[Steps, ...]  # each in an opening of its own
    leader_epoch: int | None = None

    def __str__(self) -> str:
        return self.name

    def write(self, directory: Path, *, stop: str = "close") -> None:
        """Does all of it; `stop`: close or abandon, the last time."""
        clock, rnd = Clock(), random.Random(self.name)
        for at, step in enumerate(self.steps, 1):
            log = kstore.open(directory, "a", config=self.config, clock=clock, leader_epoch=self.leader_epoch)
            step(log, clock, rnd)
            getattr(log, stop if at == len(self.steps) else "close")()
            clock.now += 1000


SHAPES: dict[str, Shape] = {}


def shape(**config: Any) -> Callable[[Steps], Steps]:
    """Makes a shape of a function, under its name."""

    def named(steps: Steps) -> Steps:
        name = steps.__name__
        SHAPES[name] = Shape(name, kstore.LogConfig(**config), (steps,))
        return steps

    return named


def reopened(name: str, *names: str, **config: Any) -> None:
    """A shape of several, each in an opening of its own."""
    steps = tuple(SHAPES[n].steps[0] for n in names)
    SHAPES[name] = Shape(name, kstore.LogConfig(**config), steps)


def values(rnd: random.Random, count: int, most: int = 120) -> list[bytes]:
    return [rnd.randbytes(rnd.randrange(8)) * rnd.randrange(1, most // 8) for _ in range(count)]


def encoded(rnd: random.Random, count: int, *, at: int = NOW, **options: Any) -> bytes:
    """A batch of `count` records near that time."""
    records = [(at + rnd.randrange(-500, 500), rnd.randbytes(4), v, None) for v in values(rnd, count)]
    return kstore.encode_batch(records, **options)


@shape()
def empty(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    pass


@shape()
def one_record(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    log.append(b"alone")


@shape()
def single_records(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for value in values(rnd, 300):
        clock.now += 7
        log.append(value, rnd.choice([None, b"", b"key"]))


@shape(**SMALL)
def segments(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for _ in range(40):
        clock.now += 100
        log.extend(values(rnd, 20), batch_bytes=rnd.choice([0, 300, 1000]))


@shape(**SMALL)
def segments_of_single_records(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for value in values(rnd, 400):
        clock.now += rnd.randrange(3)
        log.append(value)


@shape(**SMALL)
def adopted(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    """Files of another log, taken over between appends."""
    for _ in range(3):
        log.extend(values(rnd, 30), batch_bytes=300)
        with tempfile.TemporaryDirectory(dir=Path(log.path).parents[1]) as directory:
            with kstore.open(Path(directory, "t-0"), "a", config=log.config, clock=clock) as other:
                other.extend(values(rnd, 80), batch_bytes=rnd.choice([0, 500]))
            for path in sorted(Path(directory, "t-0").glob("*.log")):
                log.adopt(path)


@shape(segment_index_bytes=48, index_interval_bytes=0)
def tiny_indexes(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for value in values(rnd, 60):
        clock.now += 5
        log.append(value)


@shape(segment_ms=1000, index_interval_bytes=100)
def rolls_by_time(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for _ in range(60):
        clock.now += rnd.choice([1, 100, 400, 1500])
        log.extend(values(rnd, 5), timestamps=[clock.now - rnd.randrange(3000) for _ in range(5)])


@shape(segment_ms=1000, segment_jitter_ms=500)
def rolls_with_jitter(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for _ in range(60):
        clock.now += 200
        log.append(b"v")


@shape()
def headers_and_nulls(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    log.append(None)
    log.append(None, b"tombstone")
    log.append(b"", b"")
    log.append(b"v", headers=[("a", b"1"), ("a", None), ("", b""), ("żółw", bytes(300))])
    log.append(bytes(70_000), headers={"one": b"1"})
    log.extend([None, b"x", b""], [b"k", None, b""], headers=[("all", b"h")])
    log.extend([b"1", b"2"], headers=[[("first", None)], []])


@shape(index_interval_bytes=200, message_timestamp_after_max_ms=10**15)
def odd_timestamps(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for _ in range(100):
        stamps = [rnd.choice([-1, 0, 1, NOW - 10**6, NOW + rnd.randrange(10**6)]) for _ in range(6)]
        log.extend(values(rnd, 6), timestamps=stamps, batch_bytes=200)
    log.append(b"far", timestamp=NOW + 10**12)
    log.append(b"back", timestamp=-1)


@shape(**SMALL)
def no_timestamps(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    log.extend(values(rnd, 400), timestamps=-1, batch_bytes=300)


@shape(message_timestamp_type="LogAppendTime", **SMALL)
def log_append_time(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for codec in CODECS * 4:
        clock.now += 13
        log.append(b"a", timestamp=5)
        log.extend(values(rnd, 20), timestamps=list(range(20)), batch_bytes=400)
        log.append_batches(encoded(rnd, 10, codec=codec))


@shape(message_timestamp_type="LogAppendTime", compression_type="lz4")
def log_append_time_packed(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    log_append_time(log, clock, rnd)


def _packed(codec: str, **levels: int) -> None:
    def steps(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
        log.append(b"alone" * 50)
        log.append(rnd.randbytes(100), b"k", headers={"h": b"1"})
        log.extend(values(rnd, 300), [b"%d" % i for i in range(300)], batch_bytes=4000)
        log.extend([rnd.randbytes(3000) for _ in range(50)])
        log.extend([b"x" * 1_000_000])
        for other in CODECS:
            log.append_batches(encoded(rnd, 20, codec=other))

    name = f"packed_{codec}"
    SHAPES[name] = Shape(
        name, kstore.LogConfig(compression_type=codec, index_interval_bytes=500, **levels), (steps,)
    )


for _codec in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
    _packed(_codec)


@shape(**SMALL)
def batches_of_all_codecs(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for codec in CODECS * 3:
        log.append_batches(b"".join(encoded(rnd, rnd.randrange(1, 30), codec=codec) for _ in range(3)))


@shape(**SMALL)
def producers(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    sequences = dict.fromkeys((7, 8, 2**40), 0)
    for _ in range(80):
        clock.now += 50
        producer, count = rnd.choice(list(sequences)), rnd.randrange(1, 8)
        log.append_batches(
            encoded(
                rnd,
                count,
                at=clock.now,
                producer_id=producer,
                producer_epoch=3,
                base_sequence=sequences[producer],
            )
        )
        sequences[producer] += count


@shape(**SMALL)
def transactions(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    _transact(log, clock, rnd, 60)


@shape(**SMALL)
def transactions_left_open(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    _transact(log, clock, rnd, 30)
    log.append_batches(encoded(rnd, 3, producer_id=99, producer_epoch=0, base_sequence=0, transactional=True))
    _transact(log, clock, rnd, 30, {21: 0, 22: 0})


def _transact(
    log: kstore.LogWriter,
    clock: Clock,
    rnd: random.Random,
    count: int,
    sequences: dict[int, int] | None = None,
) -> None:
    sequences = sequences or {11: 0, 12: 0, 13: 0}
    running: set[int] = set()
    for _ in range(count):
        clock.now += 20
        producer = rnd.choice(list(sequences))
        if producer in running and rnd.random() < 0.4:
            running.discard(producer)
            log.append_batches(
                marker(rnd.choice(["ABORT", "COMMIT"]), producer, clock.now),
                origin="coordinator",
                transaction_version=1,
            )
        elif rnd.random() < 0.2:
            log.append(b"outside of any")
        else:
            running.add(producer)
            records = rnd.randrange(1, 9)
            log.append_batches(
                encoded(
                    rnd,
                    records,
                    at=clock.now,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequences[producer],
                    transactional=True,
                    codec=rnd.choice(CODECS),
                )
            )
            sequences[producer] += records
    for producer in sorted(running):
        log.append_batches(marker("ABORT", producer, NOW), origin="coordinator", transaction_version=1)


@shape(**SMALL)
def leader_epochs(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for epoch in (0, 1, 4, 5, 9):
        log.assign_leader_epoch(epoch)
        if epoch != 4:
            log.extend(values(rnd, 40), batch_bytes=500)


@shape(**SMALL)
def follower(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    offset = 1000
    for epoch in itertools.chain([0] * 10, [2] * 10, [3] * 10):
        joined = b""
        for _ in range(rnd.randrange(1, 5)):
            count = rnd.randrange(1, 10)
            joined += encoded(rnd, count, base_offset=offset, leader_epoch=epoch, codec=rnd.choice(CODECS))
            offset += count + rnd.choice([0, 0, 5])
        log.append_batches(joined, keep_offsets=True, leader_epoch=epoch)


@shape(index_interval_bytes=100)
def offsets_far_apart(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for offset in (5, 100, 2**31 - 10, 2**31 + 3, 2**31 + 9, 2**33, 2**40, 2**40 + 2**31 - 1):
        log.append_batches(encoded(rnd, 4, base_offset=offset, leader_epoch=0), keep_offsets=True)


@shape(**SMALL)
def deleted_records(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    segments(log, clock, rnd)
    log.delete_records(log.segments[3].base_offset + 7)
    log.retain()


@shape()
def deleted_inside_a_batch(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    log.extend(values(rnd, 50))
    log.delete_records(20)


@shape()
def deleted_to_the_end(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    log.extend(values(rnd, 50))
    log.delete_records(-1)


@shape(retention_ms=1000, **SMALL)
def retained_by_time(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for _ in range(40):
        clock.now += 100
        log.extend(values(rnd, 20), batch_bytes=300)
        log.retain()


@shape(retention_ms=1000)
def retained_to_nothing(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    log.extend(values(rnd, 20))
    clock.now += 5000
    log.retain()


@shape(retention_bytes=10_000, **SMALL)
def retained_by_size(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    segments(log, clock, rnd)
    log.retain()


@shape(**SMALL)
def truncated(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    segments(log, clock, rnd)
    log.truncate_to(log.segments[4].base_offset + 5)
    log.extend(values(rnd, 30), batch_bytes=200)


@shape(**SMALL)
def truncated_last(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    segments(log, clock, rnd)
    log.truncate_to(log.segments[4].base_offset)


@shape(**SMALL)
def truncated_transactions(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    _transact(log, clock, rnd, 60)
    log.truncate_to(log.log_end_offset * 2 // 3)
    log.extend(values(rnd, 30), batch_bytes=200)


@shape(**SMALL)
def truncated_fully(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    segments(log, clock, rnd)
    log.truncate_fully_and_start_at(5000)
    log.extend(values(rnd, 30), batch_bytes=200)


@shape(**SMALL)
def truncated_fully_and_left(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    segments(log, clock, rnd)
    log.truncate_fully_and_start_at(5000)


@shape()
def rolled_and_empty(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    log.extend(values(rnd, 20))
    log.roll()


@shape()
def rolled_often(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    for _ in range(5):
        log.roll()
        log.append(b"x")
        log.roll()


@shape(preallocate=True, **SMALL)
def preallocated(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    segments(log, clock, rnd)


@shape(flush_messages=10, **SMALL)
def flushed_often(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    segments(log, clock, rnd)


@shape(cleanup_policy="compact")
def compacted_topic(log: kstore.LogWriter, clock: Clock, rnd: random.Random) -> None:
    log.extend(values(rnd, 200), [b"%d" % (i % 17) for i in range(200)], batch_bytes=1000)


reopened("reopened", "single_records", "empty", "segments", "batches_of_all_codecs", "one_record", **SMALL)
reopened("reopened_after_roll", "rolled_and_empty", "empty", "single_records")
reopened("reopened_transactions", "transactions_left_open", "empty", "segments", **SMALL)
reopened("reopened_after_deletion", "deleted_records", "empty", "single_records", **SMALL)
reopened("reopened_after_truncation", "truncated", "truncated_last", "empty", "segments", **SMALL)
