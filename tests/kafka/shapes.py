"""Logs of many shapes, written by kstore: what each is called, its configuration, and what is done to it.

What test_same_bytes.py draws by lot (appends of batches, rolls, retention, truncations between batches,
crashes) is left to it; these are the other ways to write.
"""

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogWriter as Log
from tests.helpers.clock import Clock
from tests.helpers.markers import marker
from tests.kafka.jvm import NOW

Rnd = random.Random
SMALL = {"internal_segment_bytes": 4096, "index_interval_bytes": 256}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


Steps = Callable[[Log, Clock, Rnd], None]


@dataclass(frozen=True)
class Shape:
    name: str
    config: kstore.LogConfig
    steps: tuple[Steps, ...]  # each in an opening of its own

    def __str__(self) -> str:
        return self.name

    def write(self, directory: Path, *, stop: str = "close") -> None:
        """Does all of it; `stop`: close or abandon, the last time."""
        clock, rnd = Clock(), Rnd(self.name)
        for at, step in enumerate(self.steps, 1):
            log = kstore.open(directory, "a", config=self.config, clock=clock)
            step(log, clock, rnd)
            getattr(log, stop if at == len(self.steps) else "close")()


SHAPES: dict[str, Shape] = {}


def shape(**config: Any) -> Callable[[Steps], Steps]:
    """Makes a shape of a function, under its name."""

    def named(steps: Steps) -> Steps:
        name = steps.__name__
        SHAPES[name] = Shape(name, kstore.LogConfig(**config), (steps,))
        return steps

    return named


