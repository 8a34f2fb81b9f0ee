"""Random logs cleaned by Kafka's cleaner and by ours, round after round: the same files, batches and indexes;
and what Kafka reads after an erasure."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.compaction.stages import names, overflowed
from tests.golden.batches import shape
from tests.helpers.effort import SEED, times
from tests.helpers.markers import marker
from tests.kafka.compare import Account
from tests.kafka.jvm import NOW, Kafka, KafkaError, KafkaLog

SLOTS = 43_691  # of the map of keys: the fewest that are allowed
CODECS = ("none", "none", "none", "gzip", "snappy", "lz4", "zstd")


class Story:
    """The same random batches for both logs: producers, transactions, epochs, gaps, nulls, odd keys."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = NOW
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}  # of producers
        self.open: set[int] = set()
        self.leader_epoch = 0
        self.keys = rng.choice([1, 4, 30, 1000])
        self.plain_only = rng.random() < 0.4  # then files must be equal to the byte
        self.keyless = rng.random() < 0.15  # written before the topic became one that is compacted
        keys = rng.choice([10_000, 10_000, 40, 8, 3]) if self.plain_only else 10_000  # in the map at once
        self.load_factor = (keys + 0.5) / SLOTS
        self.config = {
            "cleanup.policy": rng.choice(["compact", "compact", "compact,delete"]),
            "retention.ms": "-1",
            "internal.segment.bytes": str(rng.choice([600, 3000, 20_000, 400_000])),
            "index.interval.bytes": str(rng.choice([0, 200, 4096])),
            "delete.retention.ms": str(rng.choice([0, 1000, 10**8])),
            "message.timestamp.type": rng.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
            "min.compaction.lag.ms": str(rng.choice([0, 0, 0, 1000])),
        }

    def key(self) -> bytes | None:
        chance = self.rng.random()
        if chance < 0.05:
            return self.rng.choice([b"", b"k", b"K" * self.rng.randrange(1, 3000)])
        if chance < 0.055:
            return b"H" * self.rng.randrange(60_000, 200_000)  # more than Kafka's cleaner reads at once
        if chance < 0.1 and self.keyless:
            return None
        return b"%d" % self.rng.randrange(self.keys)

    def batch(self, end: int) -> tuple[bytes, dict[str, object]]:
        """A batch, and how it is appended to a log that ends there."""
        rng = self.rng
        self.now += rng.randrange(100)
        if self.open and rng.random() < 0.2:
            producer = rng.choice(sorted(self.open))
            self.open.discard(producer)
            kind = rng.choice(["ABORT", "COMMIT"])
            ends = marker(kind, producer, self.now, producer_epoch=self.epochs.get(producer, 0))
            return ends, {"origin": "coordinator", "transaction_version": 0}
        records = []
        for _ in range(rng.choice([1, 1, 2, 5, 30])):
            key = self.key()
            value = None if rng.random() < 0.15 else rng.randbytes(rng.randrange(60))
            headers = [("h", rng.randbytes(rng.randrange(300))), ("n", None)] if rng.random() < 0.1 else None
            records.append((self.now + rng.randrange(-99, 99), key, value, headers))
        options: dict[str, object] = {"codec": "none" if self.plain_only else rng.choice(CODECS)}
        if rng.random() < 0.5:
            producer = rng.randrange(6)
            if producer not in self.open and rng.random() < 0.1:
                self.epochs[producer] = self.epochs.get(producer, 0) + 1
                self.sequences[producer] = 0
            options |= {
                "producer_id": producer,
                "producer_epoch": self.epochs.get(producer, 0),
                "base_sequence": self.sequences.get(producer, 0),
                "transactional": producer < 3,
            }
            self.sequences[producer] = self.sequences.get(producer, 0) + len(records)
            if producer < 3:
                self.open.add(producer)
        elif rng.random() < 0.1:
            gap = rng.randrange(50)
            encoded = kstore.encode_batch(records, base_offset=end + gap, leader_epoch=self.leader_epoch)
            return encoded, {"keep_offsets": True}
        return kstore.encode_batch(records, **options), {}  # type: ignore[arg-type]


def opened(directory: Path, story: Story, **config_of_topic: str) -> kstore.LogWriter:
    config = kstore.LogConfig.from_topic(story.config | {"min.cleanable.dirty.ratio": "0"} | config_of_topic)
    config = config.replace(log_cleaner_io_buffer_load_factor=story.load_factor)
    config = config.replace(file_delete_delay_ms=0, log_cleaner_dedupe_buffer_size=24 * SLOTS)
    return kstore.open(directory, "a", config=config, clock=lambda: story.now)


