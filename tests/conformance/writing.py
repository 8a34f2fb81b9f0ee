"""What the tests of writing share: a clock, logs opened under it, batches as producers send them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kstore
from tests.helpers import forge
from tests.helpers.clock import Clock
from tests.helpers.forge import T0, TRANSACTIONAL, Rec

SIZE = 72  # of a one-record batch with the value "test"
DATA_AND_INDEXES = (".log", ".index", ".timeindex")


def opened(path: Path, clock: Clock | None = None, **options: Any) -> kstore.LogWriter:
    """The log in path/topic-0; segments may be smaller than 1 MiB, as in Kafka's tests."""
    if "segment_bytes" in options:
        options["internal_segment_bytes"] = options.pop("segment_bytes")
    return kstore.open(path / "topic-0", "a", clock=clock or Clock(), **options)


def rec(value: bytes = b"test", key: bytes | None = None, timestamp: int = -1, **fields: Any) -> bytes:
    """A batch of one record, 72 bytes of them for the value "test"."""
    return forge.batch(Rec(value, key, timestamp), **fields)


def recs(count: int, timestamp: int = -1, value: bytes = b"test", **fields: Any) -> bytes:
    """A batch of so many records."""
    return forge.batch(*[Rec(value, timestamp=timestamp)] * count, **fields)


def put(log: kstore.LogWriter, *batches: bytes, **options: Any) -> kstore.Appended:
    """As a leader, each in an append of its own; what the last one did."""
    for batch in batches:
        done = log.append_batches(batch, **options)
    return done


def follow(log: kstore.LogWriter, *batches: bytes, **options: Any) -> kstore.Appended:
    """As a follower, all in one append."""
    return log.append_batches(b"".join(batches), keep_offsets=True, **options)


class Producer:
    """Batches of one producer, in sequence."""

    def __init__(self, pid: int, epoch: int = 0, sequence: int = 0, *, flags: int = TRANSACTIONAL) -> None:
        self.pid, self.epoch, self.sequence, self.flags = pid, epoch, sequence, flags

    def data(self, count: int, base: int = 0) -> bytes:
        fields = {"pid": self.pid, "pid_epoch": self.epoch, "sequence": self.sequence, "flags": self.flags}
        self.sequence += count
        return recs(count, base=base, **fields)

    def marker(self, kind: int, base: int = 0, coordinator: int = 0) -> bytes:
        return forge.marker(base, self.pid, kind, pid_epoch=self.epoch, coordinator=coordinator)


def idempotent(
    pid: int, sequence: int, count: int = 1, epoch: int = 0, timestamp: int = T0, **fields: Any
) -> bytes:
    """As of the time the clock starts at: a producer without timestamps expires at the next opening."""
    return recs(count, timestamp, pid=pid, pid_epoch=epoch, sequence=sequence, **fields)


def end(log: kstore.LogWriter, marker: bytes, version: int = 0) -> kstore.Appended:
    """Appends a transaction marker as the coordinator."""
    return log.append_batches(marker, origin="coordinator", transaction_version=version)


def offsets(records: Iterable[kstore.Record]) -> list[int]:
    return [record.offset for record in records]


def bases(log: kstore.PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def file(path: Path, kind: str, base: int = 0) -> Path:
    """A file of a segment of path/topic-0."""
    return path / "topic-0" / f"{forge.stem(base)}{kind}"


def files(path: Path, kind: str) -> list[int]:
    """The offsets in the names of files of a kind, such as ".log" or ".log.deleted"."""
    return sorted(int(p.name.partition(".")[0]) for p in (path / "topic-0").glob("0*") if p.name[20:] == kind)


def drop(path: Path, pattern: str) -> None:
    """Removes files of path/topic-0."""
    for found in (path / "topic-0").glob(pattern):
        found.unlink()


def aborted(log: kstore.PartitionLog) -> list[tuple[int, ...]]:
    """What the transaction indexes hold: producer id, first and last offset, last stable offset."""
    log.last_stable_offset()
    return [tuple(txn)[:4] for segment in log.segments for txn in segment.transaction_index]


def entries(segment: kstore.Segment) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Offset and time index of a segment."""
    return [(*e,) for e in segment.offset_index], [(*e,) for e in segment.time_index]


def epochs_on_disk(path: Path) -> list[tuple[int, int]]:
    lines = (path / "topic-0" / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
