"""A log open for writing that nobody closed says so when it goes, and how much goes with it."""

import gc
import os
import warnings
from pathlib import Path

import pytest

import kstore


@pytest.mark.parametrize("count", [0, 3])
def test_a_log_that_is_collected_open(tmp_path: Path, count: int) -> None:
    log = kstore.open(tmp_path / "t-0", "a")
    log.append(b"kept")
    gc.disable()
    out = log.appender(linger_ms=60_000)
    for _ in range(count):
        out.append(b"gathered")
    lost = f"and {count} records that its appenders had gathered are lost" if count else "must recover$"
    del log, out
    with pytest.warns(ResourceWarning, match=f"{tmp_path / 't-0'} was open .*never closed.*{lost}"):
        gc.collect()
    gc.enable()
    with kstore.open(tmp_path / "t-0", "a") as again:  # it was given up all the same
        assert [record.value for record in again] == [b"kept"]


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_a_log_that_was_ended_says_nothing(tmp_path: Path, end: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        log = kstore.open(tmp_path / "t-0", "a")
        log.append(b"v")
        getattr(log, end)()
        del log
        gc.collect()
    assert not [w for w in caught if "never closed" in str(w.message)]


def test_a_forked_child_says_nothing_of_its_parents_log(tmp_path: Path) -> None:
    log = kstore.open(tmp_path / "t-0", "a")
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del log
            gc.collect()
        os.write(tell, b"%d" % len(caught))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(told, 10) == b"0"
    os.close(told)
    os.close(tell)
    log.close()
