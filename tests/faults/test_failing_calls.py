"""Every system call of a writer's life fails once, in every way: the log is right, or says that it cannot go on."""

import errno
from pathlib import Path

import pytest

import kstore
from kstore.engine.io.file import calls_made, fail_call
from tests.faults.story import OPTIONS, Story
from tests.helpers.calls import STEP

pytestmark = pytest.mark.usefixtures("sound_calls")


def count_calls(directory: Path) -> int:
    fail_call(0)
    story = Story(directory)
    story.tell()
    return calls_made()


def test_the_story_ends_well(ram: Path) -> None:
    story = Story(ram / "t-0")
    story.tell()
    log = kstore.open(ram / "t-0")
    assert log.recovery.clean
    assert not log.recovery.findings
    story.check(log)
    assert {r.value for r in log} == {v for o, v in story.acked.items() if o >= log.log_start_offset}


@pytest.mark.filterwarnings("ignore:.*not kept for the next opening")
@pytest.mark.parametrize(
    ("error", "how"),
    [(errno.EIO, "error"), (errno.ENOSPC, "error"), (errno.ENOSPC, "half"), (errno.EIO, "half")],
    ids=["EIO", "ENOSPC", "ENOSPC after half", "EIO after half"],
)
def test_any_call_fails(ram: Path, error: int, how: str) -> None:
    total = count_calls(ram / "whole-0")
    assert total > 100
    for nth in range(1, total + 1, STEP):
        story = Story(ram / f"t{nth}-0")
        fail_call(nth, error, how)
        try:
            story.tell()
        except OSError as e:
            assert e.errno == error
        except kstore.KstoreError:
            pass  # refused, because a call in the background had failed
        finally:
            fail_call(0)
        if story.log is not None:
            try:
                story.log.close()
            except (OSError, kstore.KstoreError):
                story.log.abandon()
        if not list((ram / f"t{nth}-0").glob("*.log")):
            assert not story.acked
            continue
        story.check(kstore.open(ram / f"t{nth}-0"))
        with kstore.open(ram / f"t{nth}-0", "a", **OPTIONS) as log:
            story.check(log)
            end = log.append(b"00000" + b"." * 40)
            assert log.get(end).offset == end


def test_interrupted_calls_go_on(ram: Path) -> None:
    total = count_calls(ram / "whole-0")
    for nth in range(1, total + 1, STEP):
        story = Story(ram / f"t{nth}-0")
        fail_call(nth, errno.EINTR)
        try:
            story.tell()
        finally:
            fail_call(0)
        story.check(kstore.open(ram / f"t{nth}-0"))


def test_a_full_disk_is_nothing_to_reopen_for(ram: Path) -> None:
    """Whatever call of an append finds the disk full, the log is unchanged, and goes on once there is room."""
    with kstore.open(ram / "t-0", "a", internal_segment_bytes=1000, index_interval_bytes=100) as log:
        expected = [(log.append(b"%04d" % i) and b"%04d" % i) or b"%04d" % i for i in range(3)]
        for how in ("error", "half"):
            for nth in range(1, 40):
                before = [r.value for r in log]
                fail_call(nth, errno.ENOSPC, how, own=True)  # a sync that fails in the background is for good
                try:
                    log.append(b"%04d" % len(expected))
                except OSError as e:
                    assert e.errno == errno.ENOSPC
                    assert [r.value for r in log] == before
                else:
                    expected.append(b"%04d" % len(expected))
                finally:
                    fail_call(0)
                assert log.append(b"%04d" % len(expected)) == len(expected)
                expected.append(b"%04d" % len(expected))
        assert [r.value for r in log] == expected
    assert [r.value for r in kstore.open(ram / "t-0")] == expected


def test_after_a_failed_sync_nothing_is_written(ram: Path) -> None:
    log = kstore.open(ram / "t-0", "a")
    log.append(b"one")
    for nth in range(1, 20):
        fail_call(nth, errno.EIO)
        try:
            log.flush()
        except OSError:
            break
        finally:
            fail_call(0)
    with pytest.raises(kstore.LogFailedError, match="opened again"):
        log.append(b"two")
    with pytest.raises(kstore.LogFailedError):
        log.flush()
    assert [r.value for r in log] == [b"one"]
    log.close()
    with kstore.open(ram / "t-0", "a") as again:
        assert not again.recovery.clean
        assert again.append(b"two") == 1


def _deletions(directory: Path) -> tuple[kstore.LogWriter, int]:
    log = kstore.open(directory, "a", **{**OPTIONS, "retention_bytes": 4000, "file_delete_delay_ms": 0})
    log.extend([b"%05d" % i + b"." * 40 for i in range(400)], batch_bytes=300)
    log.flush()
    return log, sum(d.delete for d in log.retain(dry_run=True))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT], ids=errno.errorcode.get)
def test_what_retention_deleted_stays_deleted(ram: Path, error: int) -> None:
    """Whatever call of a retention fails: what it took from the log does not come back, and the next one goes on. Of a
    full disk it takes no notice, for it must make room."""
    log, count = _deletions(ram / "whole-0")
    assert count > 8
    fail_call(0)
    log.retain()
    total = calls_made()
    for nth in range(1, total + 1, STEP):
        log, _ = _deletions(ram / f"t{nth}-0")
        log._flusher.stop()
        fail_call(nth, error, own=True)
        try:
            log.retain()
        except OSError as e:
            assert e.errno == error
        finally:
            fail_call(0)
        start = log.log_start_offset
        try:
            log.retain()
            again = sum(d.delete for d in log.retain())
            assert again == 0
            start = log.log_start_offset
            log.append(b"goes on")
            log.close()
        except kstore.LogFailedError:
            log.close()
        with kstore.open(ram / f"t{nth}-0", "a", **OPTIONS) as log:
            assert log.log_start_offset >= start, nth
            assert [r.offset for r in log] == list(range(log.log_start_offset, log.log_end_offset))


def test_retention_on_a_disk_that_stays_full(ram: Path) -> None:
    """No call that needs room succeeds, and yet the segments go."""
    log, count = _deletions(ram / "t-0")
    assert log._flusher is not None
    log._flusher.stop()
    seen = 0
    for nth in range(1, 200):
        fail_call(nth, errno.ENOSPC, own=True)
        try:
            seen += sum(d.delete for d in log.retain())
        except OSError as e:
            assert e.errno == errno.ENOSPC
        finally:
            fail_call(0)
        if seen >= count:
            break
    assert seen == count
    assert not list((ram / "t-0").glob("*.deleted"))
    log.close()
