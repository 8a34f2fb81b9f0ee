"""A truncation inside a batch leaves offsets that no record has. No power cut makes a loss of them."""

import shutil
import time
from pathlib import Path

import pytest

import kstore
from kstore.testing import Recorder, crash_states


@pytest.mark.parametrize("then", ["flush", "roll", "close"])
@pytest.mark.parametrize("before", [0, 1])
def test_no_loss_is_told(ram: Path, before: int, then: str) -> None:
    own, image = ram / "own", ram / "image"
    own.mkdir()
    with kstore.open(own / "t-0", "a", segment_index_bytes=800) as log:
        for _ in range(before):
            log.append(b"a")
        log.extend([b"b"] * 10)
    log = kstore.open(own / "t-0", "a")
    with Recorder(own) as recorder:
        log.truncate_to(3)
        recorder.mark("truncated")
        getattr(log, then)()
        recorder.mark("done")
        log.abandon()
    tried = set()
    for state in crash_states(recorder.trace, models=["strict"]):
        if state.value is None:
            continue  # the truncation was under way
        tried.add(state.value)
        image.mkdir()
        state.image.write_to(image)
        for opening in range(3):
            again = kstore.open(image / "t-0", "a")
            assert [record.offset for record in again][:before] == list(range(before))
            if opening == 1:
                assert again.append(b"c") in (before, 3)
            again.abandon()
        shutil.rmtree(image)
    assert tried == {"truncated", "done"}


@pytest.mark.parametrize("then", ["flush", "roll", "close"])
def test_another_log_reaches_that_end(tmp_path: Path, then: str) -> None:
    """What a truncation inside a batch has left to say of an end goes with all records."""
    log = kstore.open(tmp_path, "a")
    log.append(b"a")
    log.extend([b"a"] * 9)
    log.truncate_to(9)
    log.truncate_fully_and_start_at(0)
    for _ in range(9):
        log.append(b"b")
    getattr(log, then)()
    log.close()
    assert [record.offset for record in kstore.open(tmp_path)] == list(range(9))
    assert sorted(path.name for path in tmp_path.glob("*.log"))[1:] in ([], ["00000000000000000009.log"])


def test_later_records_are_found_by_time(tmp_path: Path) -> None:
    """The segment that says where the batch was has no records: the time of its file is no record's."""
    now = int(time.time() * 1000)
    with kstore.open(tmp_path, "a") as log:
        log.append(b"old", timestamp=now - 3_600_000)
        log.extend([b"a", b"b", b"c"], timestamps=[now - 3_600_000] * 3)
        log.truncate_to(2)
        log.flush()
        log.append(b"new", timestamp=now + 1000)
        for view in (log, kstore.open(tmp_path)):
            found = view.find(timestamp=now - 1_800_000)
            assert found is not None
            assert found.offset == 2
            assert view.find(timestamp=now + 2000) is None
