"""LogManagerTest, LocalLogTest, LeaderEpochFileCacheTest and the checkpoint tests: what of them writes."""

import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

import kstore
from kstore import LogLockedError, OffsetOutOfRangeError, TopicPartition
from kstore.log.files import checkpoints
from tests.conformance.writing import SIZE, Clock, bases, epochs_on_disk, files, offsets, opened, put, rec

MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A broker's log directory."""
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    return tmp_path


def recovery_points(data: Path) -> dict[TopicPartition, int]:
    return checkpoints.read_offsets(data / "recovery-point-offset-checkpoint")


def log_starts(data: Path) -> dict[TopicPartition, int]:
    return checkpoints.read_offsets(data / "log-start-offset-checkpoint")


def kafkas_files(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir() if not entry.name.startswith("kstore-")]


# ---- LogManagerTest -----------------------------------------------------------------------------


def test_create_log(data: Path) -> None:
    """A log is made where there is none; "r+" wants one that is there."""
    with pytest.raises(kstore.LogNotFoundError):
        kstore.open(data / "topic-0", "r+")
    log = opened(data)
    put(log, rec())
    log.close()
    kstore.open(data / "topic-0", "r+").close()


@pytest.mark.parametrize("topic", ["a" * 249, "a.b_c-d"])
def test_create_log_with_long_or_odd_name(data: Path, topic: str) -> None:
    """A topic of the largest size that a name may have."""
    log = kstore.open(data / f"{topic}-7", "a")
    log.append(b"v")
    log.close()
    assert recovery_points(data) == {TopicPartition(topic, 7): 1}
    assert offsets(kstore.LogStore(data).open(topic, 7)) == [0]


def test_cleanup_expired_segments(data: Path) -> None:
    """200 records; past retention.ms all go but what comes after: 4 files a segment and the epochs."""
    clock = Clock()
    log = opened(data, clock, segment_bytes=4 * SIZE, retention_ms=600_000)
    put(log, *[rec(timestamp=clock.now) for _ in range(200)])
    assert len(log.segments) == 50
    clock.sleep(600_001)
    log.retain()
    assert bases(log) == [200]
    clock.sleep(60_001)
    log.retain()
    assert {p.name.partition(".")[2] for p in (data / "topic-0").glob("0*")} == {"log", "snapshot"}
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, 1024)
    put(log, rec())
    assert sorted(p.name[20:] for p in (data / "topic-0").glob("0*")) == [
        ".index",
        ".log",
        ".snapshot",
        ".timeindex",
    ]
    assert len(kafkas_files(data / "topic-0")) == 1 * 4 + 1


def test_cleanup_segments_to_maintain_size(data: Path) -> None:
    """20 segments of 10, retention.bytes 5 segments and 10 bytes: 6 are left, 4 files each and the epochs."""
    clock = Clock()
    log = opened(data, clock, segment_bytes=10 * SIZE, retention_bytes=50 * SIZE + 10)
    put(log, *[rec() for _ in range(200)])
    assert len(log.segments) == 20
    log.retain()
    assert (len(log.segments), log.log_start_offset) == (6, 140)
    clock.sleep(60_001)
    log.retain()
    assert len(kafkas_files(data / "topic-0")) == 6 * 4 + 1
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, 1024)


@pytest.mark.parametrize("how", ["flush_ms", "flush_messages"])
def test_time_based_flush(data: Path, how: str) -> None:
    """flush.ms, and flush.messages: what was appended reaches the disk by itself."""
    log = opened(data, **{"flush_ms": 10} if how == "flush_ms" else {"flush_messages": 5})
    put(log, *[rec() for _ in range(4)])
    if how == "flush_messages":
        assert log.durable_offset == 0
    put(log, rec())
    for _ in range(500):
        if log.durable_offset == 5:
            break
        time.sleep(0.01)
    assert log.durable_offset == 5


