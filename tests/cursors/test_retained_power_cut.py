"""What retention deletes for good because a group has read it, the group has read for good: no power cut brings back an older
position."""

from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.testing import Recorder, crash_states

OPTIONS: dict[str, Any] = {
    "internal_segment_bytes": 100,
    "segment_index_bytes": 200,
    "retention_ms": 1,
    "file_delete_delay_ms": 0,
}
T = 1_000_000_000_000


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("of", ["a log", "a store"])
def test_no_older_position_comes_back(ram: Path, of: str) -> None:
    data = ram / "data"
    store = kstore.LogStore(data, mode="a", background=False, durability="group", **OPTIONS)
    store.create_topic("t")
    log = store.log("t")
    assert isinstance(log, kstore.LogWriter)
    for _ in range(20):
        log.append(b"v" * 20, timestamp=T)
    jobs = kstore.open(data / "t-0").cursor("g")
    with Recorder(data) as recorder:
        jobs.commit(5)
        jobs.commit(15, durable=False)
        if of == "a log":
            log.retain(keep_for=["g"])
        else:
            store.retain(keep_for=["g"])
        recorder.mark("retained")
        log.append(b"v")
    assert log.log_start_offset == 16
    jobs.close()
    store.close()
    count = 0
    for state in crash_states(recorder.trace, moments=30, seed=1):
        if state.value == "retained":
            place = ram / str(count)
            place.mkdir()
            state.image.write_to(place)
            cut = kstore.open(place / "t-0")
            assert cut.log_start_offset == 16
            assert [position.offset for position in cut.cursors().values()] == [16], state.text
            count += 1
    assert count
