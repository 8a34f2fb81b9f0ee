"""What is known to be compacted loses nothing unless its policy is configured."""

from pathlib import Path

import pytest

import kstore
from kstore import TopicPartition
from kstore.__main__ import main
from tests.helpers.store_clock import StoreClock
from tests.store.stores import DAY, opened

LONG_AGO = 1_600_000_000_000
RETENTION = {"retention_ms": 3_600_000}


def copy_of(path: Path, topic: str) -> Path:
    """The only partition of a broker's log directory, which says nothing of a topic's configuration."""
    name = f"{topic}-0"
    with kstore.LogWriter(path / "alone" / name, kstore.LogConfig(internal_segment_bytes=1000)) as log:
        for _ in range(30):
            log.extend([b"v" * 100] * 3, [b"a", b"b", b"c"], timestamps=LONG_AGO)
    data = path / "data"
    data.mkdir()
    (path / "alone" / name).rename(data / name)
    (data / name / "kstore.json").unlink(missing_ok=True)
    if topic == "state_store":
        (data / "cleaner-offset-checkpoint").write_text(f"0\n1\n{topic} 0 12\n")
    return data / name


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return copy_of(tmp_path, "state_store")


def records(path: Path) -> int:
    return sum(1 for _ in kstore.open(path))


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "state_store"])
def test_it_is_refused(tmp_path: Path, topic: str) -> None:
    """By the topic's name, or by the cleaner's checkpoint; by a store, its background, a log."""
    path, clock = copy_of(tmp_path, topic), StoreClock()
    with opened(path.parent, clock=clock, **RETENTION) as store:
        assert store.retain(dry_run=True) == {}
        assert store.retain() == {}
        assert "is known to be compacted" in store.health().partitions[TopicPartition(topic, 0)]
        clock.pass_on(store, DAY, runs=2)
        assert "is known to be compacted" in str(store.health().background)
        assert records(path) == 90
        store.alter_topic(topic, retention_ms=1000)
        assert store.retain() == {}
        store.alter_topic(topic, cleanup_policy="delete")
        store.retain()
        assert store.health().partitions == {}
    assert records(path) == 0


def test_a_log(copied: Path) -> None:
    with kstore.open(copied, "r+", **RETENTION) as log:
        with pytest.raises(kstore.InvalidConfigError, match="known to be compacted, and was opened without"):
            log.retain()
        log.configure(retention_ms=-1, retention_bytes=10)
        with pytest.raises(kstore.InvalidConfigError, match='cleanup_policy="compact" or "delete"'):
            log.retain(dry_run=True)
        log.delete_records(50)
        first = log.segments[0].base_offset
        with pytest.raises(kstore.InvalidConfigError):
            log.retain()
        assert first < log.segments[0].base_offset <= 50
        assert log.log_end_offset == 90
        log.configure(cleanup_policy="delete")
        assert any(decision.rule == "size" for decision in log.retain())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(12),
        b"0\n1\nstate_store x 12\n",
        b"0\n1\nstate_store 0",
        b"0\n2\nother 0 12\n",
        b"\xff\n1\n",
    ],
    ids=["emptied", "zeros", "a bit", "cut off", "a line too few", "no version"],
)
def test_a_damaged_cleaner_checkpoint(
    copied: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """It hides which topics were compacted, so no partition there loses records by age or size."""
    file = copied.parent / "cleaner-offset-checkpoint"
    file.write_bytes(content)
    assert str(file) in [f.file for f in kstore.open(copied).recovery.findings]
    assert main(["check", str(copied.parent)]) == 1
    assert str(file) in capsys.readouterr().out
    with opened(copied.parent, **RETENTION) as store:
        assert store.retain() == {}
        assert str(file) in store.health().partitions[TopicPartition("state_store", 0)]
    with kstore.open(copied, "r+", **RETENTION) as log:
        with pytest.raises(
            kstore.InvalidConfigError, match=f"It was opened without .* a sound copy of {file}"
        ):
            log.retain()
        assert records(copied) == 90
        log.configure(cleanup_policy="delete")
        log.retain()
    assert records(copied) == 0


def test_a_cleaner_checkpoint_that_was_damaged(copied: Path) -> None:
    """A compaction of another topic replaces the file, which then does not tell that lines are lost."""
    file = copied.parent / "cleaner-offset-checkpoint"
    file.write_text("0\n1\nstate_store x 12\n")
    kept = copied.parent / f"{file.name}.cut"
    with opened(copied.parent, **RETENTION) as store:
        store.create_topic("other", cleanup_policy="compact")
        store.extend("other", [b"v"] * 9, [b"k"] * 9)
        log = store.log("other", 0)
        log.roll()
        log.compact()
        assert file.read_text() == "0\n1\nother 0 9\n"
        assert TopicPartition("state_store", 0) not in store.retain()
    with kstore.open(copied, "r+", **RETENTION) as log:
        with pytest.raises(kstore.InvalidConfigError, match=f"or remove {kept}"):
            log.retain()
        assert main(["check", str(copied.parent)]) == 1
        kept.unlink()
        log.retain()
    assert records(copied) == 0


def test_an_empty_cleaner_checkpoint_of_a_broker(copied: Path) -> None:
    """A broker creates the file, and fills it at the first compaction."""
    (copied.parent / "meta.properties").write_text("version=1\nnode.id=1\n")
    (copied.parent / "cleaner-offset-checkpoint").write_bytes(b"")
    assert kstore.open(copied).recovery.findings == []
    with kstore.open(copied, "r+", **RETENTION) as log:
        log.retain()
    assert records(copied) == 0