def test_two_log_managers_using_same_dir(data: Path) -> None:
    """The same log a second time, and any log of the directory from another process."""
    log = opened(data)
    with pytest.raises(LogLockedError):
        opened(data)
    other = kstore.open(data / "topic-1", "a")
    code = f"import kstore; kstore.open({str(data / 'topic-2')!r}, 'a')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "LogLockedError" in done.stderr
    log.close()
    other.close()
    opened(data).close()
    assert not (data / ".lock").exists()


def test_checkpoint_recovery_points(data: Path) -> None:
    """A flush after a roll stores the recovery point, closing too; other partitions' stay."""
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\nother 3 17\n")
    other, mine = TopicPartition("other", 3), TopicPartition("topic", 0)
    log = opened(data)
    put(log, rec(), rec())
    log.roll()
    put(log, rec())
    log.flush()
    assert recovery_points(data) in (
        {other: 17, mine: 2},
        {other: 17, mine: 3},
    )  # by the roll, or by this flush
    log.truncate_to(1)
    assert recovery_points(data) == {other: 17, mine: 1}
    put(log, rec())
    log.close()
    assert recovery_points(data) == {other: 17, mine: 2}


def test_checkpoint_log_start_offsets(data: Path) -> None:
    """Only a log start above the first segment's base is stored, and goes once it is that base."""
    log = opened(data, segment_bytes=2 * SIZE, retention_ms=-1)
    put(log, *[rec() for _ in range(6)])
    log.delete_records(3)
    assert log_starts(data) == {TopicPartition("topic", 0): 3}
    log.retain()
    assert log_starts(data) == {TopicPartition("topic", 0): 3}
    log.delete_records(4)
    log.retain()
    log.close()
    assert log_starts(data) == {}
    assert kstore.open(data / "topic-0").log_start_offset == 4


def test_high_watermark_checkpoint(data: Path) -> None:
    """Spec 1.4: a broker that takes over finds the high watermark at the end."""
    log = opened(data)
    put(log, rec())
    log.close()
    found = checkpoints.read_offsets(data / "replication-offset-checkpoint")
    assert found == {TopicPartition("topic", 0): 1}


def test_clean_shutdown_file(data: Path) -> None:
    """The marker goes when a log is opened, and is there again, as Kafka writes it, once all are closed cleanly."""
    first, second = kstore.open(data / "topic-0", "a"), kstore.open(data / "topic-1", "a")
    first.append(b"v")
    first.close()
    assert not (data / MARKER).exists()
    second.close()
    assert (data / MARKER).read_text() == '{"version":0,"brokerEpoch":-1}'
    log = kstore.open(data / "topic-1", "a")
    assert log.recovery.clean
    assert not (data / MARKER).exists()
    log.close()
    assert (data / MARKER).exists()


def test_no_clean_shutdown_file_after_a_crash(data: Path) -> None:
    """One of two was not closed: no marker, so both are recovered at the next start."""
    first, second = kstore.open(data / "topic-0", "a"), kstore.open(data / "topic-1", "a")
    first.abandon()
    second.close()
    assert not (data / MARKER).exists()
    log = kstore.open(data / "topic-0", "a")
    assert not log.recovery.clean
    log.close()


