"""What rewrites a log: a compaction, an erasure, and a compaction that must split a segment. What must hold
of the log at every moment of it, and after the next opening."""

import hashlib
import random
import shutil
import time
from pathlib import Path
from typing import Any, ClassVar

import kstore
from tests.compaction.stages import overflowed
from tests.helpers import markers
from tests.helpers.effort import SEED
from tests.helpers.key_files import remember

NOW = int(time.time() * 1000)  # a producer that is silent for long would be forgotten
CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
SMALL = {"segment_index_bytes": 4000}  # a recorder compares index files at every call
ANN = b"ann-who-is-erased"


def transaction(producer: int, sequence: int, keys: range) -> bytes:
    records = [(NOW, b"%d" % key, b"of %d" % producer, None) for key in keys]
    return markers.transactional(*records, producer=producer, sequence=sequence)


def end(log: kstore.LogWriter, producer: int, kind: str) -> None:
    markers.end_transaction(log, kind, NOW, producer)


def left_behind(directory: Path) -> list[str]:
    """Files of work that was not finished."""
    suffixes = (".cleaned", ".swap", ".deleted", ".keys.tmp")
    return [path.name for path in directory.iterdir() if path.name.endswith(suffixes)]


def records(log: kstore.PartitionLog) -> dict[int, kstore.Record]:
    """The records by offset. None is there twice, or below the one before it."""
    found = list(log)
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    return {record.offset: record for record in found}


def make_key_files(log: kstore.LogWriter) -> None:
    log.make_key_files()
    remember(Path(log.path))


class Operation:
    """A log to be rewritten: `source` is its partition, in a log directory of its own."""

    options: ClassVar[dict[str, Any]]
    clean: bool | None = None  # how the log is opened for the operation

    def __init__(self, root: Path) -> None:
        self.source = self.write(root / "source")
        self.before = records(kstore.open(self.source, clean=self.clean))

    def write(self, root: Path) -> Path:
        raise NotImplementedError

    def copy(self, to: Path) -> Path:
        """Another log directory; the path of the partition in it."""
        shutil.copytree(self.source.parent, to)
        return to / self.source.name

    def work(self, partition: Path) -> None:
        with kstore.open(partition, "a", clean=self.clean, **self.options) as log:
            self.rewrite(log)

    def rewrite(self, log: kstore.LogWriter) -> None:
        raise NotImplementedError

    def check(self, log: kstore.PartitionLog) -> None:
        """Old records or new ones, nothing between."""
        raise NotImplementedError

    def check_done(self, log: kstore.PartitionLog) -> None:
        raise NotImplementedError

    def check_reopened(self, partition: Path) -> None:
        """It is right as it is and after it was opened for writing, and the operation can be done again."""
        self.check(kstore.open(partition))
        with kstore.open(partition, "a", **self.options) as log:
            self.check(log)
            assert not log.recovery.losses
        assert not left_behind(partition)
        again = kstore.open(partition)
        assert not again.recovery.findings
        self.check(again)
        assert all(again.get(offset) == record for offset, record in records(again).items())
        self.work(partition)
        assert not left_behind(partition)
        again = kstore.open(partition)
        assert not again.recovery.findings
        self.check_done(again)