def write(directories: list[Path], story: Story, count: int) -> None:
    """Appends so many batches to each."""
    rng = story.rng
    config = {"cleanup.policy": "delete"} if story.keyless else {}
    logs = [opened(directory, story, **config) for directory in directories]
    if rng.random() < 0.3:
        story.leader_epoch += rng.randrange(1, 3)
    for log in logs:
        log.assign_leader_epoch(story.leader_epoch)
    for _ in range(count):
        batch, options = story.batch(logs[0].log_end_offset)
        for log in logs:
            try:
                log.append_batches(batch, **options)  # type: ignore[arg-type]
            except (kstore.RecordTooLargeError, kstore.OutOfOrderSequenceError):
                story.open -= set(story.sequences)
                story.sequences.clear()
    roll = rng.random() < 0.7
    begin = rng.randrange(logs[0].log_start_offset, logs[0].last_stable_offset() + 1)
    deletes = rng.random() < 0.3 and "delete" in logs[0].config.cleanup_policy
    for log in logs:
        if roll:
            log.roll()
        if deletes:
            log.delete_records(begin)
        log.close()


@pytest.mark.filterwarnings(
    "ignore::kstore.DataLossWarning"
)  # a follower left gaps, before the first cleaning
@pytest.mark.parametrize("seed", range(times(15)))
def test_the_same_as_kafkas(kafka: Kafka, tmp_path: Path, seed: int) -> None:
    story = Story(random.Random(f"{SEED} {seed}"))
    ours, theirs = tmp_path / "ours" / "t-0", tmp_path / "theirs" / "t-0"
    for directory in (ours, theirs):
        directory.parent.mkdir()
        (directory.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    checkpoint = None
    start = end = 0
    for _ in range(story.rng.randrange(1, 5)):
        write([ours, theirs], story, story.rng.randrange(5, 60))
        story.now += story.rng.choice([0, 500, 2000, 10**9])
        if story.rng.random() < 0.3:
            story.config["internal.segment.bytes"] = "1000000"
        with opened(ours, story) as log:
            done = log.compact()
            start, end = log.log_start_offset, log.log_end_offset
        their = opened_by_kafka(kafka, theirs, story, start, end)
        known = {} if checkpoint is None else {"checkpoint": checkpoint}
        found = their.ask("cleanable", **known)
        assert found["first_dirty"] == done.first_dirty_offset
        assert found["first_uncleanable"] == done.first_uncleanable_offset
        if story.plain_only:
            assert found["ratio"] == pytest.approx(done.dirty_ratio)
        assert (found["ratio"] > 0) == bool(done.segments)
        if done.segments:
            checkpoint = cleaned_by_kafka(their, found, story.load_factor)
            assert checkpoint in (None, done.end_offset)
            text = (ours.parent / "cleaner-offset-checkpoint").read_text()
            assert text == f"0\n1\nt 0 {done.end_offset}\n"
        their.ask("now", ms=story.now + 1)
        their.ask("close")
        if done.segments and checkpoint is None:  # on with what ours made
            shutil.rmtree(theirs)
            shutil.copytree(ours, theirs)
            checkpoint = done.end_offset
        compare(ours, theirs, story)
        if (
            not story.plain_only
        ):  # packed records have other sizes, so other groups would be made of the segments
            one, other = (ours, theirs) if story.rng.random() < 0.5 else (theirs, ours)
            shutil.rmtree(other)
            shutil.copytree(one, other)
    assert read_by_kafka(kafka, ours, story, start, end) == read_by_kafka(kafka, theirs, story, start, end)


def test_a_segment_that_spans_too_much(kafka: Kafka, tmp_path: Path) -> None:
    """Kafka splits it and ends the cleaning; the next one does the rest. Ours does both."""
    ours, theirs = overflowed(tmp_path / "ours"), overflowed(tmp_path / "theirs")
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "file.delete.delay.ms": "0"}
    with kstore.open(ours, "a", config=kstore.LogConfig.from_topic(config), clock=lambda: NOW) as log:
        done = log.compact()
        end = log.log_end_offset
    their = kafka.open(theirs, config, recovery_point=end)
    bounds = {"first_dirty": 0, "first_uncleanable": end}
    with pytest.raises(KafkaError, match="LogCleaningAborted"):
        their.ask("clean", **bounds)
    assert their.ask("clean", **bounds)["end_offset"] == done.end_offset == end
    their.ask("now", ms=NOW + 1)
    their.ask("close")
    assert names(ours) == names(theirs)
    for name in names(ours):
        if name.endswith((".log", ".index", ".timeindex")):
            assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name


