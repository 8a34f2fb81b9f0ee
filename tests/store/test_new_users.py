"""What a new user met in a store, and does not meet any more."""

import logging
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore
from kstore.__main__ import main as run_command
from tests.helpers.store_clock import StoreClock
from tests.store.test_background import make


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
    clock = StoreClock()
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


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("my orders-0", "passes over 'my orders-0'"),
        ("orders-07", "passes over"),
        ("orders", "passes over"),
        ("orders-9", "has 2 partitions, of which orders-9 is none"),
        ("other-1", "topic other .* has no partition 0"),
        ("orders--1", "topic orders- .* has no partition 0"),
    ],
)
def test_a_new_partition_that_a_store_would_not_use(
    tmp_path: Path,
    name: str,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LogStore(tmp_path / "d", mode="a", background=False) as store:
        store.create_topic("orders", 2)
    with pytest.warns(UserWarning, match=told):
        kstore.open(tmp_path / "d" / name, "a").close()
    kstore.open(tmp_path / "d" / name, "a").close()  # said once
    kstore.open(tmp_path / "d" / "orders-0", "a").close()
    kstore.open(tmp_path / "d" / "fresh-0", "a").close()
    kstore.open(tmp_path / "elsewhere" / name, "a").close()
    shutil.rmtree(tmp_path / "d" / name)
    (tmp_path / "input").touch()
    with (tmp_path / "input").open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert run_command(["append", str(tmp_path / "d" / name)]) == 0
    assert str(tmp_path / "d") in capsys.readouterr().err


def test_a_mode_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="mode='a'"):
        LogStore(tmp_path, "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("partitions", "add_partitions"),
        ("durable", "argument of kstore.open"),
        ("keepfor", "keep_for is an argument"),
    ],
)
def test_what_is_no_option_but_an_argument(tmp_path: Path, name: str, told: str) -> None:
    options: dict[str, Any] = {name: 1}
    with pytest.raises(kstore.InvalidConfigError, match=told):
        kstore.open(tmp_path / "t-0", "a", **options)
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
        with pytest.raises(kstore.InvalidConfigError, match=told):
            store.alter_topic("t", **options)


