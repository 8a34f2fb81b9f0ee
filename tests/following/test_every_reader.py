"""What every reader does that follows a log, whichever kind it is, and however its records are asked for."""

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kstore
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.readers import EVERY, READERS, WAYS
from tests.helpers.waiting import until_waiting

FOLLOWING = ("following cursor", "follower", "following store cursor", "store follower")
WAITING = [(kind, way) for kind, way in EVERY if kind in FOLLOWING and way in ("records", "tasks", "columns")]


def no_inotify(patch: pytest.MonkeyPatch) -> None:
    """As if the system had no instance left."""

    def none_left() -> None:
        raise OSError(errno.EMFILE, "none left")

    for module in ("kstore.log.follow.sources", "kstore.log.follow.partition_watch"):
        patch.setattr(f"{module}.Inotify", none_left)


@pytest.mark.parametrize("told", [True, False], ids=["inotify", "without"])
@pytest.mark.parametrize(("kind", "way"), WAITING)
def test_it_waits_for_what_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, way: str, told: bool
) -> None:
    """Until another thread closes it."""
    if not told:
        no_inotify(monkeypatch)
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
        with READERS[kind](tmp_path / "t-0", timeout=60) as reader:
            offsets = WAYS[way](reader)
            found = [next(offsets)]
            for _ in range(3):
                late = threading.Timer(0.02, log.append, [b"v"])
                late.start()
                found.append(next(offsets))
                late.join()
            late = threading.Timer(0.02, reader.close)
            late.start()
            assert list(offsets) == []
            late.join()
    assert found == [0, 1, 2, 3]


@pytest.mark.parametrize(("kind", "way"), EVERY)
def test_committed_records_only(tmp_path: Path, kind: str, way: str) -> None:
    """It passes over markers and aborted records, and waits at an open transaction."""
    with kstore.open(tmp_path / "t-0", "a", clock=lambda: 1_700_000_000_000) as log:
        now = log.clock_ms()
        log.append(b"0")
        log.append_batches(transactional((now, None, b"1", None)))
        log.append(b"2")
        with READERS[kind](tmp_path / "t-0", isolation="read_committed") as reader:
            assert list(WAYS[way](reader)) == [0]
            end_transaction(log, "COMMIT", now)
            log.append_batches(transactional((now, None, b"4", None), sequence=1))
            log.append(b"5")
            assert list(WAYS[way](reader)) == [1, 2]
            end_transaction(log, "ABORT", now)
            assert list(WAYS[way](reader)) == [5]


@pytest.mark.parametrize("kind", ["cursor", "store cursor", "following store cursor", "store follower"])
def test_a_second_thread_is_refused(tmp_path: Path, kind: str) -> None:
    """The first one is not disturbed; when its loop has ended, others go on from there."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 3)
    with READERS[kind](tmp_path / "t-0") as reader, ThreadPoolExecutor(1) as pool:
        first = iter(reader)
        assert next(first).offset == 0
        for other in (reader, *([reader.scan(["offset"])] if hasattr(reader, "scan") else [])):
            with pytest.raises(RuntimeError, match="being read already"):
                pool.submit(lambda other=other: next(iter(other))).result()
        assert next(first).offset == 1
        del first
        assert pool.submit(lambda: next(iter(reader)).offset).result() == 2


@pytest.mark.parametrize("kind", FOLLOWING)
def test_a_second_thread_beside_one_that_waits(tmp_path: Path, kind: str) -> None:
    with (
        kstore.open(tmp_path / "t-0", "a") as log,
        ThreadPoolExecutor(1) as pool,
        READERS[kind](tmp_path / "t-0", timeout=60) as reader,
    ):
        thread = pool.submit(threading.get_ident).result()
        first = pool.submit(lambda: next(iter(reader)).offset)
        until_waiting(thread)
        with pytest.raises(RuntimeError, match="being read already"):
            next(iter(reader))
        log.append(b"v")
        assert first.result() == 0
