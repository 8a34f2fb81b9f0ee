"""A check finds each single damage, or the table says why it is harmless."""

import os
import random
import shutil
from pathlib import Path

import pytest

import kstore
from tests.checking import damage
from tests.checking.damage import Damage, kind_of
from tests.checking.sound import KINDS, write_partition, write_store
from tests.helpers.effort import SEED, times

# What a check may pass over, by the kind of damage and of the file.
HARMLESS: dict[tuple[str, str], str] = {
    ("flip", ".kafka_cleanshutdown"): "only its existence counts",
    ("cut", ".kafka_cleanshutdown"): "only its existence counts",
    **{
        (kind, "kstore-cursors.lock"): "its content means nothing, and it is created again"
        for kind in damage.KINDS
    },
    (
        "flip",
        "leader-epoch-checkpoint",
    ): "an entry without batches, or a start below the first batch of its epoch",
    ("older", "leader-epoch-checkpoint"): "each batch has the epoch that the older file says",
    ("cut", "leader-epoch-checkpoint"): "it had no entries, and has none",
    ("lose", "leader-epoch-checkpoint"): "it had no entries",
    ("swap", "leader-epoch-checkpoint"): "both say the epoch of each batch",
    ("lose", ".index"): "the segment is empty, and the first append creates its indexes",
    ("lose", ".timeindex"): "the segment is empty, and the first append creates its indexes",
    ("older", ".index"): "its entries are right; lookups read more bytes",
    ("cut", ".index"): "its entries are right; lookups read more bytes",
    ("cut", ".timeindex"): "its entries are right, and the last one has the largest timestamp",
    ("older", ".timeindex"): "its entries are right, and the last one has the largest timestamp",
    ("lose", ".snapshot"): "Kafka and kstore make it again from the batches",
    ("swap", ".snapshot"): "both have no producers, or producers that the log does not have any more",
    ("older", ".snapshot"): "its producers are as in the log",
    ("flip", "replication-offset-checkpoint"): "a lower high watermark: a broker raises it again",
    ("older", "replication-offset-checkpoint"): "a lower high watermark: a broker raises it again",
    ("lose", "replication-offset-checkpoint"): "a broker begins with the log start offset",
    **{
        ("cut", f"{name}-offset-checkpoint"): "the last newline, or a digit: a lower offset within the log"
        for name in ("replication", "cleaner", "log-start", "recovery-point")
    },
    ("flip", "cleaner-offset-checkpoint"): "a lower offset: the next compaction reads more",
    ("lose", "cleaner-offset-checkpoint"): "the next compaction begins at the start of the log",
    ("older", "cleaner-offset-checkpoint"): "a lower offset: the next compaction reads more",
    ("flip", "log-start-offset-checkpoint"): "another offset within the log: nothing else has it",
    (
        "lose",
        "log-start-offset-checkpoint",
    ): "deleted records are readable again: nothing else has the offset",
    (
        "older",
        "log-start-offset-checkpoint",
    ): "deleted records are readable again: nothing else has the offset",
    ("flip", ".positions"): "the offset of the first batch of a file of positions means nothing",
    ("cut", ".positions"): "the file had one commit, and has none",
    # no checksum and no other file tells; promises.md, "an older copy put back"
    ("lose", ".positions"): "nothing else names the group",
    ("older", ".positions"): "it is a sound earlier state",
    ("flip", "kstore.json"): "the name or the value of a field: no checksum covers it",
    ("lose", "kstore.json"): "nothing else has the options of a partition",
    ("older", "kstore.json"): "it is a sound earlier state",
    ("swap", "kstore.json"): "nothing else has the options of a partition",
}


def reason(done: Damage) -> str | None:
    """Why a check may pass over a damage, or None."""
    kind = ".positions" if done.file.suffix == ".positions" else kind_of(done.file)
    if (done.kind, kind, done.file.parent.name) == ("older", ".log", "keyed-0"):
        return "a sound file from before a compaction, which may have removed what it lacks"
    return HARMLESS.get((done.kind, kind))


def problems(path: Path) -> list[str]:
    """The codes of the findings, except those of a sound directory with open transactions."""
    found = kstore.check(path).findings
    return [finding.code for finding in found if finding.code not in ("hanging_transaction",)]


def test_single_damages(tmp_path: Path) -> None:
    """EFFORT=225 tries 10,000: a quarter of the attempts would change nothing."""
    sound, older, damaged = (tmp_path / name for name in ("sound", "older", "damaged"))
    missed = []
    for number in range(times(60)):
        rng = random.Random(f"{SEED} {number}")
        if number % 30 == 0:
            shutil.rmtree(sound, ignore_errors=True)
            shutil.rmtree(older, ignore_errors=True)
            write_store(sound, rng)
            shutil.copytree(sound, older)
            for kind in KINDS:
                write_partition(sound / f"{kind}-0", rng, kind)
            assert problems(sound) == []
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(sound, damaged)
        done = damage.do(rng, damaged, older)
        if done is not None and not problems(damaged) and reason(done) is None:
            missed.append(f"SEED={SEED}, number {number}: {done}")
    assert missed == []


