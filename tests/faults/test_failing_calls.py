"""One system call of a writer's life fails: the log is right, or says that it cannot go on."""

import errno
import itertools
from pathlib import Path

import pytest

import kstore
from kstore.testing import failing
from tests.helpers.effort import times
from tests.helpers.forge import T0

pytestmark = pytest.mark.timeout(times(300))


def test_a_full_disk_is_nothing_to_reopen_for(ram: Path) -> None:
    """Whatever call of an append finds a full disk: the log is unchanged, and appends once there is room."""
    with kstore.open(ram / "t-0", "a", internal_segment_bytes=1000, index_interval_bytes=100) as log:
        expected = [(log.append(b"%04d" % i) and b"%04d" % i) or b"%04d" % i for i in range(3)]
        for how in ("error", "half"):
            for nth in range(1, 40):
                before = [r.value for r in log]
                try:
                    with failing(
                        nth, errno.ENOSPC, how, this_thread=True
                    ):  # a sync that fails in the background is for good
                        log.append(b"%04d" % len(expected))
                except OSError as e:
                    assert e.errno == errno.ENOSPC
                    assert [r.value for r in log] == before
                else:
                    expected.append(b"%04d" % len(expected))
                assert log.append(b"%04d" % len(expected)) == len(expected)
                expected.append(b"%04d" % len(expected))
        assert [r.value for r in log] == expected
    assert [r.value for r in kstore.open(ram / "t-0")] == expected


@pytest.mark.parametrize("shared", [False, True])
def test_batches_that_found_room_stay(ram: Path, shared: bool) -> None:
    """A follower in another process may have read them before the write of the others failed."""
    values = [b"%d" % i + b"." * 50 for i in range(40)]
    with kstore.open(ram / "t-0", "a", shared=shared) as log:
        log.append(values[0])
        with pytest.raises(OSError, match="space"), failing(1, errno.ENOSPC, "half"):
            log.extend(values[1:], batch_bytes=500)
        count = log.log_end_offset
        assert 1 < count < len(values)
        assert [r.value for r in log] == [r.value for r in kstore.open(ram / "t-0")] == values[:count]
    with kstore.open(ram / "u-0", "a", shared=shared) as log:
        batches = b"".join(
            kstore.encode_batch([(T0, None, value, None)], producer_id=1, producer_epoch=0, base_sequence=i)
            for i, value in enumerate(values[:4])
        )
        log.append(values[-1])
        with pytest.raises(OSError, match="space"), failing(1, errno.ENOSPC, "half"):
            log.append_batches(batches)
        assert log.log_end_offset == 3
        log.append_batches(batches)  # as a producer does, which sends again what was not acknowledged
        assert [r.value for r in log] == [values[-1], *values[:4]]


def test_after_a_failed_sync_nothing_is_written(ram: Path) -> None:
    log = kstore.open(ram / "t-0", "a")
    log.append(b"one")
    for nth in range(1, 20):
        try:
            with failing(nth, errno.EIO):
                log.flush()
        except OSError:
            break
    with pytest.raises(kstore.LogFailedError, match="opened again"):
        log.append(b"two")
    with pytest.raises(kstore.LogFailedError):
        log.flush()
    assert [r.value for r in log] == [b"one"]
    log.close()
    with kstore.open(ram / "t-0", "a") as again:
        assert not again.recovery.clean
        assert again.append(b"two") == 1


def test_a_deletion_that_was_refused_is_none_after_closing(tmp_path: Path) -> None:
    """Also if the checkpoint was replaced before the call failed."""
    for nth in itertools.count(1):
        path = tmp_path / str(nth) / "t-0"
        log = kstore.open(path, "a")
        log.extend([b"v"] * 10)
        log.flush()
        try:
            with failing(nth, errno.EIO, this_thread=True):
                log.delete_records(5)
        except OSError:
            log.close()
            assert kstore.open(path).log_start_offset == 0, nth
        else:
            log.close()
            break
    assert nth > 4
