"""What an hour of nonsense found in a store, and does not find any more."""

import os
import pickle
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore, TopicPartition
from kstore.__main__ import main as run_command
from kstore.log.files.topic_file import read_table
from tests.helpers.store_clock import StoreClock


def test_a_stray_partition_changes_nothing(tmp_path: Path) -> None:
    """The table says how many partitions a topic has: keys stay where they are, and no change makes room for a stray one."""
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 3)
        places = {key: store.append("t", b"v", key)[0] for key in (b"%d" % n for n in range(20))}
    (tmp_path / "t-2147483646").mkdir()
    for _ in range(2):
        with LogStore(tmp_path, mode="a", background=False) as store:
            assert {key: store.append("t", b"v", key)[0] for key in places} == places
            store.alter_topic("t", retention_ms=1)
            assert store.health().ok
            assert store.log("t", 2147483646).log_end_offset == 0
    assert LogStore(tmp_path).describe("t").options == {"retention_ms": 1}


def test_a_number_that_no_table_can_hold(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
    (tmp_path / "x-2147483646").mkdir()
    with LogStore(tmp_path, mode="a", background=False) as store:
        with pytest.raises(kstore.LogFailedError, match="at most 1048576"):
            store.alter_topic("x", retention_ms=1)
        assert store.health().ok
    table = tmp_path / "kstore-topics.json"
    text = re.sub(' "crc32c": .*\n', "", table.read_text())
    table.write_text(text.replace('"partitions": 1', '"partitions": 2147483647'))
    with pytest.raises(kstore.CorruptCheckpointError, match="2147483647 partitions"):
        LogStore(tmp_path, mode="a")


def test_a_table_with_a_bit_turned(tmp_path: Path) -> None:
    """Whichever it is: the table is refused, or says the same."""
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", retention_ms=10)
    path = tmp_path / "kstore-topics.json"
    data, table = path.read_bytes(), read_table(tmp_path)
    refused = 0
    for bit in range(8 * len(data)):
        path.write_bytes(data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :])
        try:
            assert read_table(tmp_path) == table
        except kstore.CorruptCheckpointError:
            refused += 1
    assert refused > 7 * len(data)


def test_a_failed_opening_leaves_the_directory_clean(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
    table = tmp_path / "kstore-topics.json"
    text = table.read_text()
    table.write_text("nonsense")
    with pytest.raises(kstore.CorruptCheckpointError):
        LogStore(tmp_path, mode="a")
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    table.unlink()
    table.symlink_to("nowhere")
    with pytest.raises(kstore.CorruptCheckpointError, match="leads nowhere"):
        LogStore(tmp_path, mode="a")
    table.unlink()
    table.write_text(text)
    with LogStore(tmp_path, mode="a", background=False) as store:
        assert store.log("t").recovery.clean


def test_a_log_that_was_not_closed_cleanly(tmp_path: Path) -> None:
    """The directory does not say that it was."""
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 2)
        store.append("t", b"v", b"key")
        (number,) = [p for p in (0, 1) if store.log("t", p).log_end_offset]
        (tmp_path / f"t-{number}" / f"{0:020}.log").unlink()
        with pytest.raises(kstore.LogFailedError):
            store.close()
    assert not LogStore(tmp_path).closed_cleanly


def test_a_file_of_a_segment_that_is_a_link_to_nowhere(tmp_path: Path) -> None:
    """It is no partition that is being deleted, whose records need not come."""
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", internal_segment_bytes=200)
        for _ in range(9):
            store.append("t", bytes(50))
    middle = sorted((tmp_path / "t-0").glob("*.log"))[2]
    middle.unlink()
    middle.symlink_to("gone")
    with LogStore(tmp_path) as store:
        readers: list[Callable[[], Any]] = [
            lambda: store.follow(["t"], "earliest", timeout=0),
            lambda: store.cursor("g", ["t"]),
            lambda: store.scan("t"),
        ]
        for reader in readers:
            with pytest.raises(OSError, match="a symbolic link to gone, where no file is"):
                list(reader())