def test_an_entry_of_a_time_index_behind_its_batch(tmp_path: Path) -> None:
    """It has the largest timestamp up to its offset, and lookups by time miss the batch that has it."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", config=kstore.LogConfig(index_interval_bytes=1)) as log:
        for timestamp in (1000, 1004, 1001, 1002, 2000):
            log.append(b"value", timestamp=timestamp)
    index = path / f"{0:020}.timeindex"
    data = bytearray(index.read_bytes())
    entries = [bytes(data[at : at + 12]) for at in range(0, len(data), 12)]
    slot = entries.index((1004).to_bytes(8, "big") + (1).to_bytes(4, "big"))
    data[slot * 12 + 11] = 3
    index.write_bytes(data)
    (finding,) = kstore.check(path).findings
    assert (finding.code, finding.file, finding.position) == ("index_differs", str(index), slot * 12)


@pytest.mark.parametrize(("at", "offsets"), [(0, (0, 1)), (1, (4, 5)), (-1, (8, 9)), (-1, (8, 15))])
def test_offsets_missing_before_the_first_batch(tmp_path: Path, at: int, offsets: tuple[int, int]) -> None:
    """A segment that was never compacted begins at its name. The last one may be that of another log."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        for number in range(6):
            log.extend([b"value"] * 2)
            if number in (1, 3):
                log.roll()
        batches = [batch.data for batch in log.batches()]
    lost = sorted(path.glob("*.log"))[at]
    other = kstore.encode_batch([(1, None, b"other", None)], base_offset=offsets[1] + 1)
    lost.write_bytes(batches[offsets[1] // 2 + 1] if offsets[1] < 12 else other)
    found = [each for each in kstore.check(path).problems() if each.code == "offset_gap"]
    assert [(each.file, each.position, each.offsets) for each in found] == [(str(lost), 0, offsets)]
    kstore.repair(path, run=True)
    assert ("gap_noted", offsets) in [(each.code, each.offsets) for each in kstore.check(path).findings]


def test_a_log_that_begins_at_another_offset(tmp_path: Path) -> None:
    """Its leader epochs say so."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for offset in (50, 51):
            batch = kstore.encode_batch([(1, None, b"value", None)], base_offset=offset, leader_epoch=0)
            log.append_batches(batch, keep_offsets=True)
    assert kstore.check(tmp_path / "t-0").findings == ()


def test_no_false_alarm(tmp_path: Path) -> None:
    """EFFORT=25 tries 1,000."""
    for number in range(times(40)):
        kind = KINDS[number % len(KINDS)]
        path = tmp_path / f"{kind}{number}-0"
        write_partition(path, random.Random(f"{SEED} {number}"), kind)
        report = kstore.check(path)
        assert report.is_whole, f"SEED={SEED}, number {number}: {report}"
        shutil.rmtree(path)


@pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex"])
@pytest.mark.parametrize("at", [1, -1])
def test_an_index_that_cannot_be_read(tmp_path: Path, kind: str, at: int) -> None:
    """No offset is missing for that."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        for _ in range(3):
            log.extend([b"value"] * 300)
            log.roll()
        log.append(b"last")
    index = sorted(path.glob("*.log"))[at].with_suffix(f".{kind}")
    index.unlink(missing_ok=True)
    os.mkfifo(index)
    assert [(each.code, each.file) for each in kstore.check(path).findings] == [
        ("unreadable_file", str(index))
    ]


@pytest.mark.parametrize("kind", ["fifo", "directory", "loop", "device"])
@pytest.mark.parametrize(
    "name",
    [
        "t-0/leader-epoch-checkpoint",
        "t-0/00000000000000000300.snapshot",
        "t-0/00000000000000000000.index",
        "t-0/00000000000000000000.timeindex",
        "t-0/00000000000000000000.txnindex",
        "t-0/00000000000000000000.log",
        "t-0/partition.metadata",
        "t-0/kstore.json",
        "t-0/kstore-shares",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "meta.properties",
    ],
)
def test_what_is_no_file(tmp_path: Path, name: str, kind: str) -> None:
    """What has the name of a file and is none is a finding, and the rest is checked."""
    with kstore.LogStore(tmp_path, mode="a") as store:
        for topic in ("t", "u"):
            store.create_topic(topic, 1)
            store.extend(topic, [b"value"] * 300)
    (last,) = (tmp_path / "u-0").glob("*.log")
    last.write_bytes(last.read_bytes()[:-1])
    path = tmp_path / name
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(path.name if kind == "loop" else "/dev/zero")
    files = [Path(finding.file) for finding in kstore.check(tmp_path).findings]
    assert last in files
    # an empty directory of share groups has none, and a link to nowhere is no meta.properties
    assert path in files or path.name in ("kstore-shares", "meta.properties")
