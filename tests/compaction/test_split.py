"""A segment whose offsets span more than 2^31 - 1, as Kafka before 2.0 could leave one, met by a compaction."""

import contextlib
import errno
import os
import shutil
from pathlib import Path

import pytest

import kstore
from kstore.engine.io import file
from kstore.engine.io.file import calls_made, fail_call
from kstore.testing import Recorder
from tests.compaction import disks
from tests.compaction.stages import names, overflowed
from tests.helpers.calls import some_calls

CONFIG = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, "file_delete_delay_ms": 0}


def last_ones(log: kstore.PartitionLog) -> list[int]:
    """Which records a compaction must leave."""
    return sorted({record.key: record.offset for record in log}.values())


def test_it_is_split_first(tmp_path: Path) -> None:
    partition = overflowed(tmp_path)
    with kstore.open(partition, "a", clean=True, **CONFIG) as log:
        left = last_ones(log)
        kept = {path: path.read_bytes() for path in partition.iterdir()}
        told = log.compact(dry_run=True)
        assert {path: path.read_bytes() for path in partition.iterdir()} == kept
        reader = iter(kstore.open(partition, clean=True))
        next(reader)
        done = log.compact()
        assert done == told._replace(dry_run=False)
        assert [s.base_offset for s in done.segments] == [0, 2147483657, 6442450941]
        assert [record.offset for record in log] == left
        assert all(log.get(offset).offset == offset for offset in left)  # by the new indexes
        assert len(list(reader)) == 23  # in the old file
        assert not log.compact().segments
    again = kstore.open(partition)
    assert [record.offset for record in again] == left
    assert not again.recovery.findings
    assert not [name for name in names(partition) if name.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("number", range(1, 40))
def test_old_or_new_if_a_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Whatever renaming fails: this log, and another opening, have the records that were there, or those that stay."""
    partition = overflowed(tmp_path)
    with kstore.open(partition, "a", clean=True, **CONFIG) as log:
        before, left = [record.offset for record in log], last_ones(log)
        calls = 0
        real = file.rename

        def failing(source: str, target: str) -> None:
            nonlocal calls
            calls += 1
            if calls == number:
                raise OSError(5, "made up", source)
            real(source, target)

        for module in ("kstore.log.writer", "kstore.log.write.deleted_segments"):
            monkeypatch.setattr(f"{module}.rename", failing)
        try:
            log.compact()
        except (OSError, kstore.KstoreError):
            assert calls >= number
        monkeypatch.undo()
        assert set(left) <= {record.offset for record in kstore.open(partition)} <= set(before)
        log.abandon()
    with kstore.open(partition, "a", **CONFIG) as log:
        found = [record.offset for record in log]
        assert set(left) <= set(found) <= set(before)
        assert found == sorted(found)
        log.compact()
        assert [record.offset for record in log] == left


class Split:
    """A log whose first segment a compaction must split, and what it holds before and afterwards."""

    def __init__(self, root: Path) -> None:
        self.source = overflowed(root / "source")
        log = kstore.open(self.source, clean=True)
        self.before = {record.offset: record for record in log}
        self.left = last_ones(log)
        whole = self.copy(root / "whole")
        fail_call(0)
        self.work(whole)
        self.calls = calls_made()

    def copy(self, to: Path) -> Path:
        """The log directory and its checkpoints; the path of the partition in it."""
        shutil.copytree(self.source.parent, to)
        return to / self.source.name

    def work(self, partition: Path) -> None:
        with kstore.open(partition, "a", clean=True, **CONFIG) as log:
            log._flusher.stop()
            log.compact()

    def check(self, log: kstore.PartitionLog) -> None:
        found = list(log)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        assert set(self.left) <= set(offsets)
        assert all(record == self.before[record.offset] for record in found)

    def check_reopened(self, partition: Path) -> None:
        self.check(kstore.open(partition))
        with kstore.open(partition, "a", **CONFIG) as log:
            assert not log.recovery.losses
            self.check(log)
            log.compact()
            assert [record.offset for record in log] == self.left
            assert all(log.get(offset).offset == offset for offset in self.left)
        assert not [name for name in names(partition) if name.endswith((".cleaned", ".swap", ".deleted"))]
        again = kstore.open(partition)
        assert not again.recovery.findings
        assert [record.offset for record in again] == self.left


@pytest.mark.usefixtures("sound_calls")
@pytest.mark.parametrize("how", ["error", "half", "kill", "kill_half"])
def test_old_or_new_whatever_call_is_the_last(ram: Path, how: str) -> None:
    """A call fails, or the process dies at it: the segment is whole, or split, and the next opening finishes the work."""
    split = Split(ram)
    assert split.calls > 60
    for nth in some_calls(split.calls, 3, how):
        partition = split.copy(ram / f"at-{nth}")
        child = os.fork()
        if child == 0:
            try:
                fail_call(nth, errno.EIO, how)
                with contextlib.suppress(OSError, kstore.KstoreError):
                    split.work(partition)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        split.check_reopened(partition)
        shutil.rmtree(partition.parent)


@pytest.mark.usefixtures("sound_calls")
def test_power_cuts(ram: Path) -> None:
    """Whatever had reached the disk when the power failed: the segment is whole, or split."""
    split = Split(ram)
    root = ram / "recorded"
    partition = split.copy(root)
    with Recorder(root) as recorder:
        split.work(partition)

    def check(left: Path) -> None:
        split.check_reopened(left / partition.name)

    def reopen(left: Path) -> None:
        kstore.open(left / partition.name, "a", **CONFIG).close()

    assert disks.check_each(recorder.trace, ram, check, 60, reopen) > 30
