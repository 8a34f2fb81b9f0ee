"""LogManagerTest: what of it concerns several logs, or several directories."""

from collections import Counter
from pathlib import Path

import pytest

import kstore
from kstore import LogStore, TopicPartition
from kstore.log.files import checkpoints

MARKER = ".kafka_cleanshutdown"
OLD = 1_600_000_000_000


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


@pytest.mark.parametrize("policy", [["compact"], ["compact", "delete"], ["delete"]], ids="-".join)
def test_logs_that_retention_does_not_delete(tmp_path: Path, policy: list[str]) -> None:
    """A topic that is only compacted loses nothing by age."""
    with LogStore(tmp_path, mode="a", background=False, message_timestamp_before_max_ms=2**62) as store:
        store.create_topic("t", retention_ms=1, cleanup_policy=policy)
        log = written(store, "t")
        for i in range(5):
            log.append(b"v", b"k%d" % i, timestamp=OLD)
            log.roll()
        store.retain()
        assert log.log_start_offset == (5 if "delete" in policy else 0)


def test_checkpoints_of_several_directories(tmp_path: Path) -> None:
    """Each directory has the recovery points of its own partitions, and the starts of those that have lost records."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    with LogStore(*dirs, mode="a", background=False) as store:
        store.create_topic("t", 4)
        for number in range(4):
            log = written(store, "t", number)
            log.extend([b"v"] * (number + 1))
            if number == 3:
                log.delete_records(2)
        del log
    points: dict[TopicPartition, int] = {}
    starts: dict[TopicPartition, int] = {}
    for directory in dirs:
        assert (directory / MARKER).exists()
        mine = checkpoints.read_offsets(directory / "recovery-point-offset-checkpoint")
        assert {str(tp) for tp in mine} == {path.name for path in directory.iterdir() if path.is_dir()}
        points |= mine
        starts |= checkpoints.salvage_offsets(directory / "log-start-offset-checkpoint")[0]
    assert points == {TopicPartition("t", number): number + 1 for number in range(4)}
    assert starts == {TopicPartition("t", 3): 2}


def test_no_clean_shutdown_file_where_one_log_was_not_closed(tmp_path: Path) -> None:
    """Of two directories one is clean."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    with LogStore(*dirs, mode="a", background=False) as store:
        store.create_topic("t", 2)
        for number in (0, 1):
            written(store, "t", number).append(b"v")
        place = store.describe("t").partitions[1]
        for file in place.glob("*.log"):
            file.unlink()
        with pytest.raises(kstore.LogFailedError):
            store.close()
    assert [(d / MARKER).exists() for d in dirs] == [d != place.parent for d in dirs]


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
    """However the directory is spelled, its checkpoints are found."""
    data = tmp_path / "data"
    (tmp_path / "link").symlink_to(data)
    path = spelled.format(data, name="data", link=tmp_path / "link")
    with LogStore(data, mode="a", background=False) as store:
        store.create_topic("t")
        written(store, "t").extend([b"v"] * 3)
    with LogStore(path, mode="a", background=False) as store:
        assert written(store, "t").recovery.recovery_point == 3
        with pytest.raises(kstore.LogLockedError):
            LogStore(data, mode="a")
