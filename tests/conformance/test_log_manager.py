"""LogManagerTest: logs of one directory, of several, and what is written beside them."""

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import kstore
from kstore import LogLockedError, LogStore, OffsetOutOfRangeError
from kstore.engine.io.faults import trace_calls
from tests.conformance.writing import SIZE, Clock, bases, offsets, opened, put, rec
from tests.helpers.forge import read_checkpoint
from tests.helpers.waiting import until

MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A broker's log directory."""
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    return tmp_path


def recovery_points(data: Path) -> dict[tuple[str, int], int]:
    return read_checkpoint(data / "recovery-point-offset-checkpoint")


def log_starts(data: Path) -> dict[tuple[str, int], int]:
    return read_checkpoint(data / "log-start-offset-checkpoint")


def kafkas_files(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir() if not entry.name.startswith("kstore")]


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
    assert recovery_points(data) == {(topic, 7): 1}
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
    kinds = sorted(p.name[20:] for p in (data / "topic-0").glob("0*"))
    assert kinds == [".index", ".log", ".snapshot", ".timeindex"]
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
    log = opened(data, **{how: 5})
    put(log, *[rec() for _ in range(4)])
    if how == "flush_messages":
        assert log.durable_offset == 0
    put(log, rec())
    until(lambda: log.durable_offset == 5)


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
    """A flush after a roll stores the recovery point, closing too; other partitions' stay. Spec 1.4: a broker
    that takes over finds the high watermark at the end."""
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\nother 3 17\n")
    other, mine = ("other", 3), ("topic", 0)
    log = opened(data)
    put(log, rec(), rec())
    log.roll()
    put(log, rec())
    log.flush()
    assert recovery_points(data)[mine] in (2, 3)  # by the roll, or by this flush
    log.truncate_to(1)
    assert recovery_points(data) == {other: 17, mine: 1}
    put(log, rec())
    log.close()
    assert recovery_points(data) == {other: 17, mine: 2}
    assert read_checkpoint(data / "replication-offset-checkpoint") == {mine: 2}


def test_checkpoint_log_start_offsets(data: Path) -> None:
    """Only a log start above the first segment's base is stored, and goes once it is that base."""
    log = opened(data, segment_bytes=2 * SIZE, retention_ms=-1)
    put(log, *[rec() for _ in range(6)])
    log.delete_records(3)
    assert log_starts(data) == {("topic", 0): 3}
    log.retain()
    assert log_starts(data) == {("topic", 0): 3}
    log.delete_records(4)
    log.retain()
    log.close()
    assert log_starts(data) == {}
    assert kstore.open(data / "topic-0").log_start_offset == 4


def test_clean_shutdown_file(data: Path) -> None:
    """The marker is removed when a log is opened, and written, as Kafka does, once all are closed cleanly."""
    first, second = kstore.open(data / "topic-0", "a"), kstore.open(data / "topic-1", "a")
    first.append(b"v")
    first.close()
    assert not (data / MARKER).exists()
    second.close()
    assert (data / MARKER).read_text() == '{"version":0,"brokerEpoch":-1}'
    log = kstore.open(data / "topic-1", "a")
    assert log.recovery.clean
    assert not (data / MARKER).exists()
    first = kstore.open(data / "topic-0", "a")
    first.abandon()  # one of two was not closed: both are recovered at the next start
    log.close()
    assert not (data / MARKER).exists()
    for name in ("topic-0", "topic-1"):
        with kstore.open(data / name, "a") as log:
            assert not log.recovery.clean


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


# ---- several directories -------------------------------------------------------------------------


def written(store: LogStore, topic: str, partition: int = 0) -> kstore.LogWriter:
    log = store.log(topic, partition)
    assert isinstance(log, kstore.LogWriter)
    return log


def test_least_loaded_assignment(tmp_path: Path) -> None:
    """A new partition goes to the directory that has the fewest."""
    dirs = [tmp_path / name for name in ("a", "b", "c")]
    with LogStore(*dirs, mode="a", background=False) as store:
        for number in range(20):
            store.create_topic(f"t{number}")
            counts = Counter(path.name for d in dirs for path in d.iterdir() if path.is_dir())
            assert sum(counts.values()) == number + 1
            sizes = [sum(path.is_dir() for path in d.iterdir()) for d in dirs]
            assert max(sizes) - min(sizes) <= 1


def test_checkpoints_of_several_directories(tmp_path: Path) -> None:
    """Each directory has the recovery points of its own partitions, and the log starts that moved."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    with LogStore(*dirs, mode="a", background=False) as store:
        store.create_topic("t", 4)
        for number in range(4):
            log = written(store, "t", number)
            log.extend([b"v"] * (number + 1))
            if number == 3:
                log.delete_records(2)
        del log
    points: dict[tuple[str, int], int] = {}
    starts: dict[tuple[str, int], int] = {}
    for directory in dirs:
        assert (directory / MARKER).exists()
        mine = recovery_points(directory)
        assert {f"t-{number}" for _, number in mine} == {p.name for p in directory.iterdir() if p.is_dir()}
        points |= mine
        starts |= log_starts(directory)
    assert points == {("t", number): number + 1 for number in range(4)}
    assert starts == {("t", 3): 2}


def test_index_cache_of_remote_storage_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "remote-log-index-cache").mkdir()
    (tmp_path / "remote-log-index-cache" / "x").touch()
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
        assert store.others == ["remote-log-index-cache"]
    assert (tmp_path / MARKER).exists()
    assert (tmp_path / "remote-log-index-cache" / "x").exists()


@pytest.mark.parametrize("spelled", ["{}/", "{}/.", "{}/../{name}", "{link}"])
def test_recovery_directory_mapping(tmp_path: Path, spelled: str) -> None:
    """However the directory is spelled, its checkpoints are found; of a single log too."""
    data = tmp_path / "data"
    (tmp_path / "link").symlink_to(data)
    path = spelled.format(data, name="data", link=tmp_path / "link")
    with LogStore(data, mode="a", background=False) as store:
        store.create_topic("t")
        written(store, "t").extend([b"v"] * 3)
    with LogStore(path, mode="a", background=False) as store:
        assert written(store, "t").recovery.recovery_point == 3
        with pytest.raises(LogLockedError):
            LogStore(data, mode="a")
    with kstore.open(f"{path}/t-0/", "a") as log:
        assert (log.recovery.recovery_point, log.recovery.clean) == (3, True)
        log.append(b"v")
    assert recovery_points(data) == {("t", 0): 4}


# ---- while another thread flushes ----------------------------------------------------------------


def test_flush_around_truncation(tmp_path: Path, sound_calls: None) -> None:
    """What is appended after a truncation is not durable through a sync that had begun before it."""
    log = opened(tmp_path)
    put(log, rec(), rec(), rec())
    begun, let, mine = threading.Event(), threading.Event(), threading.get_ident()

    def meet(call: str, path: str, *_: object) -> None:
        if call == "syncs" and path.endswith(".log") and threading.get_ident() != mine:
            begun.set()
            assert let.wait(60)

    trace_calls(meet)
    thread = threading.Thread(target=log.flush)
    thread.start()
    assert begun.wait(60)
    log.truncate_to(1)
    put(log, rec())
    let.set()
    thread.join()
    assert log.durable_offset <= 1
    log.flush()
    assert log.durable_offset == 2
