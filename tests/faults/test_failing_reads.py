"""A call that fails while a log is read, or opened, says nothing of what is in the files."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.testing import failing
from tests.helpers.effort import some

READERS: dict[str, Callable[[kstore.PartitionLog, Any], Any]] = {
    "records": lambda log, on_error: log.records(on_error=on_error),
    "batches": lambda log, on_error: (r for b in log.batches(on_error=on_error) for r in b),
    "follow": lambda log, on_error: log.follow(0, timeout=0, on_error=on_error),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_cannot_be_opened_now(tmp_path: Path, name: str) -> None:
    """It is no damage that is skipped; a reader that is called again continues there."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for i in range(30):
            log.append(b"%d" % i)
            if i % 10 == 9:
                log.roll()
    failures = 0
    cases = [
        (nth, error, on_error)
        for nth in range(1, 40)
        for error in (errno.EMFILE, errno.EIO)
        for on_error in ("raise", "skip")
    ]
    for nth, error, on_error in some(cases, 60, name):
        reader = READERS[name](kstore.open(tmp_path / "t-0"), on_error)
        found: list[int] = []
        failed = 0
        with failing(nth, error):
            while True:
                try:
                    found.append(next(reader).offset)
                except StopIteration:
                    break
                except OSError as e:
                    assert e.errno == error
                    failed += 1
        failures += failed
        # a generator ends with the error
        assert found == list(range(30)) or (failed and name == "batches" and found == list(range(len(found))))
    assert failures


@pytest.mark.parametrize("mode", ["a", "r"])
def test_records_that_were_deleted_stay_deleted(tmp_path: Path, mode: Any) -> None:
    """If the log start cannot be read, the log is not opened; it would begin at 0 from then on."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"%d" % i for i in range(20)], batch_bytes=100)
        log.delete_records(12)
    failed = 0
    cases = [(nth, error) for nth in range(1, 40) for error in (errno.EMFILE, errno.EIO, errno.EACCES)]
    for nth, error in some(cases, 60, mode):
        try:
            with failing(nth, error):
                opened = kstore.open(tmp_path / "t-0", mode)
        except OSError:
            failed += 1
        else:
            assert (opened.log_start_offset, opened.log_end_offset) == (12, 20)
            opened.close()
        assert kstore.open(tmp_path / "t-0").log_start_offset == 12
    assert failed
