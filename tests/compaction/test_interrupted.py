"""A cleaning that fails, or whose process dies, at a system call: old segments or new ones, nothing between.

Some of the calls each; all with KSTORE_CALLS=all.
"""

import errno
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

import kstore
from kstore.engine.io.file import calls_made, fail_call
from kstore.log import writer
from kstore.testing.recorder import Recorder
from tests.compaction import disks
from tests.helpers.calls import some_calls
from tests.helpers.key_files import remember, settle

OPTIONS = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": 2000,
    "index_interval_bytes": 100,
    "min_cleanable_dirty_ratio": 0,
    "file_delete_delay_ms": 0,
}
NOW = int(time.time() * 1000)  # a producer that is silent for long would be forgotten


pytestmark = pytest.mark.usefixtures("sound_calls")


def marker(producer: int, kind: int) -> bytes:
    record = (NOW, bytes([0, 0, 0, kind]), bytes(6), None)
    return kstore.encode_batch(
        [record], producer_id=producer, producer_epoch=0, transactional=True, control=True
    )


def transaction(producer: int, sequence: int, keys: range) -> bytes:
    return kstore.encode_batch(
        [(NOW, b"%d" % key, b"of %d" % producer, None) for key in keys],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def write(directory: Path) -> None:
    """A log of keys that come again and again, with tombstones, and transactions that were aborted."""
    with kstore.open(directory, "a", **OPTIONS) as log:
        for round_ in range(4):
            values = [b"%d of %d" % (key, round_) + b"." * 40 for key in range(30)]
            log.extend(values, keys=[b"%d" % key for key in range(30)], batch_bytes=300)
            log.append_batches(transaction(7, 3 * round_, range(3)))
            log.append_batches(marker(7, round_ % 2), origin="coordinator", transaction_version=0)
        log.extend([None] * 5, keys=[b"%d" % key for key in range(5)])
        log.roll()


def clean(directory: Path) -> None:
    """Two cleanings, the second of segments that are small enough to be put together. There are .keys files all the time."""
    with kstore.open(directory, "a", **OPTIONS) as log:
        log._flusher.stop()
        log.compact()
        make_key_files(log)
        log.configure(internal_segment_bytes=1_000_000)
        log.append(b"later", b"other", timestamp=NOW)
        log.roll()
        make_key_files(log)
        log.compact()
        make_key_files(log)


def make_key_files(log: kstore.LogWriter) -> None:
    log.make_key_files()
    remember(Path(log.path))


def records(log: kstore.PartitionLog) -> dict[int, kstore.Record]:
    """The records by offset. None is there twice, or below the one before it."""
    found = list(log)
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    return {record.offset: record for record in found}


def left_behind(directory: Path) -> list[Path]:
    """Files of work that was not finished."""
    return [
        path
        for path in directory.iterdir()
        if path.name.endswith((".cleaned", ".swap", ".deleted", ".keys.tmp"))
    ]


def table(found: Iterable[kstore.Record]) -> dict[bytes | None, bytes | None]:
    """The last value of each key that was not deleted."""
    last = {record.key: record.value for record in found}
    return {key: value for key, value in last.items() if value is not None and key != b"other"}


class Sample:
    """A log to be cleaned, and what it holds before and afterwards."""

    def __init__(self, root: Path) -> None:
        self.source = root / "source-0"
        write(self.source)
        self.before = records(kstore.open(self.source))
        self.committed = {r.offset for r in kstore.open(self.source).records(isolation="read_committed")}
        whole = self.copy(root / "whole-0")
        fail_call(0)
        clean(whole)
        self.calls = calls_made()
        self.after = records(kstore.open(whole))

    def copy(self, to: Path) -> Path:
        """With .keys files, which those of the source would be no more."""
        shutil.copytree(self.source, to)
        with kstore.open(to, "a", **OPTIONS) as log:
            make_key_files(log)
        return to

    def check(self, log: kstore.PartitionLog) -> None:
        there = records(log)
        for offset, record in there.items():
            assert record == {**self.before, **self.after}[offset]
        missing = [o for o in self.after if o not in there and o in self.before]
        assert not missing
        shown = {r.offset for r in log.records(isolation="read_committed")}
        assert shown <= self.committed | {max(self.after)}
        last = table(log.records(isolation="read_committed"))
        assert last == table(self.after.values())
        for key, value in last.items():
            record = log.last(key or b"", isolation="read_committed")
            assert record is not None
            assert record.value == value
        assert log.last(b"nobody") is None

    def check_reopened(self, directory: Path) -> None:
        self.check(kstore.open(directory))
        with kstore.open(directory, "a", **OPTIONS) as log:
            self.check(log)
            assert not log.recovery.losses
        assert not left_behind(directory)
        again = kstore.open(directory)
        assert not again.recovery.findings
        self.check(again)
        clean(directory)
        final = kstore.open(directory)
        assert [r for r in records(final).values() if r.key != b"other"] == [
            r for r in self.after.values() if r.key != b"other"
        ]
        producers = final.producers()
        assert producers[7].batches[-1].last_sequence == 11


@pytest.mark.parametrize(
    ("error", "how"),
    [(errno.EIO, "error"), (errno.ENOSPC, "error"), (errno.EIO, "half")],
    ids=["EIO", "ENOSPC", "EIO after half"],
)
def test_any_call_fails(ram: Path, error: int, how: str) -> None:
    sample = Sample(ram)
    assert sample.calls > 100
    for nth in some_calls(sample.calls, 9, (error, how)):
        directory = sample.copy(ram / f"t{nth}-0")
        fail_call(nth, error, how)
        log = None
        try:
            clean(directory)
        except OSError as e:
            assert e.errno == error
        except kstore.KstoreError:
            pass  # refused, because a call in the background had failed
        finally:
            fail_call(0)
        del log
        sample.check_reopened(directory)
        shutil.rmtree(directory)


@pytest.mark.parametrize("how", ["kill", "kill_half"])
def test_killed_at_every_call(ram: Path, how: str) -> None:
    sample = Sample(ram)
    for nth in some_calls(sample.calls, 9, how):
        directory = sample.copy(ram / f"t{nth}-0")
        child = os.fork()
        if child == 0:
            try:
                fail_call(nth, how=how)
                clean(directory)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        sample.check_reopened(directory)
        shutil.rmtree(directory)


def test_a_log_goes_on_after_a_full_disk(ram: Path) -> None:
    """Whatever call of a cleaning finds the disk full: the log is as it was, or refuses to write and says so."""
    sample = Sample(ram)
    done = 0
    for nth in range(1, sample.calls + 1):
        directory = sample.copy(ram / f"t{nth}-0")
        with kstore.open(directory, "a", **OPTIONS) as log:
            log._flusher.stop()
            fail_call(nth, errno.ENOSPC, own=True)
            try:
                log.compact()
                done += 1
            except OSError as e:
                assert e.errno == errno.ENOSPC
            finally:
                fail_call(0)
            sample.check(log)
            try:
                log.compact()
                log.append(b"goes on", b"other")
            except kstore.LogFailedError:
                continue
            assert not left_behind(directory)
        shutil.rmtree(directory)
        if done > 3:
            return


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # of a record that nobody has flushed
def test_power_cuts(ram: Path) -> None:
    """Whatever of the calls had reached the disk when the power failed: old segments or new ones."""
    sample = Sample(ram)
    root = ram / "recorded"
    root.mkdir()
    sample.copy(root / "t-0")
    with Recorder(root) as recorder:
        clean(root / "t-0")
    believed = 0

    def check(left: Path) -> None:
        nonlocal believed
        believed += settle(left)
        sample.check(kstore.open(left / "t-0"))
        with kstore.open(left / "t-0", "a", **OPTIONS) as log:
            sample.check(log)
        assert not left_behind(left / "t-0")
        sample.check(kstore.open(left / "t-0"))

    def reopen(left: Path) -> None:
        kstore.open(left / "t-0", "a", **OPTIONS).close()

    assert disks.check_each(recorder.trace, ram, check, 40, reopen) > 30
    assert believed > 30


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_ctrl_c_between_renames(ram: Path, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """The first segment is emptied. Its old indexes must not lie beside the new file at the next opening."""
    directory = ram / "t-0"
    with kstore.open(directory, "a", **OPTIONS) as log:
        for _ in range(2):
            log.extend([b"v" * 40] * 30, keys=[b"%d" % key for key in range(30)], batch_bytes=300)
            log.roll()
        log.flush()  # so that the next opening takes these segments as they are
        before = records(log)
        left = nth

        def rename(path: str, target: str) -> None:
            nonlocal left
            real(path, target)
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

        real = writer.rename
        monkeypatch.setattr(writer, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            log.compact()
        monkeypatch.undo()
        # Closing does not fail because the thread that flushes meets what the interrupt has left.
        assert log._flusher is not None
        log._flusher.sealed()
        time.sleep(0.1)
    kstore.open(directory, "a", **OPTIONS).close()
    with kstore.open(directory) as log:
        assert not log.recovery.findings
        assert {key: value for key, value in before.items() if key >= 30} == {
            offset: record for offset, record in records(log).items() if offset >= 30
        }
        for offset in before:
            assert log.get(offset) == next(record for record in log if record.offset >= offset)