def opened_by_kafka(kafka: Kafka, directory: Path, story: Story, start: int, end: int) -> KafkaLog:
    config = story.config | {"file.delete.delay.ms": "0"}
    return kafka.open(directory, config, now=story.now, recovery_point=end, log_start_offset=start)


def is_misled(directory: Path, first_dirty: int) -> bool:
    """Whether Kafka's cleaner takes records for those of an aborted transaction that are not: if one ended in
    the segment of the first dirty offset, but before the entry of the index where Kafka begins to read, its
    producer's records are left out of the map of keys. Then what they supersede stays, and comes back when a
    record without a value is gone."""
    log = kstore.open(directory, clean=True, recover=False).from_file_start()
    segment = [s for s in log.segments if s.base_offset <= first_dirty][-1]
    begin, position = segment.offset_index.lookup(first_dirty)
    ended = {txn.producer_id for txn in segment.transaction_index if position and txn.last_offset < begin}
    return any(
        batch.producer_id in ended and batch.is_transactional and not batch.is_control
        for batch in log.batches()
        if batch.last_offset >= first_dirty
    )


def cleaned_by_kafka(log: KafkaLog, found: dict[str, Any], load_factor: float) -> int | None:
    """Passes of Kafka's cleaner until all is clean that may be; where that ends. None if it was misled."""
    first, bound = found["first_dirty"], found["first_uncleanable"]
    while True:
        if is_misled(log.directory, first):
            return None
        map_of_keys = {"slots": SLOTS, "load_factor": load_factor}
        end: int = log.ask("clean", first_dirty=first, first_uncleanable=bound, **map_of_keys)["end_offset"]
        if not first < end < bound:
            return end
        first = end


def read_by_kafka(kafka: Kafka, directory: Path, story: Story, start: int, end: int) -> Any:
    """What Kafka reads of a log, but for what depends on how records are packed."""
    with opened(directory, story) as own:
        account = Account(own)
    log = opened_by_kafka(kafka, directory, story, start, end)
    account.check(log)
    records, told = log.records(), log.summary()
    for record in records:
        if record["batch"]["codec"] != "none":
            del record["batch"]["size"], record["batch"]["crc"]
        if not story.plain_only:
            del record["batch"]["position"]
    if not story.plain_only:
        for segment in told["segments"]:
            del segment["size"], segment["index_entries"], segment["time_index_entries"]
    log.ask("abandon")
    return records, told


def compare(ours: Path, theirs: Path, story: Story) -> None:
    assert names(ours) == names(theirs)
    interval = int(story.config["index.interval.bytes"])
    mine, kafkas = (kstore.open(path, clean=True, index_interval_bytes=interval) for path in (ours, theirs))
    assert not mine.recovery.losses
    for one, other in zip(mine.segments, kafkas.segments, strict=True):
        packed = False
        batches = list(kstore.open(one.path).batches())
        for a, b in zip(batches, list(kstore.open(other.path).batches()), strict=True):
            assert shape(a) == shape(b)
            packed = packed or a.codec != "none"
        assert packed or Path(one.path).read_bytes() == Path(other.path).read_bytes()
        if not packed:
            for kind in (".index", ".timeindex"):
                assert Path(one.path_of(kind)).read_bytes() == Path(other.path_of(kind)).read_bytes(), kind
        assert list(one.transaction_index) == list(other.transaction_index)
    assert mine.last_stable_offset() == kafkas.last_stable_offset()
    assert [r.offset for r in mine.records(isolation="read_committed")] == [
        r.offset for r in kafkas.records(isolation="read_committed")
    ]


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # a follower left gaps
@pytest.mark.parametrize("what", ["records", "values"])
def test_kafka_reads_what_an_erasure_leaves(kafka: Kafka, tmp_path: Path, what: Any) -> None:
    """Records, batches, producers, lookups by time."""
    for turn in range(times(2)):
        story = Story(random.Random(f"{SEED} {what} {turn}"))
        directory = tmp_path / str(turn) / "t-0"
        directory.parent.mkdir()
        (directory.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")
        write([directory], story, 60)
        with opened(directory, story) as log:
            start, end = log.log_start_offset, log.log_end_offset
            kept = [r.offset for r in log if r.offset % 3]
            done = log.erase(where=lambda r: r.offset % 3 == 0, reason="asked", what=what)
        erased = {offset for segment in done.segments for offset in segment.offsets}
        assert erased
        records, _ = read_by_kafka(kafka, directory, story, start, end)
        found = {record["offset"] for record in records}
        assert found >= set(kept)
        assert (found & erased) == (set() if what == "records" else {o for o in erased if o >= start})
