"""No false alarm beside a process that writes, and in copies that were made meanwhile."""

import os
import shutil
import signal
from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import times
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
            log.truncate_to(log.log_end_offset // 2)
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