class Compacting(Operation):
    """Keys that come again and again, tombstones, and transactions that were aborted. Two compactions, the
    second of segments that are small enough to be merged. There are .keys files all the time."""

    options: ClassVar = {
        **SMALL,
        "cleanup_policy": "compact",
        "internal_segment_bytes": 2000,
        "index_interval_bytes": 100,
        "min_cleanable_dirty_ratio": 0,
        "file_delete_delay_ms": 0,
    }

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.committed = {r.offset for r in kstore.open(self.source).records(isolation="read_committed")}
        whole = self.copy(root / "compacted")
        self.work(whole)
        self.after = records(kstore.open(whole))

    def write(self, root: Path) -> Path:
        with kstore.open(root / "t-0", "a", **self.options) as log:
            keys = [b"%d" % key for key in range(30)]
            for round_ in range(4):
                log.extend(
                    [b"%s of %d" % (key, round_) + b"." * 40 for key in keys], keys=keys, batch_bytes=300
                )
                log.append_batches(transaction(7, 3 * round_, range(3)))
                end(log, 7, ("ABORT", "COMMIT")[round_ % 2])
            log.extend([None] * 5, keys=keys[:5])
            log.roll()
        return root / "t-0"

    def copy(self, to: Path) -> Path:
        """With .keys files, which those of the source would be no more."""
        partition = super().copy(to)
        with kstore.open(partition, "a", **self.options) as log:
            make_key_files(log)
        return partition

    def rewrite(self, log: kstore.LogWriter) -> None:
        log.compact()
        make_key_files(log)
        log.configure(internal_segment_bytes=1_000_000)
        log.append(b"later", b"other", timestamp=NOW)
        log.roll()
        make_key_files(log)
        log.compact()
        make_key_files(log)

    def table(self, found: list[kstore.Record]) -> dict[bytes | None, bytes | None]:
        """The last value of each key that was not deleted."""
        last = {record.key: record.value for record in found}
        return {key: value for key, value in last.items() if value is not None and key != b"other"}

    def check(self, log: kstore.PartitionLog) -> None:
        there, known = records(log), self.before | self.after
        assert there == {offset: known[offset] for offset in there}
        assert self.after.keys() & self.before.keys() <= there.keys()
        committed = list(log.records(isolation="read_committed"))
        assert {r.offset for r in committed} <= self.committed | {max(self.after)}
        last = self.table(committed)
        assert last == self.table(list(self.after.values()))
        for key, value in last.items():
            record = log.last(key or b"", isolation="read_committed")
            assert record is not None
            assert record.value == value
        assert log.last(b"nobody") is None

    def check_done(self, log: kstore.PartitionLog) -> None:
        there = [r for r in records(log).values() if r.key != b"other"]
        assert there == [r for r in self.after.values() if r.key != b"other"]
        assert log.producers()[7].batches[-1].last_sequence == 11


class Erasing(Operation):
    """Records of all codecs, some of ANN, whose are erased. There are .keys files all the time."""

    options: ClassVar = {**SMALL, "internal_segment_bytes": 1500, "index_interval_bytes": 100}

    def write(self, root: Path) -> Path:
        write_random(root / "t-0", random.Random(SEED), 12)
        return root / "t-0"

    def rewrite(self, log: kstore.LogWriter) -> None:
        make_key_files(log)
        log.erase(keys=[ANN], reason="asked")
        make_key_files(log)

    def check(self, log: kstore.PartitionLog) -> None:
        there = records(log)
        assert there == {offset: self.before[offset] for offset in there}
        assert [r for r in self.before.values() if r.key != ANN and r.offset not in there] == []
        last = {r.key: r for r in there.values()}
        for key in {r.key for r in self.before.values() if r.key is not None}:
            assert log.last(key) == last.get(key)

    def check_done(self, log: kstore.PartitionLog) -> None:
        assert list(log) == [r for r in self.before.values() if r.key != ANN]
        assert not any(ANN in file.read_bytes() for file in Path(log.path).iterdir())


class Splitting(Operation):
    """A compaction of a segment whose offsets span over 2^31 - 1, as Kafka before 2.0 could leave one."""

    options: ClassVar = {
        **SMALL,
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": 0,
        "file_delete_delay_ms": 0,
    }
    clean = True

    def write(self, root: Path) -> Path:
        return overflowed(root)

    def rewrite(self, log: kstore.LogWriter) -> None:
        log.compact()

    @property
    def left(self) -> list[int]:
        return sorted({record.key: record.offset for record in self.before.values()}.values())

    def check(self, log: kstore.PartitionLog) -> None:
        there = records(log)
        assert set(self.left) <= there.keys()
        assert there == {offset: self.before[offset] for offset in there}

    def check_done(self, log: kstore.PartitionLog) -> None:
        assert [record.offset for record in log] == self.left
        assert all(log.get(offset).offset == offset for offset in self.left)


OPERATIONS = (Compacting, Erasing, Splitting)


# ---- random logs -------------------------------------------------------------------------------------------


def write_random(directory: Path, rng: random.Random, batches: int = 25) -> None:
    """Batches of all codecs with records of ANN and others, and transactions."""
    sequence = 0
    with kstore.open(directory, "a", **Erasing.options) as log:
        for _ in range(batches):
            made = []
            for _ in range(rng.randrange(1, 8)):
                key = rng.choice([ANN, ANN, b"bob", b"cid", None])
                value = b"secret %d" % rng.randrange(99) + b"." * rng.randrange(90)
                headers = [("of", key or b"-"), ("n", None)] if rng.random() < 0.3 else None
                made.append(
                    (NOW + rng.randrange(-99, 99), key, None if rng.random() < 0.1 else value, headers)
                )
            log.append_batches(kstore.encode_batch(made, codec=rng.choice(CODECS)))
            if rng.random() < 0.3:
                log.append_batches(transaction(7, sequence, range(3)))
                sequence += 3
                end(log, 7, rng.choice(("ABORT", "COMMIT")))


def digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
