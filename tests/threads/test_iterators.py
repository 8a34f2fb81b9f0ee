"""Iterators and threads: one at a time reads, and the others run while it waits for bytes."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.effort import times
from tests.helpers.waiting import threads_doing

RECORDS = 30_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shared") / "t-0"
    with kstore.open(path, "a", segment_bytes=1 << 20) as writer:
        for first in range(0, RECORDS, 1000):
            writer.extend([b"%400d" % offset for offset in range(first, first + 1000)])
    return path


@pytest.fixture
def log(path: Path) -> kstore.PartitionLog:
    return kstore.open(path)


def of_record(record: kstore.Record) -> list[int]:
    return [record.offset]


def of_batch(batch: kstore.RecordBatch) -> list[int]:
    return list(range(batch.base_offset, batch.last_offset + 1))


def of_columns(batch: Any) -> list[int]:
    offsets: list[int] = batch.column("offset").values.tolist()
    return offsets


# not generators: those Python guards itself
ITERATORS: dict[str, Callable[[kstore.PartitionLog], Iterator[list[int]]]] = {
    "records": lambda log: map(of_record, iter(log.records())),
    "batches": lambda log: map(of_batch, log.batches()),
    "scan": lambda log: map(of_columns, iter(log.scan(batch_rows=500))),
    "views": lambda log: map(of_columns, iter(log.scan(batch_rows=500, views=True))),
    "two threads": lambda log: map(of_columns, iter(log.scan(batch_rows=500, threads=2))),
}


@pytest.mark.parametrize("kind", ITERATORS)
def test_threads_that_share_an_iterator(log: kstore.PartitionLog, kind: str) -> None:
    """A second one gets an error, or waits for its turn; all records are read, each once."""
    found: list[list[int]] = [[], [], []]
    refused: list[Exception] = []

    def read(shared: Iterator[list[int]], offsets: list[int]) -> None:
        try:
            for more in shared:
                offsets.extend(more)
        except (RuntimeError, ValueError) as e:  # ours, and what Python says of its own generators
            refused.append(e)

    for _ in range(times(3)):
        shared = ITERATORS[kind](log)
        for offsets in found:
            offsets.clear()
        refused.clear()
        with threads_doing(*(partial(read, shared, offsets) for offsets in found)):
            pass
        assert len(refused) < len(found)
        assert sorted(chain(*found)) == list(range(RECORDS))
        assert all("already" in str(e) for e in refused)


@pytest.mark.parametrize("kind", ["records", "batches", "scan", "views"])
def test_other_threads_run_while_bytes_are_read(log: kstore.PartitionLog, kind: str) -> None:
    """No thread is made to give up the GIL here: it does so of itself or not at all."""
    turns, done = 0, threading.Event()

    def count() -> None:
        nonlocal turns
        while not done.is_set():
            time.sleep(0)  # gives up the GIL, and takes it again
            turns += 1

    for _ in ITERATORS[kind](log):
        pass  # opening the files lets others run too, but that is done once
    interval = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    thread.start()
    try:
        sys.setswitchinterval(1000)
        before = turns
        for _ in range(500):
            for _ in ITERATORS[kind](log):
                pass
            if turns > before:
                break
        during = turns - before
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()
    assert during > 0
