"""Logs that are changed beside plans, tasks and streams: no false error, and no new record that is passed
over. Without a session."""

import json
import shutil
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.spark import SparkSourceError, partition_reader, plan_splits

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": 0,
    "internal_segment_bytes": 8000,
    "file_delete_delay_ms": 0,
}


def fill(path: Path, count: int, **options: Any) -> None:
    """Appends records whose keys are there again and again."""
    with kstore.open(path, "a", **options) as log:
        for at in range(0, count, 50):
            numbers = range(at, at + 50)
            log.extend([b"%d" % i + b"." * 50 for i in numbers], [b"k%d" % (i % 70) for i in numbers])


def values(splits: Any) -> list[tuple[int, bytes]]:
    return [(offset, value) for offset, _, _, value in partition_reader("records")(splits)]


def in_log(path: Path) -> list[tuple[int, bytes]]:
    return [(r.offset, r.value or b"") for r in kstore.open(path)]


class Beside:
    """Does something when so many functions of kstore.spark have been called, as another process might at
    that moment."""

    def __init__(self, calls: int, work: Callable[[], Any]) -> None:
        self.calls, self.work = calls, work

    def __call__(self, frame: Any, event: str, arg: object) -> None:
        if event != "call" or not frame.f_globals.get("__name__", "").startswith("kstore.spark"):
            return
        self.calls -= 1
        if self.calls == 0:
            sys.setprofile(None)
            self.work()

    def __enter__(self) -> None:
        sys.setprofile(self)

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)


def test_plans_beside_compaction(tmp_path: Path) -> None:
    wrong: list[str] = []
    for call in range(1, 60):
        path = tmp_path / f"t{call}-0"
        fill(path, 500, **COMPACTED)

        def compact(path: Path = path) -> None:
            with kstore.open(path, "a", **COMPACTED) as log:
                log.compact()

        with Beside(call, compact):
            try:
                splits = plan_splits(tmp_path, f"t{call}", target_bytes=5000)
            except SparkSourceError as e:
                wrong.append(str(e))
                continue
        if not set(in_log(path)) <= set(values(splits)):
            wrong.append(f"records are missing at call {call}")
    assert wrong == []


@pytest.mark.parametrize("target_bytes", [128 << 20, 100_000])
def test_a_task_beside_an_erasure(tmp_path: Path, target_bytes: int) -> None:
    """It gives every record that is left, and takes the shorter files for no truncation."""
    fill(tmp_path / "t-0", 20_000, internal_segment_bytes=1 << 19)
    rows = iter(partition_reader("records")(plan_splits(tmp_path, "t", target_bytes=target_bytes)))
    found = {next(rows)[0]}
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.erase(keys=[b"k1"], reason="asked")
    found |= {row[0] for row in rows}
    assert {offset for offset, _ in in_log(tmp_path / "t-0")} <= found


@pytest.mark.parametrize("target_bytes", [128 << 20, 5000])
def test_tasks_beside_compactions(tmp_path: Path, target_bytes: int) -> None:
    """One before each task, and one within it."""
    path = tmp_path / "t-0"
    fill(path, 500, **COMPACTED)

    def compact() -> None:
        fill(path, 100, **COMPACTED)
        with kstore.open(path, "a", **COMPACTED) as log:
            log.compact()

    splits = plan_splits(tmp_path, "t", target_bytes=target_bytes)
    found = set()
    for split in splits:
        compact()
        rows = iter(partition_reader("records")([split]))
        for offset, _, _, value in rows:
            if not found:
                compact()
            found.add((offset, value))
    stop = splits[-1].stop
    assert {row for row in in_log(path) if row[0] < stop} <= found


# ---- streams -----------------------------------------------------------------------------------------------

OLD, NEW = [b"old %d" % i for i in range(50)], [b"new %d" % i for i in range(80)]


def stream(path: Path, **options: str) -> Any:
    from pyspark.sql.types import BinaryType, StructField, StructType

    from kstore.spark import KStoreDataSource

    given = {"path": str(path), "subscribe": "t", "startingOffsets": "earliest"} | options
    return KStoreDataSource(given).streamReader(StructType([StructField("value", BinaryType())]))


def rows_of(own: Any, start: Any, end: Any) -> list[bytes]:
    tasks = own.partitions(start, end)
    return [cell for task in tasks for batch in own.read(task) for cell in batch.column(0).to_pylist()]


def saved(offsets: Any) -> Any:
    """Offsets from a checkpoint."""
    return json.loads(json.dumps(offsets))


def old_records(path: Path) -> None:
    with kstore.LogStore(path, mode="a") as store:
        store.create_topic("t")
        for value in OLD:
            store.append("t", value)


