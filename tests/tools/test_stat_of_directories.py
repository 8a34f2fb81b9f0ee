"""kstore stat of a log directory: every partition that can be read, and a sentence for everything else."""

import json
import shutil
from pathlib import Path

import pytest

import kstore
from tests.helpers.files import flip
from tests.helpers.reading import cursor_at_end
from tests.tools.conftest import Run

ID = "d0cd1b8a5f4e4a12b6e5a6f2c9b31c7e"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with the name of a partition."""
    with kstore.LogStore(tmp_path / "data-0", mode="a") as store:
        store.create_topic("orders", partitions=2)
        for number in range(2):
            store.log("orders", number).extend([b"1", b"2", b"3"])
    return tmp_path / "data-0"


def test_one_that_is_named_like_a_partition_and_holds_other_files(data: Path, run: Run) -> None:
    (data / "server.log").write_text("INFO started\n")
    code, out, err = run("stat", data)
    assert (code, err) == (0, "")
    assert [line.partition(":")[0] for line in out.splitlines() if "(exclusive)" in line] == [
        f"{data}/orders-{n}" for n in range(2)
    ]


def test_what_cannot_be_read_hides_nothing(data: Path, run: Run) -> None:
    (data / "foreign-0").mkdir()
    (data / "foreign-0" / "a.jpg").write_bytes(b"x")
    (data / "link-0").symlink_to("/nonexistent")
    for name in (f"orders-0.{ID}-future", f"old-3.{ID}-stray", f"gone-0.{ID}-delete", "lost+found"):
        (data / name).mkdir()
    shutil.rmtree(data / "orders-1")
    code, out, err = run("stat", data)
    assert code == 1
    assert f"{data}/orders-0: offsets 0 to" in out
    for text in (
        f"{data}/foreign-0: cannot be read: no partition at",
        f"{data}/link-0: a symbolic link to nowhere",
        f"{data}/orders-1: in no log directory",
    ):
        assert text in out
        assert f"kstore: {text}" in err
    assert (
        f"partitions that a broker was moving here from another log directory: orders-0.{ID}-future\n" in out
    )
    assert (
        f"partitions that a broker has set aside, because the cluster does not have them here: old-3.{ID}"
        in out
    )
    assert f"partitions that wait for their deletion: gone-0.{ID}-delete\n" in out
    assert "directories that are not partitions: lost+found\n" in out
    code, out, _ = run("stat", data, "--json")
    assert [Path(each["directory"]).name for each in json.loads(out) if "error" in each] == [
        "foreign-0",
        "link-0",
        "orders-1",
    ]


def test_partitions_of_another_log_directory(tmp_path: Path, run: Run) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    with kstore.LogStore(*paths, mode="a") as store:
        store.create_topic("t", partitions=4)
    assert run("stat", paths[0])[0] == 1
    code, out, err = run("stat", paths[0], "--also", paths[1])
    assert (code, err, out.count("nothing looks wrong")) == (0, "", 4)
    assert run("stat", paths[0] / "t-0", "--also", paths[1])[0] == 2


@pytest.mark.parametrize("verify", [(), ("--verify",)])
def test_damaged_positions_of_a_group(data: Path, run: Run, verify: tuple[str, ...]) -> None:
    for number in range(2):
        for group in ("other", "worker"):
            with cursor_at_end(data / f"orders-{number}", group) as jobs:
                jobs.commit(1)
    assert run("stat", data, *verify)[0] == 0
    positions = data / "kstore-cursors-worker.positions"
    flip(positions, 40)
    code, out, err = run("stat", data, *verify)
    assert (code, out.count("nothing looks wrong")) == (1, 2)
    for text in (out, err):
        assert f"{data}: the positions of group 'worker' cannot be read: {positions}" in text
    errors = [each.get("error") for each in json.loads(run("stat", data, "--json", *verify)[1])]
    assert [error is None for error in errors] == [True, True, False]
    (data / "orders-1" / "kstore.json").write_bytes(b"damage")
    assert f"{data}/orders-1/kstore.json" in run("stat", data / "orders-1", *verify)[1]


@pytest.mark.parametrize("content", ["", "{"])
def test_topics_that_cannot_be_read(data: Path, run: Run, content: str) -> None:
    (data / "kstore.json").write_text(content)
    code, out, err = run("stat", data)
    assert (code, out.count("(exclusive)")) == (1, 2)
    assert "nothing is known of the topics but their directories" in err
    for text in (out, err):
        assert f"{data}: its topics cannot be read: {data}/kstore.json" in text
    code, out, _ = run("stat", data, "--json")
    assert (code, [bool(each["wrong"]) for each in json.loads(out)]) == (1, [False, False, True])


def test_topics_that_one_of_two_directories_cannot_tell(tmp_path: Path, run: Run) -> None:
    """The sound copy counts, so no warning is given."""
    paths = tmp_path / "a", tmp_path / "b"
    with kstore.LogStore(*paths, mode="a") as store:
        store.create_topic("orders", partitions=2)
    (paths[1] / "kstore.json").write_text("")
    code, out, _ = run("stat", paths[0], "--also", paths[1])
    assert code == 1
    assert f"{paths[1]}: its topics cannot be read" in out


def test_an_empty_directory_of_a_partition_is_an_empty_partition(data: Path, run: Run) -> None:
    """docs/store.md advises it for a partition that is lost for good."""
    shutil.rmtree(data / "orders-1")
    (data / "orders-1").mkdir()
    store = kstore.LogStore(data)
    assert store.health().ok
    with pytest.warns(kstore.DataLossWarning, match="offsets 0 to . had been flushed, and are lost"):
        assert sum(len(batch) for batch in store.scan("orders", ["offset"])) == 3
    code, out, _ = run("stat", data)
    assert code == 1
    assert "empty: " in out
    assert "the directory is empty, so the partition has no records" in out
    assert list((data / "orders-1").iterdir()) == []
    with kstore.LogStore(data, mode="a") as writer, pytest.warns(kstore.DataLossWarning):
        writer.log("orders", 1).append(b"x")
    assert run("stat", data)[0] == 0
    assert not kstore.open(data / "orders-1").recovery.findings
