"""A compaction, an erasure or a split that fails, or whose process dies, at a system call, or while the power
fails: old segments or new ones, nothing between."""

import os
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

import kstore
from kstore.log.segments import replacement
from kstore.testing import Recorder, count_calls, failing
from tests.compaction import disks
from tests.compaction.operations import OPERATIONS, Operation
from tests.helpers.calls import ends
from tests.helpers.effort import SEED, times
from tests.helpers.files import contents
from tests.helpers.key_files import settle
from tests.shared.processes import ended, started

pytestmark = pytest.mark.timeout(times(300))


@pytest.fixture(params=OPERATIONS)
def operation(ram: Path, request: pytest.FixtureRequest) -> Operation:
    made: Operation = request.param(ram)
    return made


@pytest.mark.filterwarnings("ignore:.*not kept for the next opening")
def test_whatever_call_is_the_last(ram: Path, operation: Operation) -> None:
    partition = operation.copy(ram / "whole")
    total = count_calls(lambda: operation.work(partition))
    assert total > 60
    ended = 0
    for end in ends(total, 25, type(operation).__name__):
        partition = operation.copy(ram / "t")
        try:
            ended += end.of(lambda partition=partition: operation.work(partition))
            operation.check_reopened(partition)
        except BaseException as e:
            e.add_note(f"SEED={SEED}: {end}")
            raise
        shutil.rmtree(ram / "t")
    assert ended > 10


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # of a record that was not flushed
def test_power_cuts(ram: Path, operation: Operation) -> None:
    root = ram / "recorded"
    partition = operation.copy(root)
    with Recorder(root) as recorder:
        operation.work(partition)
    believed = 0

    def check(left: Path) -> None:
        nonlocal believed
        believed += settle(left)
        operation.check_reopened(left / partition.name)

    def reopen(left: Path) -> None:
        kstore.open(left / partition.name, "a", **operation.options).close()

    assert disks.check_each(recorder.trace, ram, check, 12, reopen) > 10
    assert believed > 10 or not list(partition.glob("*.keys"))


def test_a_split_while_a_reader_is_at_it(ram: Path) -> None:
    [operation] = [kind(ram) for kind in OPERATIONS if kind.clean]
    partition = operation.source
    with kstore.open(partition, "a", clean=True, **operation.options) as log:
        kept = contents(partition)
        planned = log.compact(dry_run=True)
        assert contents(partition) == kept
        reader = iter(kstore.open(partition, clean=True))
        next(reader)
        done = log.compact()
        assert done == planned._replace(dry_run=False)
        assert [s.base_offset for s in done.segments] == [0, 2147483657, 6442450941]
        operation.check_done(log)
        assert len(list(reader)) == 23  # in the old file
        assert not log.compact().segments
    operation.check_done(kstore.open(partition))


def test_flushing_a_log_that_refuses_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if nothing is left to sync. Reading goes on."""

    def rename(source: str, target: str) -> None:
        if source.endswith(".swap"):
            raise KeyboardInterrupt
        os.rename(source, target)  # noqa: PTH104

    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 3, keys=[b"a", b"b", b"c"])
        log.roll()
        assert log.flush() == 3
        monkeypatch.setattr(replacement, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            log.erase(keys=[b"a"], reason="asked", what="values")
        for call in (log.flush, partial(log.append, b"x")):
            with pytest.raises(kstore.LogFailedError, match="was not finished"):
                call()
        assert len(list(log)) == 3
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert [record.value for record in log] == [None, b"v", b"v"]


def test_a_truncation_into_a_segment_that_a_compaction_has_emptied(ram: Path) -> None:
    """Killed at each system call, it is done or not: what is left tells where the log ends."""
    kept, directory = ram / "kept-0", ram / "t-0"
    options = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0, "internal_segment_bytes": 720}
    with kstore.open(kept, "a", **options) as log:
        log.append(b"v", key=b"first")
        for value in (b"a", b"b"):
            log.roll()
            for number in range(10):
                log.append(value, key=b"%d" % number)
        log.roll()
        log.append(b"v", key=b"last")
        log.compact()
        assert [(each.base_offset, each.size > 0) for each in log.segments][1] == (1, False)
    found, code, nth = set(), -signal.SIGKILL, 0
    while code == -signal.SIGKILL:
        nth += 1
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(kept, directory)

        def truncate(nth: int = nth) -> None:
            log = kstore.open(directory, "a")
            with failing(nth, how="kill", this_thread=True):
                log.truncate_to(6)

        code = ended(started(truncate))
        with kstore.open(directory, "a") as log:
            found.add(log.append(b"v", key=b"new"))
    assert (nth > 20, found) == (True, {6, 22})