def test_recovery_directory_mapping(tmp_path: Path) -> None:
    """A path with a slash at its end, or relative, is the same log to the checkpoints."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    log = kstore.open(f"{tmp_path}/topic-0/", "a")
    log.append(b"v")
    log.close()
    assert recovery_points(tmp_path) == {TopicPartition("topic", 0): 1}
    assert kstore.open(tmp_path / "topic-0").recovery.clean


def test_reconfigure(tmp_path: Path) -> None:
    """TestTopicConfigChange: another segment.bytes and retention of an open log count from then on."""
    log = opened(tmp_path)
    put(log, rec(), rec())
    log.configure(internal_segment_bytes=SIZE)
    put(log, rec(), rec())
    assert bases(log) == [0, 2, 3]
    log.configure(retention_bytes=SIZE)
    log.retain()
    assert bases(log) == [3]


# ---- LocalLogTest -------------------------------------------------------------------------------


def _twelve(path: Path) -> kstore.LogWriter:
    log = opened(path, segment_bytes=3 * SIZE)
    put(log, *[rec() for _ in range(12)])
    assert bases(log) == [0, 3, 6, 9]
    return log


def test_truncate_fully_and_start_at(tmp_path: Path) -> None:
    """12 records, 3 a segment, started anew at 10: one segment there, the old files go."""
    log = _twelve(tmp_path)
    log.flush()
    log.truncate_fully_and_start_at(10)
    assert (bases(log), log.log_end_offset, log.durable_offset, list(log)) == ([10], 10, 10, [])
    assert files(tmp_path, ".log") == [10]
    assert files(tmp_path, ".log.deleted") == [0, 3, 6, 9]
    assert put(log, rec()).first_offset == 10


def test_truncate_fully_with_log_start(tmp_path: Path) -> None:
    """Spec 8.10: with a log start offset of its own; a snapshot only if there is something between."""
    log = _twelve(tmp_path)
    log.truncate_fully_and_start_at(20, 15)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (15, 20, [20])
    assert files(tmp_path, ".snapshot") == [20]


def test_truncate_to(tmp_path: Path) -> None:
    """12 records, 3 a segment, truncated to 7: 3 segments, the end is 7, durable no further."""
    log = _twelve(tmp_path)
    log.flush()
    log.truncate_to(7)
    assert (bases(log), log.log_end_offset, log.durable_offset) == ([0, 3, 6], 7, 7)
    assert offsets(log) == list(range(7))
    assert put(log, rec()).first_offset == 7
    with pytest.raises(ValueError, match="offset is from 0"):
        log.truncate_to(-1)


def test_truncate_to_a_base_offset(tmp_path: Path) -> None:
    """Spec 8.9: the segment with that base is kept, and emptied."""
    log = _twelve(tmp_path)
    log.truncate_to(6)
    assert (bases(log), log.segments[-1].size, log.log_end_offset) == ([0, 3, 6], 0, 6)


def test_truncated_segments_stay_deleted(tmp_path: Path) -> None:
    """A crash after truncation, with the .deleted files still there."""
    log = _twelve(tmp_path)
    log.truncate_to(4)
    put(log, rec(b"tset"))
    log.abandon()
    log = opened(tmp_path, segment_bytes=3 * SIZE)
    assert [(r.offset, r.value) for r in log] == [(i, b"test") for i in range(4)] + [(4, b"tset")]
    assert list((tmp_path / "topic-0").glob("*.deleted")) == []


def test_flush(tmp_path: Path) -> None:
    """What is flushed is durable, and stays so when nothing comes after."""
    log = opened(tmp_path)
    assert log.flush() == 0
    put(log, rec(), rec())
    assert log.durable_offset == 0
    assert (log.flush(), log.durable_offset) == (2, 2)
    log.roll()
    put(log, rec())
    assert (log.durable_offset, log.flush()) == (2, 3)


def test_roll_empty_active_segment(tmp_path: Path) -> None:
    """roll() of an empty active segment keeps it, with nothing set aside."""
    log = opened(tmp_path)
    assert (log.roll(), bases(log)) == (0, [0])
    assert files(tmp_path, ".log.deleted") == []
    put(log, rec())
    assert offsets(log) == [0]


# ---- epochs and checkpoints ---------------------------------------------------------------------


def test_should_persist_epochs_between_instances(tmp_path: Path) -> None:
    """LeaderEpochFileCacheTest: what was assigned is there after reopening, but for epochs that wrote nothing."""
    log = opened(tmp_path, leader_epoch=2)
    put(log, rec())
    log.assign_leader_epoch(5)
    put(log, rec())
    log.assign_leader_epoch(6)
    assert log.leader_epochs == ((2, 0), (5, 1), (6, 2))
    assert epochs_on_disk(tmp_path) == [(2, 0), (5, 1), (6, 2)]
    log.close()
    log = opened(tmp_path)
    assert log.leader_epochs == ((2, 0), (5, 1))
    assert (log.leader_epoch, epochs_on_disk(tmp_path)) == (5, [(2, 0), (5, 1)])


def test_should_not_overwrite_offset_for_a_leader_epoch(tmp_path: Path) -> None:
    """The same epoch again keeps its beginning; a lower one takes those above it away."""
    log = opened(tmp_path, leader_epoch=2)
    put(log, rec())
    log.assign_leader_epoch(2)
    assert log.leader_epochs == ((2, 0),)
    put(log, rec(), leader_epoch=3)
    put(log, rec(), leader_epoch=2)
    assert log.leader_epochs == ((2, 2),)


def test_persist_overwrite_and_reload_offsets(tmp_path: Path) -> None:
    """OffsetCheckpointFileTest: round trip of ten entries, then overwritten; the bytes are Kafka's."""
    file = tmp_path / "file"
    many = {TopicPartition("foo", i): 5 * i for i in range(10)}
    checkpoints.write_offsets(file, many)
    assert checkpoints.read_offsets(file) == many
    checkpoints.write_offsets(file, {TopicPartition("bar", 2): 2**63 - 1})
    assert file.read_bytes() == b"0\n1\nbar 2 9223372036854775807\n"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_persist_overwrite_and_reload_epochs(tmp_path: Path) -> None:
    """LeaderEpochCheckpointFileTest: round trip, then overwritten."""
    file = tmp_path / "file"
    for entries in ([(0, 1), (1, 2), (2, 3)], [(2, 3), (5, 1000)], []):
        checkpoints.write_epochs(file, entries)
        assert checkpoints.read_epochs(file) == entries


