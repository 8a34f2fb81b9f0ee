"""No false alarm beside a process that writes, and in copies that were made meanwhile."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

import kstore
from kstore.checking.check import check_parts
from tests.helpers.effort import times
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.processes import Program
from tests.shared.processes import ended, started

REPOSITORY = Path(__file__).parents[2]
WRITER = """
import random, sys, time
import kstore
sys.path.insert(0, sys.argv[3])
from tests.helpers.markers import end_transaction, transactional

kind, rng, sequence = sys.argv[2], random.Random(1), 0
policy = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0} if kind == "keyed" else {}
with kstore.open(sys.argv[1], "a", internal_segment_bytes=20000, index_interval_bytes=200, **policy) as log:
    while True:
        time.sleep(0.002)  # a copy syncs each segment
        now = int(time.time() * 1000)
        if kind == "transactions":
            log.append_batches(transactional((now, None, b"v", None), producer=1, sequence=sequence))
            sequence += 1
            if rng.random() < 0.3:
                end_transaction(log, rng.choice(("ABORT", "COMMIT")), now, 1)
        else:
            log.extend([b"v" * 50] * 5, [b"k%d" % rng.randrange(9) for _ in range(5)])
        if kind == "keyed" and rng.random() < 0.02:
            log.compact()
        if kind == "cut" and rng.random() < 0.02:
            log.truncate_to((log.log_start_offset + log.log_end_offset) // 2)
        if kind == "cut" and rng.random() < 0.02:
            log.delete_records(rng.randint(log.log_start_offset, log.log_end_offset))
        if rng.random() < 0.05:
            print(log.log_end_offset, flush=True)
"""


@pytest.mark.parametrize("kind", ["plain", "keyed", "transactions", "cut"])
def test_beside_a_writer(tmp_path: Path, kind: str) -> None:
    path, copy = tmp_path / "orders-0", tmp_path / "copy-0"
    writer = Program(WRITER, path, kind, REPOSITORY)
    try:
        for _ in range(times(6)):
            assert writer.read()
            report = kstore.check(path)
            assert report.is_whole, report
            shutil.rmtree(copy, ignore_errors=True)
            kstore.copy(path, copy)
            report = kstore.check(copy)
            assert report.is_whole, report
    finally:
        writer.kill()
        writer.end()


@pytest.mark.parametrize("offset", [5, 0])
def test_a_truncation_before_a_crash_is_no_loss(tmp_path: Path, offset: int) -> None:
    """The high watermark of the last clean stop was beyond it."""
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        store.extend("t", [b"%d" % i for i in range(20)])

    def truncate() -> None:
        store = kstore.LogStore(tmp_path, mode="a")
        if offset:
            store.log("t").truncate_to(offset)
        else:
            store.log("t").truncate_fully_and_start_at(offset)
        os.kill(os.getpid(), signal.SIGKILL)

    assert ended(started(truncate)) == -signal.SIGKILL
    assert not kstore.check(tmp_path).problems()


def test_a_topic_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    with kstore.LogStore(tmp_path, mode="a") as store:
        for topic in ("kept", "deleted"):
            store.create_topic(topic)
            store.append(topic, b"v")
        report = check_parts([tmp_path], listed=lambda _: store.delete_topic("deleted"))
        assert not report.problems()
        assert not kstore.check(tmp_path).problems()


def test_a_deleted_topic_without_its_first_records(tmp_path: Path) -> None:
    """Its line in log-start-offset-checkpoint is gone."""
    with kstore.LogStore(tmp_path, mode="a") as store:
        for topic in ("kept", "deleted"):
            store.create_topic(topic)
            store.extend(topic, [b"v"] * 20)
            store.log(topic).delete_records(5)
        store.delete_topic("deleted")
        assert not kstore.check(tmp_path).problems()


def test_an_open_transaction_that_retention_has_deleted(tmp_path: Path) -> None:
    now = int(time.time() * 1000)
    with kstore.open(tmp_path / "t-0", "a", retention_bytes=0) as log:
        log.append_batches(transactional((now, None, b"v", None), producer=1, sequence=0))
        log.roll()
        log.append(b"v")
        log.retain()
        assert log.log_start_offset > 0
        log.append_batches(transactional((now, None, b"v", None), producer=2, sequence=0))
        end_transaction(log, "ABORT", now, 2)
    assert not kstore.check(tmp_path / "t-0").problems()