def test_links_that_lead_to_themselves(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
    for name in ("stray", "u-0"):
        (tmp_path / name).symlink_to(tmp_path / name)
    assert list(LogStore(tmp_path).topics) == ["t"]
    with LogStore(tmp_path, mode="a", background=False) as store:
        assert store.append("t", b"v") == (0, 0)


def test_a_signal_handler_that_changes_topics(tmp_path: Path) -> None:
    """It interrupts a change of the same directory: then nothing is done, not even decided."""
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("old")
        (directory,) = store._directories
        assert directory.keeper is not None
        with directory.keeper._lock.writing:  # as a handler finds it
            with pytest.raises(kstore.ReentrantCallError):
                store.create_topic("t")
            with pytest.raises(kstore.ReentrantCallError):
                store.delete_topic("old")
        assert store.health().ok
        assert list(store.topics) == ["old"]
        store.create_topic("t")


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_clock_that_exits(tmp_path: Path, error: type[BaseException]) -> None:
    """It does not end the threads of the store, and health() tells."""
    clock = StoreClock()
    wrong: list[type[BaseException]] = []

    def now() -> int:
        if wrong and threading.current_thread().name == "kstore-store":
            raise wrong[0]
        return clock()

    with LogStore(tmp_path, mode="a", clock=now, file_delete_delay_ms=10) as store:
        wrong.append(error)
        store.create_topic("t")
        while not store.health().background:
            pass
        assert error.__name__ in str(store.health().background)
        wrong.clear()
        while store.health().background:
            pass


def test_what_failed_of_an_earlier_topic(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 2)
        store._open_logs.failures[TopicPartition("t", 1)] = "its directory was being deleted"
        store.delete_topic("t")
        store._open_logs.failures[TopicPartition("t", 1)] = "as it was told a moment later"
        store.create_topic("t", 2)
        assert store.health().ok


def test_arguments(tmp_path: Path) -> None:
    with LogStore(tmp_path / "d", mode="a", background=False) as store:
        store.create_topic("t")
        calls: list[tuple[type[Exception], str, Any]] = [
            (TypeError, "dry_run", lambda: store.retain(dry_run=None)),  # type: ignore[arg-type]
            (kstore.LogNotFoundError, "no partition 1", lambda: store.scan("t", partitions=range(10**12))),
            (TypeError, "partitions must be", lambda: store.scan("t", partitions=1)),  # type: ignore[arg-type]
            (TypeError, "pickled", lambda: pickle.dumps(store.scan("t"))),
            (TypeError, "is an int", lambda: store.log("t", int)),  # type: ignore[arg-type]
            (RuntimeError, "open already", lambda: store.__init__(tmp_path)),  # type: ignore[misc]
            (
                kstore.InvalidConfigError,
                "an option of a whole store",
                lambda: store.create_topic("u", log_cleaner_enable=False),
            ),
            (
                kstore.InvalidConfigError,
                "an option of a whole store",
                lambda: store.alter_topic("t", log_cleaner_enable=None),
            ),
            (ValueError, "not an empty one", lambda: LogStore("")),
        ]
        for error, text, call in calls:
            with pytest.raises(error, match=text):
                call()
        assert store.append("t", b"v") == (0, 0)


def test_a_pipe_for_meta_properties(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "meta.properties")
    with pytest.raises(OSError):  # noqa: PT011 - what it is does not matter, but that it does not wait
        LogStore(tmp_path).meta()


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "d"
    assert run_command(["create", str(data), "t", "--partitions", "2"]) == 0
    assert run_command(["create", str(data / "t-0"), "x"]) == 1  # it is a partition, though it has no records
    assert "is a partition" in capsys.readouterr().err
    assert run_command(["create", str(data), "u", "--also", "/dev/null"]) == 0
    assert "/dev/null is out of use" in capsys.readouterr().err
    for path in (data / "t-1").iterdir():
        path.unlink()
    (data / "t-1").rmdir()
    assert run_command(["describe", str(data), "t"]) == 0
    assert "t-1 is in none of the directories" in capsys.readouterr().err


def test_links_are_removed_alone(tmp_path: Path) -> None:
    """What is to be removed may be a link to what is somebody else's."""
    home, data = tmp_path / "home", tmp_path / "d"
    home.mkdir()
    (home / "letter").write_text("dear")
    with LogStore(data, mode="a", background=False) as store:
        store.create_topic("t")
    (data / f"x-0.{'0' * 32}-delete").symlink_to(home)
    (data / "y-0").symlink_to(home)
    with LogStore(data, mode="a", background=False) as store:
        store.delete_topic("y")
    assert not [path for path in data.iterdir() if path.is_symlink()]
    assert (home / "letter").read_text() == "dear"


def test_a_reader_says_that_the_table_is_damaged(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
    (tmp_path / "kstore-topics.json").write_text("nonsense")
    with pytest.warns(kstore.DataLossWarning, match="partitions may be missing unnoticed"):
        assert list(LogStore(tmp_path).topics) == ["t"]


def test_a_change_that_goes_well_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("old")
        seen: list[bool] = []
        (directory,) = store._directories
        real = directory.set_aside

        def set_aside(partitions: Any) -> None:
            seen.append(store.health().ok)  # as another thread sees it
            with pytest.raises(kstore.LogNotFoundError, match="is just being"):
                store.append("old", b"v")
            real(partitions)

        monkeypatch.setattr(directory, "set_aside", set_aside)
        store.delete_topic("old")
        assert seen == [True]
