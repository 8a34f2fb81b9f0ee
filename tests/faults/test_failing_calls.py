"""Every system call of a writer's life fails once, in every way: the log is right, or says that it cannot go on."""

import errno
from pathlib import Path

import pytest
from story import OPTIONS, Story

import kstore
from kstore.engine.file import calls_made, fail_call


@pytest.fixture(autouse=True)
def _nothing_fails_afterwards() -> object:
    yield
    fail_call(0)


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


@pytest.mark.parametrize(
    ("error", "how"),
    [(errno.EIO, "error"), (errno.ENOSPC, "error"), (errno.ENOSPC, "half"), (errno.EIO, "half")],
    ids=["EIO", "ENOSPC", "ENOSPC after half", "EIO after half"],
)
def test_any_call_fails(ram: Path, error: int, how: str) -> None:
    total = count_calls(ram / "whole-0")
    assert total > 100
    for nth in range(1, total + 1):
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
        if not (ram / f"t{nth}-0").exists():
            continue
        story.check(kstore.open(ram / f"t{nth}-0"))
        with kstore.open(ram / f"t{nth}-0", "a", **OPTIONS) as log:
            story.check(log)
            end = log.append(b"00000" + b"." * 40)
            assert log.get(end).offset == end


def test_interrupted_calls_go_on(ram: Path) -> None:
    total = count_calls(ram / "whole-0")
    for nth in range(1, total + 1):
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