def values(rnd: Rnd, count: int, most: int = 120) -> list[bytes]:
    return [rnd.randbytes(rnd.randrange(8)) * rnd.randrange(1, most // 8) for _ in range(count)]


def encoded(rnd: Rnd, count: int, *, at: int = NOW, **options: Any) -> bytes:
    """A batch of `count` records near that time."""
    records = [(at + rnd.randrange(-500, 500), rnd.randbytes(4), v, None) for v in values(rnd, count)]
    return kstore.encode_batch(records, **options)


@shape()
def empty(log: Log, clock: Clock, rnd: Rnd) -> None:
    pass


@shape()
def single_records(log: Log, clock: Clock, rnd: Rnd) -> None:
    for value in values(rnd, 300):
        clock.now += 7
        log.append(value, rnd.choice([None, b"", b"key"]))


@shape(**SMALL)
def segments(log: Log, clock: Clock, rnd: Rnd) -> None:
    for _ in range(40):
        clock.now += 100
        log.extend(values(rnd, 20), batch_bytes=rnd.choice([0, 300, 1000]))


@shape(**SMALL)
def adopted(log: Log, clock: Clock, rnd: Rnd) -> None:
    """Files of another log, taken over between appends."""
    for _ in range(3):
        log.extend(values(rnd, 30), batch_bytes=300)
        with tempfile.TemporaryDirectory(dir=Path(log.path).parents[1]) as directory:
            with kstore.open(Path(directory, "t-0"), "a", config=log.config, clock=clock) as other:
                other.extend(values(rnd, 80), batch_bytes=rnd.choice([0, 500]))
            for path in sorted(Path(directory, "t-0").glob("*.log")):
                log.adopt(path)


@shape(**SMALL)
def key_files(log: Log, clock: Clock, rnd: Rnd) -> None:
    """Which Kafka passes over, and leaves."""
    keys = [b"key-%d" % (i % 50) for i in range(600)]
    log.extend([b"v" * 40] * 600, keys, batch_bytes=500)
    assert all(each.made for each in log.make_key_files())


@shape(segment_index_bytes=48, index_interval_bytes=0)
def tiny_indexes(log: Log, clock: Clock, rnd: Rnd) -> None:
    for value in values(rnd, 60):
        clock.now += 5
        log.append(value)


@shape(segment_ms=1000, segment_jitter_ms=500, index_interval_bytes=100)
def rolls_by_time(log: Log, clock: Clock, rnd: Rnd) -> None:
    for _ in range(60):
        clock.now += rnd.choice([1, 100, 400, 1500])
        log.extend(values(rnd, 5), timestamps=[clock.now - rnd.randrange(3000) for _ in range(5)])


@shape()
def headers_and_nulls(log: Log, clock: Clock, rnd: Rnd) -> None:
    log.append(None)
    log.append(None, b"tombstone")
    log.append(b"", b"")
    log.append(b"v", headers=[("a", b"1"), ("a", None), ("", b""), ("żółw", bytes(300))])
    log.append(bytes(70_000), headers={"one": b"1"})
    log.extend([None, b"x", b""], [b"k", None, b""], headers=[("all", b"h")])
    log.extend([b"1", b"2"], headers=[[("first", None)], []])


@shape(index_interval_bytes=200, message_timestamp_after_max_ms=10**15)
def odd_timestamps(log: Log, clock: Clock, rnd: Rnd) -> None:
    for _ in range(100):
        stamps = [rnd.choice([-1, 0, 1, NOW - 10**6, NOW + rnd.randrange(10**6)]) for _ in range(6)]
        log.extend(values(rnd, 6), timestamps=stamps, batch_bytes=200)
    log.append(b"far", timestamp=NOW + 10**12)
    log.append(b"back", timestamp=-1)


@shape(**SMALL)
def no_timestamps(log: Log, clock: Clock, rnd: Rnd) -> None:
    log.extend(values(rnd, 400), timestamps=-1, batch_bytes=300)


@shape(message_timestamp_type="LogAppendTime", compression_type="lz4")
def log_append_time(log: Log, clock: Clock, rnd: Rnd) -> None:
    for codec in CODECS * 4:
        clock.now += 13
        log.append(b"a", timestamp=5)
        log.extend(values(rnd, 20), timestamps=list(range(20)), batch_bytes=400)
        log.append_batches(encoded(rnd, 10, codec=codec))


def packed(log: Log, clock: Clock, rnd: Rnd) -> None:
    log.append(b"alone" * 50)
    log.append(rnd.randbytes(100), b"k", headers={"h": b"1"})
    log.extend(values(rnd, 300), [b"%d" % i for i in range(300)], batch_bytes=4000)
    log.extend([rnd.randbytes(3000) for _ in range(50)])
    log.extend([b"x" * 1_000_000])
    for other in CODECS:
        log.append_batches(encoded(rnd, 20, codec=other))


for _codec in ("uncompressed", *CODECS[1:]):
    _config = kstore.LogConfig(compression_type=_codec, index_interval_bytes=500)
    SHAPES[f"packed_{_codec}"] = Shape(f"packed_{_codec}", _config, (packed,))


@shape(**SMALL)
def transactions_left_open(log: Log, clock: Clock, rnd: Rnd) -> None:
    _transact(log, clock, rnd, 30)
    log.append_batches(encoded(rnd, 3, producer_id=99, producer_epoch=0, base_sequence=0, transactional=True))
    _transact(log, clock, rnd, 30, {21: 0, 22: 0})


def _transact(log: Log, clock: Clock, rnd: Rnd, count: int, sequences: dict[int, int] | None = None) -> None:
    sequences = sequences or {11: 0, 12: 0, 13: 0}
    running: set[int] = set()
    for _ in range(count):
        clock.now += 20
        producer = rnd.choice(list(sequences))
        if producer in running and rnd.random() < 0.4:
            running.discard(producer)
            end = marker(rnd.choice(["ABORT", "COMMIT"]), producer, clock.now)
            log.append_batches(end, origin="coordinator", transaction_version=1)
        elif rnd.random() < 0.2:
            log.append(b"outside of any")
        else:
            running.add(producer)
            records = rnd.randrange(1, 9)
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            batch = encoded(
                rnd, records, at=clock.now, transactional=True, codec=rnd.choice(CODECS), **options
            )
            log.append_batches(batch)
            sequences[producer] += records
    for producer in sorted(running):
        log.append_batches(marker("ABORT", producer, NOW), origin="coordinator", transaction_version=1)


@shape(**SMALL)
def leader_epochs(log: Log, clock: Clock, rnd: Rnd) -> None:
    for epoch in (0, 1, 4, 5, 9):
        log.assign_leader_epoch(epoch)
        if epoch != 4:
            log.extend(values(rnd, 40), batch_bytes=500)


@shape(index_interval_bytes=100)
def offsets_far_apart(log: Log, clock: Clock, rnd: Rnd) -> None:
    for offset in (5, 100, 2**31 - 10, 2**31 + 3, 2**31 + 9, 2**33, 2**40, 2**40 + 2**31 - 1):
        log.append_batches(encoded(rnd, 4, base_offset=offset, leader_epoch=0), keep_offsets=True)


@shape(**SMALL)
def deleted_records(log: Log, clock: Clock, rnd: Rnd) -> None:
    segments(log, clock, rnd)
    log.delete_records(log.segments[3].base_offset + 7)
    log.retain()


@shape()
def deleted_inside_a_batch(log: Log, clock: Clock, rnd: Rnd) -> None:
    log.extend(values(rnd, 50))
    log.delete_records(20)


@shape()
def deleted_to_the_end(log: Log, clock: Clock, rnd: Rnd) -> None:
    log.extend(values(rnd, 50))
    log.delete_records(-1)


@shape(retention_ms=1000)
def retained_to_nothing(log: Log, clock: Clock, rnd: Rnd) -> None:
    log.extend(values(rnd, 20))
    clock.now += 5000
    log.retain()


@shape(**SMALL)
def truncated(log: Log, clock: Clock, rnd: Rnd) -> None:
    """Inside a batch."""
    segments(log, clock, rnd)
    log.truncate_to(log.segments[4].base_offset + 5)
    log.extend(values(rnd, 30), batch_bytes=200)


@shape(**SMALL)
def truncated_transactions(log: Log, clock: Clock, rnd: Rnd) -> None:
    _transact(log, clock, rnd, 60)
    log.truncate_to(log.log_end_offset * 2 // 3)
    log.extend(values(rnd, 30), batch_bytes=200)


@shape(**SMALL)
def truncated_fully(log: Log, clock: Clock, rnd: Rnd) -> None:
    segments(log, clock, rnd)
    log.truncate_fully_and_start_at(5000)


@shape()
def rolled_and_empty(log: Log, clock: Clock, rnd: Rnd) -> None:
    log.extend(values(rnd, 20))
    log.roll()


for _name, _steps in {
    "reopened": (single_records, empty, segments, rolled_and_empty, empty, no_timestamps),
    "reopened_transactions": (transactions_left_open, empty, segments),
    "reopened_after_truncation": (truncated, truncated_fully, empty, deleted_records),
}.items():
    SHAPES[_name] = Shape(_name, kstore.LogConfig(**SMALL), _steps)  # type: ignore[arg-type]


def smoke(shapes: dict[str, Shape], *names: str) -> list[Any]:
    """The shapes as parameters of a test, those of these names marked as smoke."""
    return [
        pytest.param(each, marks=pytest.mark.smoke if name in names else ()) for name, each in shapes.items()
    ]
