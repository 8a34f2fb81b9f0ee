"""kstore stat of a log directory: every partition that can be read, and a sentence for everything else."""

import json
import shutil
from pathlib import Path

import pytest

import kstore
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
    code, out, _ = run("stat", data)
    assert code == 0
    assert f"{data}/orders-0: offsets 0 to" in out
    assert f"{data}/foreign-0: cannot be read: no partition at" in out
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
    assert [Path(each["directory"]).name for each in json.loads(out) if "error" in each] == ["foreign-0"]


def test_partitions_of_another_log_directory(tmp_path: Path, run: Run) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    with kstore.LogStore(*paths, mode="a") as store:
        store.create_topic("t", partitions=4)
    code, out, err = run("stat", paths[0], "--also", paths[1])
    assert (code, err, out.count("(exclusive)")) == (0, "", 4)
    assert run("stat", paths[0] / "t-0", "--also", paths[1])[0] == 2


def test_an_empty_directory_of_a_partition_is_an_empty_partition(data: Path, run: Run) -> None:
    """docs/store.md advises it for a partition that is lost for good."""
    shutil.rmtree(data / "orders-1")
    (data / "orders-1").mkdir()
    store = kstore.LogStore(data)
    assert store.health().ok
    with pytest.warns(kstore.DataLossWarning, match="offsets 0 to . had been flushed, and are lost"):
        assert sum(len(batch) for batch in store.scan("orders", ["offset"])) == 3
    code, out, _ = run("check", data)
    assert code == 1
    assert "the directory is empty, so the partition has no records" in out
    assert list((data / "orders-1").iterdir()) == []
    with kstore.LogStore(data, mode="a") as writer, pytest.warns(kstore.DataLossWarning):
        writer.log("orders", 1).append(b"x")
    assert run("check", data)[0] == 0
    assert not kstore.open(data / "orders-1").recovery.findings