def test_a_partition_that_the_program_has_open_itself_is_named(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
        store.append("t", b"v")
        with pytest.raises(kstore.LogLockedError, match=r"t-0 .* store\.log\(topic, partition\)"):
            kstore.open(tmp_path / "t-0", "a")


def test_a_key_is_erased_from_a_whole_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is in two partitions, because some were added."""
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
        store.extend("t", [b"v"] * 20, [b"k%d" % n for n in range(20)])
        store.add_partitions("t", 4)
        store.extend("t", [b"v"] * 20, [b"k%d" % n for n in range(20)])
        key = next(r.key for r in store.log("t", 3))
        assert key is not None
        found = store.erase("t", keys=iter([key]), reason="asked for", dry_run=True)
        assert sorted(n for n, done in found.items() if done.records_erased) == [0, 3]
        assert sum(r.key == key for n in range(4) for r in store.log("t", n)) == 2
        assert sum(d.records_erased for d in store.erase("t", keys=[key], reason="asked for").values()) == 2
        assert sum(r.key == key for n in range(4) for r in store.log("t", n)) == 0
        assert sum(1 for n in range(4) for _ in store.log("t", n)) == 38
        with pytest.raises(TypeError, match="keys"):
            store.erase("t", keys=b"k", reason="asked for")
        other = next(r.key for r in store.log("t", 2))
        assert other is not None
    command = ["erase", str(tmp_path), "t", "--key", other.decode()]
    assert run_command([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("\n2 records would be erased\n")
    assert run_command([*command, "--reason", "asked for"]) == 0
    assert capsys.readouterr().out.endswith("\n2 records erased: asked for\n")
    assert run_command(command) == 1
    assert run_command([*command, "--keep-cut"]) == 2


def test_a_topic_that_is_not_there_names_what_may_be_meant(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        with pytest.raises(kstore.LogNotFoundError, match="which has no topics"):
            store.log("t")
        store.create_topic("orders", 2)
        store.create_topic("clicks")
        for name, told in [
            ("order", "there is orders"),
            ("orders-1", "orders-1 is partition 1 of topic orders"),
            ("zz", "there are clicks, orders"),
        ]:
            with pytest.raises(kstore.LogNotFoundError, match=told):
                store.append(name, b"v")
            with pytest.raises(kstore.LogNotFoundError, match=told):
                store.cursor("g", [name])


def test_a_key_that_is_no_bytes(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
        for key in ("k", 5):
            with pytest.raises(TypeError, match=f"key must be bytes or None, not {key!r}"):
                store.append("t", b"v", key=key)


def test_warnings_name_the_line_of_the_program(tmp_path: Path) -> None:
    with LogStore(tmp_path / "d", mode="a", background=False) as store:
        store.create_topic("t")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            store.append("t", b"v", timestamp=1_700_000_000)
            store.extend("t", [b"v"], timestamps=[1_700_000_000])
            store.log("t").append(b"v", timestamp=1_700_000_000)
            store.cursor("g", ["t"]).close()
        batch = next(iter(store.log("t").batches()))
    (tmp_path / "d" / ".kafka_cleanshutdown").unlink()
    with Path(batch.file).open("r+b") as file:
        file.seek(batch.size - 1)
        file.write(b"\xff")
    shutil.copytree(tmp_path / "d", tmp_path / "copy")
    with warnings.catch_warnings(record=True) as more:
        warnings.simplefilter("always")
        list(kstore.open(tmp_path / "d" / "t-0"))
        kstore.open(tmp_path / "d" / "t-0", "a").close()
    assert len(caught) == 3
    assert {warning.category for warning in more} == {kstore.DataLossWarning}
    assert {warning.filename for warning in [*caught, *more]} == {__file__}


def test_offsets_to_follow_from(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
        wrong: Any = {"t": 0}
        with pytest.raises(TypeError, match=r"by \(topic, partition\)"):
            store.follow(start=wrong)
        with pytest.raises(ValueError, match="'latest', an offset or a datetime"):
            store.cursor("g", ["t"], start="begin")  # type: ignore[arg-type]


def test_a_damaged_table_of_topics_says_what_to_do(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
    (tmp_path / "kstore-topics.json").write_text("no JSON")
    with pytest.raises(kstore.CorruptCheckpointError) as caught:
        LogStore(tmp_path, mode="a")
    assert "move it away" in "".join(caught.value.__notes__)
    (tmp_path / "kstore-topics.json").rename(tmp_path / "away")
    with LogStore(tmp_path, mode="a", background=False) as store:
        assert store.topics == {"t": [0]}


def test_health_tells_of_a_partition_that_somebody_removed(tmp_path: Path) -> None:
    """At once, not only when it is opened next."""
    path = tmp_path / "d"
    with LogStore(path, mode="a", background=False) as store:
        store.create_topic("t", 2)
        assert store.health().ok
        shutil.rmtree(path / "t-1")
        assert store.health().partitions == {("t", 1): f"no partition directory at {path / 't-1'}"}
        (path / "t-1").mkdir()
        assert store.health().ok
        store.delete_topic("t")
        assert store.health().ok
        path.rename(tmp_path / "away")
        assert list(store.health().directories) == [path]
        (tmp_path / "away").rename(path)
        assert store.health().ok


def test_a_deletion_that_is_only_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 2)
        store.create_topic("other")
        store.log("t", 1).extend([b"v"] * 5)  # type: ignore[attr-defined]
        assert run_command(["delete", str(tmp_path), "t", "--dry-run"]) == 0  # beside who writes
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 't-0'}: offsets 0 to 0 (exclusive) would be deleted",
        f"{tmp_path / 't-1'}: offsets 0 to 5 (exclusive) would be deleted",
    ]
    assert run_command(["topics", str(tmp_path), "t"]) == 0
    assert capsys.readouterr().out == "t  2 partitions\n"
    assert run_command(["topics", str(tmp_path), "missing"]) == 1
    assert "no topic missing" in capsys.readouterr().err
    assert run_command(["delete", str(tmp_path), "missing", "--dry-run"]) == 1
    assert LogStore(tmp_path).topics == {"other": [0], "t": [0, 1]}


def test_retention_by_size_alone(tmp_path: Path) -> None:
    """As the option's text says: nothing goes by age then."""
    with LogStore(tmp_path, mode="a", background=False, retention_bytes=1 << 30) as store:
        store.create_topic("t")
        log: Any = store.log("t")
        log.append(b"old", timestamp=1)
        log.roll()
        log.append(b"new")
        store.retain()
        assert log.log_start_offset == 0
