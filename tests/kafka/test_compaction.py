"""Random logs cleaned by Kafka's cleaner and by ours, round after round: the same files, batches and indexes."""

import os
import random
from pathlib import Path

import pytest

import kstore
from tests.compaction.stages import names, shape
from tests.helpers.markers import marker
from tests.kafka.jvm import NOW, Kafka

LOGS = int(os.environ.get("KSTORE_KAFKA_COMPACTIONS", "20"))
CODECS = ("none", "none", "none", "gzip", "snappy", "lz4", "zstd")


class Story:
    """Random batches, the same for both logs: producers, transactions, gaps, tombstones, large and small keys."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = NOW
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.keys = rng.choice([1, 4, 30])
        self.plain_only = rng.random() < 0.4  # then files must be equal to the byte
        self.config = {
            "cleanup.policy": "compact",
            "internal.segment.bytes": str(rng.choice([600, 3000, 20_000])),
            "index.interval.bytes": str(rng.choice([0, 200, 4096])),
            "delete.retention.ms": str(rng.choice([0, 1000, 10**8])),
            "message.timestamp.type": rng.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
        }

    def batch(self, end: int) -> tuple[bytes, dict[str, object]]:
        """A batch, and how it is appended to a log that ends there."""
        rng = self.rng
        self.now += rng.randrange(100)
        if self.open and rng.random() < 0.2:
            producer = rng.choice(sorted(self.open))
            self.open.discard(producer)
            kind = rng.choice(["ABORT", "COMMIT"])
            return marker(kind, producer, self.now), {"origin": "coordinator", "transaction_version": 0}
        records = []
        for _ in range(rng.choice([1, 1, 2, 5, 30])):
            key = b"%d" % rng.randrange(self.keys)
            if rng.random() < 0.05:
                key = rng.choice([b"", b"K" * rng.randrange(1, 3000)])
            value = None if rng.random() < 0.15 else rng.randbytes(rng.randrange(60))
            headers = [("h", rng.randbytes(rng.randrange(300))), ("n", None)] if rng.random() < 0.1 else None
            records.append((self.now + rng.randrange(-99, 99), key, value, headers))
        options: dict[str, object] = {"codec": "none" if self.plain_only else rng.choice(CODECS)}
        if rng.random() < 0.5:
            producer = rng.randrange(6)
            options |= {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": self.sequences.get(producer, 0),
                "transactional": producer < 3,
            }
            self.sequences[producer] = self.sequences.get(producer, 0) + len(records)
            if producer < 3:
                self.open.add(producer)
        elif rng.random() < 0.1:
            encoded = kstore.encode_batch(records, base_offset=end + rng.randrange(50), leader_epoch=0)
            return encoded, {"keep_offsets": True}
        return kstore.encode_batch(records, **options), {}  # type: ignore[arg-type]


def opened(directory: Path, story: Story) -> kstore.LogWriter:
    config = kstore.LogConfig.from_topic(story.config | {"min.cleanable.dirty.ratio": "0"})
    return kstore.open(directory, "a", config=config.replace(file_delete_delay_ms=0), clock=lambda: story.now)


def write(directories: list[Path], story: Story, count: int) -> None:
    """Appends so many batches to each."""
    logs = [opened(directory, story) for directory in directories]
    for _ in range(count):
        batch, options = story.batch(logs[0].log_end_offset)
        for log in logs:
            try:
                log.append_batches(batch, **options)  # type: ignore[arg-type]
            except (kstore.RecordTooLargeError, kstore.OutOfOrderSequenceError):
                story.open -= set(story.sequences)
                story.sequences.clear()
    roll = story.rng.random() < 0.7
    for log in logs:
        if roll:
            log.roll()
        log.close()


@pytest.mark.filterwarnings(
    "ignore::kstore.DataLossWarning"
)  # a follower left gaps, before the first cleaning
@pytest.mark.parametrize("seed", range(LOGS))
def test_the_same_as_kafkas(kafka: Kafka, tmp_path: Path, seed: int) -> None:
    story = Story(random.Random(seed))
    ours, theirs = tmp_path / "ours" / "t-0", tmp_path / "theirs" / "t-0"
    for directory in (ours, theirs):
        directory.parent.mkdir()
        (directory.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    for _ in range(story.rng.randrange(1, 5)):
        write([ours, theirs], story, story.rng.randrange(5, 60))
        story.now += story.rng.choice([0, 500, 2000, 10**9])
        if story.rng.random() < 0.3:
            story.config["internal.segment.bytes"] = "1000000"
        with opened(ours, story) as log:
            done = log.compact()
            start, end = log.log_start_offset, log.log_end_offset
        if done.segments:
            config = story.config | {"file.delete.delay.ms": "0"}
            their = kafka.open(theirs, config, now=story.now, recovery_point=end, log_start_offset=start)
            bounds = {
                "first_dirty": done.first_dirty_offset,
                "first_uncleanable": done.first_uncleanable_offset,
            }
            assert their.ask("clean", **bounds)["end_offset"] == done.end_offset
            their.ask("now", ms=story.now + 1)
            their.ask("close")
        compare(ours, theirs, story)


def compare(ours: Path, theirs: Path, story: Story) -> None:
    assert [n for n in names(ours) if n[-4:] != "shot"] == [n for n in names(theirs) if n[-4:] != "shot"]
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
