"""What a new user met in a store, and does not meet any more."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore
from kstore.__main__ import main as run_command
from tests.store.test_background import Clock, make


def test_a_close_that_fails_gives_the_lock_up(tmp_path: Path) -> None:
    data, away = tmp_path / "d", tmp_path / "away"
    store = LogStore(data, mode="a", background=False)
    store.create_topic("t")
    store.append("t", b"v")
    data.rename(away)
    data.write_text("a file in its place")
    with pytest.raises(kstore.LogFailedError):
        store.close()
    assert store.is_closed
    data.unlink()
    away.rename(data)
    with LogStore(data, mode="a", background=False) as again:
        assert again.append("t", b"w") == (0, 1)


def test_a_copy_of_a_partition_is_not_clean(tmp_path: Path) -> None:
    """It was written by itself, and closed; then it was put into a store, which is open."""
    with kstore.open(tmp_path / "d" / "t-0", "a") as log:
        log.append(b"v")
    with LogStore(tmp_path / "d", mode="a", background=False) as store:
        store.append("t", b"w")
        shutil.copytree(tmp_path / "d" / "t-0", tmp_path / "copy" / "t-0")
    copy = kstore.open(tmp_path / "copy" / "t-0")
    assert not copy.recovery.clean
    assert [r.value for r in copy] == [b"v", b"w"]


def test_a_reader_takes_in_new_partitions(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
        reader = LogStore(tmp_path)
        store.add_partitions("t", 3)
        store.create_topic("u")
        assert reader.topics == {"t": [0]}
        reader.refresh()
        store.refresh()
        assert reader.topics == store.topics == {"t": [0, 1, 2], "u": [0]}
        assert reader.health().ok


def test_errors_count_the_records_of_the_caller(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 4)
        times: list[Any] = [1] * 100
        times[57] = "noon"
        with pytest.raises((TypeError, ValueError), match="57"):
            store.extend("t", [b"v"] * 100, [b"%d" % n for n in range(100)], times)
        assert [store.log("t", n).log_end_offset for n in range(4)] == [0] * 4


def test_a_partition_without_segments_is_compacted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["create", str(tmp_path / "d"), "u"]) == 0
    command = ["compact", str(tmp_path / "d" / "u-0"), "--config", "cleanup.policy=compact"]
    assert run_command([*command, "--dry-run"]) == 0
    assert run_command(command) == 0


def test_records_without_a_key_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with make(tmp_path, clock, min_cleanable_dirty_ratio=0) as store:
        store.create_topic("t")
        store.extend("t", [b"v"] * 5)
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        log.roll()
        del log
        store.alter_topic("t", cleanup_policy="compact")
        with caplog.at_level(logging.WARNING, "kstore.store"):
            for _ in range(3):
                clock.now += 60_000
                store._work.run_due(clock.now)
        assert "t-0: its compaction has removed 5 records without a key" in caplog.text
