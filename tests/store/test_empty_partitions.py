"""A partition directory without a .log file is an empty log: Kafka and kstore make it first."""

from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main

LEFT: dict[str, tuple[str, ...]] = {  # behind a crash in the making
    "empty": (),
    "options": ("kstore.json.tmp",),
    "epochs": ("leader-epoch-checkpoint.tmp",),
    "id": ("partition.metadata",),
    "locked": (".lock",),
}
WAYS: dict[str, Callable[[kstore.LogStore], int]] = {
    "open": lambda store: len(list(store.open("t", 1))),
    "scan": lambda store: sum(len(rows) for rows in store.scan("t")),
    "follow": lambda store: len(list(store.follow(["t"], "earliest", timeout=0))),
    "log follow": lambda store: len(list(store.open("t", 1).follow(0, timeout=0))),
    "cursor": lambda store: len(list(store.cursor("g", ["t"]))),
    "table": lambda store: len(list(store.table("t"))),
    "lag": lambda store: len(store.lag("g")),
    "describe": lambda store: len(store.describe("t").partitions) - 2,
    "stat": lambda store: main(["stat", str(store.open("t", 1).path)]),
    "cursors": lambda store: main(["cursors", str(Path(store.open("t", 1).path).parent)]),
}


@pytest.fixture(params=LEFT.values(), ids=list(LEFT))
def data(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v", b"k")
    (tmp_path / "t-1").mkdir()
    for name in request.param:
        text = "version: 0\ntopic_id: EQkpVNxcJP4N6HQeraTLIw" if name == "partition.metadata" else ""
        (tmp_path / "t-1" / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_it_is_an_empty_log(data: Path, way: Callable[[kstore.LogStore], int]) -> None:
    assert way(kstore.LogStore(data)) in (0, 1)  # with what is in the other partition, if that is read too


def test_it_can_be_written(data: Path) -> None:
    with kstore.open(data / "t-1", "r+") as log:
        assert log.append(b"first") == 0


def test_spark_plans_it(data: Path) -> None:
    spark = pytest.importorskip("kstore.spark")
    assert [split.partition for split in spark.plan_splits(data, "t")] == [0]


def test_what_was_flushed_there_is_missed(tmp_path: Path) -> None:
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        store.extend("t", [b"v"] * 5)
    for file in (tmp_path / "t-0").iterdir():
        file.unlink()
    assert "offsets 0 to 4 had been flushed" in str(kstore.open(tmp_path / "t-0").recovery)
