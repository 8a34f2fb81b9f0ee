"""Batches outlive their log, their scan and each other; what is exported is released once."""

import gc
import random
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow
import pytest

import kstore
from kstore.engine.columns.array import ColumnBatch
from kstore.engine.io.buffers import POOL
from tests.helpers.waiting import threads_doing


@pytest.fixture
def log(tmp_path: Path) -> kstore.PartitionLog:
    with kstore.open(tmp_path / "some-0", "a") as out:
        for i in range(0, 1000, 100):
            out.extend([b"value %05d of some length" % j for j in range(i, i + 100)], headers={"h": b"x"})
    return kstore.open(tmp_path / "some-0")


RIGHT = [b"value %05d of some length" % j for j in range(1000)]


@pytest.mark.parametrize("views", [False, True])
def test_columns_outlive_everything(log: kstore.PartitionLog, views: bool) -> None:
    scan = log.scan(views=views, batch_rows=70)
    batches = list(scan)
    columns = [batch.column("value") for batch in batches]
    arrays = [pyarrow.array(column) for column in columns]
    kept = [pyarrow.record_batch(batch)["headers"] for batch in batches]
    offsets = [batch.column("offset").values for batch in batches]
    log.close()
    del scan, batches
    gc.collect()
    junk = [bytearray(100_000) for _ in range(100)]
    assert [row for column in columns for row in column.to_list()] == RIGHT
    del columns, junk
    gc.collect()
    assert [row for array in arrays for row in array.to_pylist()] == RIGHT
    assert kept[3].to_pylist()[0] == [{"key": "h", "value": b"x"}]
    assert np.concatenate(offsets).tolist() == list(range(1000))


def test_arrays_are_views(log: kstore.PartitionLog) -> None:
    (batch,) = log.scan()
    column = batch.column("value")
    assert column.offsets[:3].tolist() == [0, 26, 52]
    assert bytes(column.data[:26]) == RIGHT[0]
    assert batch.column("timestamp_type").values.dtype == np.int8
    assert np.shares_memory(batch.column("offset").values, pyarrow.record_batch(batch)["offset"].to_numpy())
    assert not column.data.flags.writeable
    assert batch.column("key").validity.tolist() == [False] * 1000
    assert column.validity is None
    for wrong in (lambda: column.values, lambda: column.views, lambda: batch.column("offset").offsets):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(KeyError):
        batch.column("crc")


def references(batch: object) -> int:
    gc.collect()
    return sys.getrefcount(batch)


def test_every_export_is_released_once(log: kstore.PartitionLog) -> None:
    (batch,) = log.scan()
    parts = (batch.values, batch.column("value"), batch.column("headers"))
    before = [references(each) for each in parts]
    unused = batch.__arrow_c_array__()
    taken = pyarrow.record_batch(batch)
    child = taken["value"]
    assert [references(each) for each in parts] > before
    del unused, taken
    assert child.to_pylist() == RIGHT
    del child
    assert [references(each) for each in parts] == before


def test_streams(log: kstore.PartitionLog) -> None:
    scan = log.scan(["offset"], batch_rows=300)
    assert pyarrow.schema(scan).names == ["offset"]
    capsule = scan.__arrow_c_stream__()
    del capsule  # never used
    reader = pyarrow.RecordBatchReader.from_stream(scan)
    first = reader.read_next_batch()
    del reader, scan
    gc.collect()
    assert len(first) == 300
    assert len(pyarrow.table(log.scan(threads=2))) == 1000
    assert len(pyarrow.table(log.scan(["offset"], start=5, stop=9))) == 4


def test_a_scan_is_read_anew_and_by_many_threads(log: kstore.PartitionLog) -> None:
    scan = log.scan(batch_rows=100, threads=2)
    found: list[list[bytes]] = []

    def read() -> None:
        found.append([row for batch in scan for row in batch.column("value").to_list()])

    with threads_doing(*[read] * 4):
        pass
    assert found == [RIGHT] * 4


def test_a_scan_left_in_the_midst(log: kstore.PartitionLog) -> None:
    for threads in (1, 2):
        batches = iter(log.scan(batch_rows=10, threads=threads))
        assert next(batches).column("value").to_list() == RIGHT[:10]
        del batches
        gc.collect()


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("library", ["polars", "duckdb"])
def test_other_libraries(log: kstore.PartitionLog, library: str, views: bool) -> None:
    module = pytest.importorskip(library)
    scan = log.scan(views=views, batch_rows=300)
    if library == "polars":
        frame = module.DataFrame(scan)
        assert frame["value"].to_list() == RIGHT
        assert frame["headers"].to_list()[999] == [{"key": "h", "value": b"x"}]
    else:
        assert module.sql("select count(*), max(value) from scan").fetchall() == [(1000, RIGHT[-1])]


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_is_used_again_only_when_nobody_looks(tmp_path: Path, views: bool, threads: int) -> None:
    """Several threads scan, keep some of their batches, and let them go in any order and in other threads."""
    count = 20_000
    with kstore.open(tmp_path / "many-0", "a", index_interval_bytes=4096) as out:
        for first in range(0, count, 500):
            values = [b"%08d" % i * 12 for i in range(first, first + 500)]
            out.extend(values, keys=[value[:8] for value in values])
    log = kstore.open(tmp_path / "many-0")
    kept: list[tuple[int, pyarrow.RecordBatch | ColumnBatch]] = []
    lock = threading.Lock()
    wrong: list[str] = []

    def check(first: int, batch: pyarrow.RecordBatch | ColumnBatch) -> None:
        taken = pyarrow.record_batch(batch)
        values = [b"%08d" % i * 12 for i in range(first, first + len(taken))]
        if taken["value"].to_pylist() != values or taken["offset"].to_pylist() != list(
            range(first, first + len(taken))
        ):
            wrong.append(f"{first}: {taken['value'][0]}")

    def work(seed: int) -> None:
        rnd = random.Random(seed)
        for _ in range(4):
            scan = log.scan(["offset", "key", "value"], views=views, threads=threads, batch_rows=1000)
            for batch in scan:
                first = int(batch.column("offset").values[0])
                with lock:
                    kept.append((first, pyarrow.record_batch(batch) if rnd.random() < 0.5 else batch))
                    given = kept.pop(rnd.randrange(len(kept))) if len(kept) > 30 else None
                if given is not None:
                    check(*given)
                del batch, given

    with threads_doing(*(partial(work, seed) for seed in range(4))):
        pass
    log.close()
    for first, batch in kept:
        check(first, batch)
    assert not wrong
    del first, batch
    kept.clear()
    gc.collect()
    assert POOL.kept <= POOL.most_kept


def test_a_batch_of_few_rows_takes_little_memory(log: kstore.PartitionLog) -> None:
    (batch,) = log.scan(start=7, stop=8)
    (none,) = [*log.scan(key=b"not there"), None]
    rooms = [buffer.room for column in batch.columns for buffer in column.buffers if buffer is not None]
    assert none is None
    assert sum(rooms) < 400_000


def test_views_keep_no_more_after_copies(tmp_path: Path) -> None:
    """What views keep alive is what was read at once, whatever large buffers other scans have left behind."""
    with kstore.open(tmp_path / "large-0", "a") as out:
        for _ in range(100):
            out.extend([bytes(4096)] * 20)
    log = kstore.open(tmp_path / "large-0")
    assert len(list(log.scan(["value"], batch_bytes=16 << 20))) == 1
    for batch in log.scan(["value"], views=True):
        blocks = batch.column("value").buffers[3:-1]
        assert blocks
        assert max(block.room for block in blocks if block is not None) < 1 << 20
