"""The same operations done by kstore and by Kafka leave the same files, and have the same outcomes."""

import random
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.effort import SEED, times
from tests.helpers.markers import marker
from tests.kafka.compare import Account, check_same_files
from tests.kafka.jvm import Kafka, KafkaError
from tests.kafka.shapes import CODECS, SMALL, Clock, encoded

CONFIGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "small_segments": SMALL,
    "tiny_indexes": {"segment_index_bytes": 60, "index_interval_bytes": 100},
    "by_time": {"segment_ms": 2000, "index_interval_bytes": 300, "retention_ms": 20_000},
    "log_append_time": {"message_timestamp_type": "LogAppendTime", **SMALL},
    "unpacked": {"compression_type": "uncompressed", **SMALL},
    "compacted": {"cleanup_policy": "compact", "max_compaction_lag_ms": 3000, **SMALL},
    "retained": {"retention_bytes": 8000, **SMALL},
    "all_indexed": {"index_interval_bytes": 0, "internal_segment_bytes": 3000, "preallocate": True},
}
SYNONYMS = {"RecordBatchTooLarge": "RecordTooLarge", "CorruptRecord": "CorruptRecord"}


def checkpointed(path: Path) -> int:
    """The offset of the one partition in a checkpoint, 0 if it is not there."""
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return int(lines[0].split()[2]) if lines else 0