def filled_again(path: Path, how: str) -> list[bytes]:
    """Puts new records in the place of old ones. What is in the log then, from the first new one on."""
    with kstore.LogStore(path, mode="a", file_delete_delay_ms=0) as store:
        if how == "recreated":
            store.delete_topic("t")
            store.create_topic("t")
        else:
            store.log("t").truncate_to(20)
        store.extend("t", NEW)
    return NEW


@pytest.mark.datasource
@pytest.mark.parametrize("how", ["recreated", "truncated"])
@pytest.mark.parametrize("when", ["between micro-batches", "after its end was chosen"])
def test_a_stream_whose_log_was_filled_again(tmp_path: Path, how: str, when: str) -> None:
    """KSTORE_DATA_LOST; with failOnDataLoss=false all new records, once."""
    old_records(tmp_path)
    own = stream(tmp_path)
    start = own.initialOffset()
    read = end = own.latestOffset(start)
    new = filled_again(tmp_path, how)
    own = stream(tmp_path, failOnDataLoss="false")
    if when == "between micro-batches":
        start, end = read, own.latestOffset(saved(read))
    with pytest.raises(SparkSourceError, match=r"KSTORE_DATA_LOST: topic t, partition 0, offset \d+") as e:
        stream(tmp_path).partitions(saved(start), saved(end))
    assert "the topic was deleted" in str(e.value) if how == "recreated" else "truncated" in str(e.value)
    with pytest.raises(SparkSourceError, match="KSTORE_DATA_LOST"):
        stream(tmp_path).latestOffset(saved(read))
    rows = rows_of(own, saved(start), saved(end))
    rows += rows_of(own, saved(end), own.latestOffset(saved(end)))
    assert [row for row in rows if row in new] == new
    again = own.latestOffset(saved(read))
    assert own.latestOffset(saved(again)) == again
    assert rows_of(own, saved(again), saved(again)) == []


@pytest.mark.datasource
def test_a_stream_beside_a_limit_whose_log_was_filled_again(tmp_path: Path) -> None:
    """Its micro-batches end below the offset that was read before."""
    old_records(tmp_path)
    own = stream(tmp_path)
    at = own.latestOffset(own.initialOffset())
    new = filled_again(tmp_path, "truncated")
    own = stream(tmp_path, failOnDataLoss="false", maxOffsetsPerTrigger="10")
    rows: list[bytes] = []
    for number in range(8):
        end = own.latestOffset(at)
        assert end["t"] == {"0": 30 + 10 * number}
        rows += rows_of(own, at, saved(end))
        at = saved(end)
    assert rows == new


@pytest.mark.datasource
def test_offsets_of_an_older_version(tmp_path: Path) -> None:
    """They say nothing of what came before, so only an end of the log below them is a loss."""
    old_records(tmp_path)
    own = stream(tmp_path)
    end = own.latestOffset({"t": {"0": 20}})
    assert rows_of(own, {"t": {"0": 20}}, {"t": {"0": 30}}) == OLD[20:30]
    assert rows_of(own, {"t": {"0": 20}}, end) == OLD[20:]
    assert rows_of(own, {"t": {"0": 50}}, end) == []
    filled_again(tmp_path, "truncated")
    assert rows_of(stream(tmp_path), {"t": {"0": 50}}, own.latestOffset({"t": {"0": 50}})) == NEW[30:]
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.truncate_to(40)
    with pytest.raises(SparkSourceError, match="KSTORE_DATA_LOST"):
        stream(tmp_path).latestOffset({"t": {"0": 50}})
    assert stream(tmp_path, failOnDataLoss="false").latestOffset({"t": {"0": 50}})["t"] == {"0": 40}


@pytest.mark.datasource
@pytest.mark.parametrize("how", ["recreated", "truncated"])
def test_a_stream_on_a_log_of_a_broker(tmp_path: Path, how: str) -> None:
    """Which gives topics ids, and begins a leader epoch where it truncates."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", topic_id=uuid.UUID(int=1), leader_epoch=3) as log:
        for value in OLD:
            log.append(value)
    at = (own := stream(tmp_path)).latestOffset(own.initialOffset())
    if how == "recreated":
        shutil.rmtree(path)
        with kstore.open(path, "a", topic_id=uuid.UUID(int=2), leader_epoch=3) as log:
            log.extend(NEW)
    else:
        with kstore.open(path, "a", leader_epoch=4) as log:
            log.truncate_to(20)
            log.extend(NEW)
        (path / "kstore.json").unlink()  # a broker notes none
    with pytest.raises(SparkSourceError, match="KSTORE_DATA_LOST"):
        (own := stream(tmp_path)).latestOffset(saved(at))
    own = stream(tmp_path, failOnDataLoss="false")
    assert rows_of(own, saved(at), own.latestOffset(saved(at))) == NEW
