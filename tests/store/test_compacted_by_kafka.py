"""What is known to be compacted loses nothing by retention unless somebody has said that it may."""

from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main
from kstore.config import LogConfig

LONG_AGO = 1_600_000_000_000
RETENTION = {"retention_ms": 3_600_000}


@pytest.fixture(params=["__consumer_offsets", "__transaction_state", "state_store"])
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The only partition of a log directory that a broker wrote: it tells of no topic's configuration."""
    name = f"{request.param}-0"
    with kstore.LogWriter(tmp_path / "alone" / name, LogConfig(internal_segment_bytes=1000)) as log:
        for _ in range(30):
            log.extend([b"v" * 100] * 3, [b"a", b"b", b"c"], timestamps=LONG_AGO)
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "alone" / name).rename(data / name)
    for path in data.glob("*/kstore-config.json"):
        path.unlink()
    if request.param == "state_store":
        (data / "cleaner-offset-checkpoint").write_text(f"0\n1\n{name.replace('-0', ' 0')} 12\n")
    return data / name


def records(path: Path) -> int:
    return sum(1 for _ in kstore.open(path))


def test_a_store(copied: Path) -> None:
    topic = copied.name[:-2]
    with kstore.LogStore(copied.parent, mode="a", background=False, **RETENTION) as store:
        assert store.retain(dry_run=True) == {}
        assert store.retain() == {}
        assert "is known to be compacted" in store.health().partitions[kstore.TopicPartition(topic, 0)]
        assert records(copied) == 90
        store.alter_topic(topic, retention_ms=1000)
        assert store.retain() == {}
        store.alter_topic(topic, cleanup_policy="delete")
        store.retain()
        assert store.health().ok
    assert records(copied) == 0


def test_a_store_in_the_background(copied: Path) -> None:
    """Whether the partition is open or not."""
    with kstore.LogStore(copied.parent, mode="a", background=False, **RETENTION) as store:
        for _ in range(2):
            store._work.retain(store, store._now())
            assert "is known to be compacted" in str(store.health().background)
            store._work.forget({kstore.TopicPartition(copied.name[:-2], 0)})
            store.log(copied.name[:-2])
    assert records(copied) == 90


def test_a_policy_of_the_store(copied: Path) -> None:
    """Who says it for all topics means these, too."""
    with kstore.LogStore(
        copied.parent, mode="a", background=False, cleanup_policy="delete", **RETENTION
    ) as store:
        store.retain()
    assert records(copied) == 0


def test_a_log(copied: Path) -> None:
    with kstore.open(copied, "r+", **RETENTION) as log:
        with pytest.raises(kstore.InvalidConfigError, match="known to be compacted, and was opened without"):
            log.retain()
        log.configure(retention_ms=-1, retention_bytes=10)
        with pytest.raises(kstore.InvalidConfigError, match='cleanup_policy="compact" or "delete"'):
            log.retain(dry_run=True)
        log.delete_records(50)  # that was said
        with pytest.raises(kstore.InvalidConfigError):
            log.retain()
        log.configure(cleanup_policy="delete")
        assert any(decision.rule == "size" for decision in log.retain())


def test_commands(copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.hours=1\n")
    for more in ([], ["--dry-run"]):
        assert main(["retain", str(copied), "--server-properties", str(properties), *more]) == 2
        assert "known to be compacted" in capsys.readouterr().err
    assert records(copied) == 90
    assert main(["retain", str(copied), "--defaults", "--dry-run"]) == 0
    assert "delete (time)" in capsys.readouterr().out


def test_another_topic(copied: Path) -> None:
    """One that is known of nothing goes by what the store says."""
    other = copied.parent / "events-0"
    copied.rename(other)
    (other.parent / "cleaner-offset-checkpoint").unlink(missing_ok=True)
    with kstore.LogStore(other.parent, mode="a", background=False, **RETENTION) as store:
        store.retain()
        assert store.health().ok
    assert records(other) == 0


def test_another_partition_of_the_topic(copied: Path) -> None:
    """A broker names only what it has cleaned already."""
    other = copied.rename(copied.parent / copied.name.replace("-0", "-1"))
    with kstore.open(other, "r+", **RETENTION) as log, pytest.raises(kstore.InvalidConfigError):
        log.retain()
    assert records(other) == 90


def test_what_lies_below_the_log_start_goes(copied: Path) -> None:
    """Somebody has said that, and only the rest is refused."""
    with kstore.open(copied, "r+", **RETENTION) as log:
        log.delete_records(50)
        first = log.segments[0].base_offset
        with pytest.raises(kstore.InvalidConfigError, match="known to be compacted"):
            log.retain()
        assert first < log.segments[0].base_offset <= 50
        assert log.log_end_offset == 90