class Both:
    """One partition of kstore and one of Kafka, under the same operations."""

    def __init__(self, kafka: Kafka, directory: Path, config: dict[str, Any], seed: str) -> None:
        self.kafka = kafka
        self.config = kstore.LogConfig(**config)
        self.ours, self.theirs = directory / "ours" / "orders-0", directory / "theirs" / "orders-0"
        for each in (self.ours, self.theirs):
            each.mkdir(parents=True)
            (each.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")
        self.clock, self.rnd = Clock(), random.Random(seed)
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.running: dict[int, None] = {}
        self.done: list[str] = []
        self.open()

    def open(self) -> None:
        around = self.ours.parent  # Kafka gets what kstore will find there
        known = {
            "clean": (around / ".kafka_cleanshutdown").exists(),
            "recovery_point": checkpointed(around / "recovery-point-offset-checkpoint"),
            "log_start_offset": checkpointed(around / "log-start-offset-checkpoint"),
        }
        self.log = kstore.open(self.ours, "a", config=self.config, clock=self.clock)
        self.other = self.kafka.open(self.theirs, self.config.to_topic(), now=self.clock.now, **known)

    def close(self) -> None:
        self.log.close()
        self.other.ask("close")
        check_same_files(self.ours, self.theirs)

    def append(self, data: bytes, origin: str = "client", version: int = -1) -> None:
        ours: object
        try:
            done = self.log.append_batches(
                data,
                keep_offsets=origin == "follower",
                leader_epoch=self.epoch,
                origin="coordinator" if origin == "coordinator" else "client",
                transaction_version=version,
            )
            ours = (done.first_offset, done.last_offset, done.duplicate)
        except kstore.KstoreError as e:
            ours = type(e).__name__.removesuffix("Error")
        theirs: object
        try:
            reply = self.other.append(data, origin, leader_epoch=self.epoch, transaction_version=version)
            theirs = (reply["first_offset"], reply["last_offset"], reply["duplicate"])
        except KafkaError as e:
            theirs = e.name.removesuffix("Exception")
            theirs = SYNONYMS.get(str(theirs), theirs)
        assert ours == theirs, self.done[-5:]
        self.done.append(str(ours))

    def step(self) -> None:
        """One operation, chosen at random."""
        rnd = self.rnd
        [kind] = rnd.choices(list(WEIGHTS), list(WEIGHTS.values()))
        self.done.append(kind)
        self.clock.now += rnd.choice([0, 1, 10, 300])
        self.other.ask("now", ms=self.clock.now)
        getattr(self, kind)()
        if self.log.log_end_offset != self.other.ask("now", ms=self.clock.now)["log_end_offset"]:
            raise AssertionError(self.done[-5:])

    # ---- the operations

    def records(self) -> None:
        codec = self.rnd.choice(CODECS)
        self.append(encoded(self.rnd, self.rnd.randrange(1, 40), at=self.clock.now, codec=codec))

    def one(self) -> None:
        self.append(encoded(self.rnd, 1, at=self.clock.now))

    def idempotent(self) -> None:
        self._produce(self.rnd.choice([1, 2, 3]), 1, self.rnd.choices([0, 3, -1], [8, 1, 1])[0])

    def transactional(self) -> None:
        producer = self.rnd.choice([11, 12, 13])
        if self._produce(producer, 0, transactional=True):
            self.running[producer] = None

    def _produce(self, producer: int, epoch: int, wrong: int = 0, transactional: bool = False) -> bool:
        """Whether it was appended; its sequence numbers are `wrong` by so many."""
        count, before = self.rnd.randrange(1, 6), self.log.log_end_offset
        options = {"producer_id": producer, "producer_epoch": epoch, "transactional": transactional}
        options["base_sequence"] = sequence = max(0, self.sequences.get(producer, 0) + wrong)
        self.append(encoded(self.rnd, count, at=self.clock.now, **options))
        if self.log.log_end_offset > before:
            self.sequences[producer] = sequence + count
        return self.log.log_end_offset > before

    def end_transaction(self) -> None:
        producer = self.rnd.choice(list(self.running) or [11])
        self.running.pop(producer, None)
        kind = self.rnd.choice(["ABORT", "COMMIT"])
        self.append(marker(kind, producer, self.clock.now), "coordinator", 1)

    def as_follower(self) -> None:
        offset, data = self.log.log_end_offset + self.rnd.choice([0, 0, 0, 4]), b""
        # Kafka dies (IllegalArgumentException) of several batches for which an index has no room; kstore
        # leaves entries out
        most = 1 if self.config.segment_index_bytes < 1000 else 4
        for _ in range(self.rnd.randrange(1, most + 1)):
            count, codec = self.rnd.randrange(1, 9), self.rnd.choice(CODECS)
            options = {"base_offset": offset, "leader_epoch": self.epoch, "codec": codec}
            data += encoded(self.rnd, count, at=self.clock.now, **options)
            offset += count + self.rnd.choice([0, 0, 2])
        self.append(data, "follower")

    def from_below(self) -> None:
        offset = max(0, self.log.log_end_offset - 2)
        self.append(encoded(self.rnd, 2, base_offset=offset, leader_epoch=self.epoch), "follower")

    def damaged(self) -> None:
        data = bytearray(encoded(self.rnd, 3, at=self.clock.now))
        data[self.rnd.randrange(17, len(data))] ^= 1
        self.append(bytes(data))

    def new_epoch(self) -> None:
        """As a partition that becomes leader. (Kafka notes the epoch of a batch even if it refuses it.)"""
        self.epoch += self.rnd.choice([1, 1, 3])
        self.log.assign_leader_epoch(self.epoch)
        self.other.ask("assign_epoch", epoch=self.epoch)

    def roll(self) -> None:
        assert self.log.roll() == self.other.ask("roll")["base_offset"]

    def flush(self) -> None:
        self.log.flush()
        self.other.ask("flush")

    def delete(self) -> None:
        if self.config.cleanup_policy == ("compact",):
            return
        start = self.log.log_start_offset
        offset = start + (self.log.log_end_offset - start) // 3
        self.log.delete_records(offset)
        assert (
            self.other.ask("delete_records", offset=offset)["log_start_offset"] == self.log.log_start_offset
        )

    def retain(self) -> None:
        gone = sum(d.delete for d in self.log.retain())
        assert self.other.ask("retain")["deleted"] == gone

    def truncate(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        # At the end of a batch: kstore notes other ends in files of its own, which Kafka does not have.
        ends = [batch.next_offset for batch in self.log.batches() if batch.next_offset >= start]
        offset = self.rnd.choice([end, *ends[-20:]])
        # or else Kafka, if it has not asked for the largest timestamp since loading, may take it from an
        # index that it has just emptied, and closes without the last entry
        self.other.summary()
        self.log.truncate_to(offset)
        self.other.ask("truncate_to", offset=offset)
        self._forget()

    def start_anew(self) -> None:
        offset = self.log.log_end_offset + 10
        self.log.truncate_fully_and_start_at(offset)
        self.other.ask("truncate_fully", offset=offset)
        self._forget()

    def _forget(self) -> None:
        """Which producers are left is the logs' business: others from here on."""
        self.sequences = {}
        self.running = {}
        self.new_epoch()

    def crash(self) -> None:
        if self.config.segment_index_bytes < 1000:
            return  # Kafka cannot recover a segment whose index gets more entries than when it was written
        self.log.abandon()
        self.other.ask("abandon")
        self.open()
        assert not self.log.recovery.clean
        self.new_epoch()

    def reopen(self) -> None:
        self.close()
        self.clock.now += 100
        self.open()
        self.new_epoch()


WEIGHTS = dict.fromkeys(("new_epoch", "roll", "flush", "retain"), 1.0)
WEIGHTS |= {
    "records": 8,
    "one": 8,
    "idempotent": 6,
    "transactional": 5,
    "end_transaction": 3,
    "as_follower": 6,
}
WEIGHTS |= {"from_below": 0.5, "damaged": 0.5, "delete": 0.7, "truncate": 0.7, "start_anew": 0.2}
WEIGHTS |= {"reopen": 0.7, "crash": 0.7}


@pytest.mark.parametrize("seed", range(times(2)))
@pytest.mark.parametrize("name", CONFIGS)
def test_same_operations_same_files(name: str, seed: int, kafka: Kafka, tmp_path: Path) -> None:
    both = Both(kafka, tmp_path, CONFIGS[name], f"{SEED} {name} {seed}")
    for _ in range(120):
        both.step()
    both.close()
    account = Account(kstore.open(both.ours))
    both.open()
    account.check(both.other)
    both.close()