def test_partition_metadata_file(tmp_path: Path) -> None:
    """PartitionMetadataFileTest: two lines, the id in 22 characters."""
    file = tmp_path / "partition.metadata"
    known = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
    checkpoints.write_topic_id(file, known)
    assert file.read_text() == "version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w"
    assert checkpoints.read_topic_id(file) == known


# ---- the same while another thread flushes ------------------------------------------------------


class _Slow:
    """A file whose sync waits to be let go."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def sync(self) -> None:
        self.begun.set()
        assert self.go.wait(10)


def test_flush_around_truncation(tmp_path: Path) -> None:
    """What is appended after a truncation is not durable through a sync that had begun before it."""
    log, slow = opened(tmp_path), _Slow()
    put(log, rec(), rec(), rec())
    log._owe_sync([slow], False)
    thread = threading.Thread(target=log.flush)
    thread.start()
    assert slow.begun.wait(10)
    log.truncate_to(1)
    put(log, rec())
    slow.go.set()
    thread.join()
    assert log.durable_offset <= 1
    log.flush()
    assert log.durable_offset == 2


@pytest.mark.parametrize("change", ["delete_records", "truncate_to"])
def test_checkpoints_around_a_flush(data: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """A flush that is about to write the checkpoints does not write what delete_records or truncate_to took back."""
    log = opened(data)
    log._flusher.stop()  # only the thread below flushes
    put(log, rec(), rec())
    log.roll()
    put(log, rec(), rec())
    store, begun = log._log_dir.store, threading.Event()

    def slowly(point: int, start: int | None) -> None:
        if threading.current_thread() is thread:
            begun.set()
            time.sleep(0.2)
        store(point, start)

    monkeypatch.setattr(log._log_dir, "store", slowly)
    thread = threading.Thread(target=log.flush)
    thread.start()
    assert begun.wait(10)
    getattr(log, change)(3)
    thread.join()
    mine = TopicPartition("topic", 0)
    if change == "delete_records":
        assert log_starts(data) == {mine: 3}
    else:
        assert recovery_points(data)[mine] <= 3
