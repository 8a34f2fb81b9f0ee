"""Positions after a power cut, which may keep a later commit and lose one before it: what was acknowledged is
there."""

import warnings
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.testing import Recorder, crash_states
from tests.helpers.effort import times
from tests.helpers.reading import cursor_at_end, read_to_end

FILE = "kstore-cursors-g.positions"
RETENTION: dict[str, Any] = {
    "internal_segment_bytes": 100,
    "segment_index_bytes": 200,
    "retention_ms": 1,
    "file_delete_delay_ms": 0,
}
LOST = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")


def filled(directory: Path) -> Path:
    with kstore.open(directory / "t-0", "a") as log:
        log.extend([b"v"] * 100)
    return directory / "t-0"


def commits(path: Path, upto: int, *, durable: bool, metadata: str = "") -> list[int]:
    """Of one cursor, which is not closed: how long the file was after each."""
    jobs = cursor_at_end(path)
    sizes = []
    for offset in range(upto):
        jobs.commit(offset + 1, durable=durable, metadata=metadata)
        sizes.append((path.parent / FILE).stat().st_size)
    return sizes


def committed(path: Path) -> int | None:
    found = kstore.open(path).cursors().get("g")
    return None if found is None else found.offset


def test_what_follows_a_hole_is_kept_aside(ram: Path) -> None:
    """Reading says so and changes nothing; the next member cuts it off."""
    path = filled(ram)
    file = ram / FILE
    ends = commits(path, 4, durable=False)
    whole = file.read_bytes()
    holed = whole[: ends[0]] + bytes(ends[1] - ends[0]) + whole[ends[1] :]
    file.write_bytes(holed)
    with pytest.warns(kstore.DataLossWarning, match=f"gap at byte {ends[0]}, and 2 commits behind it"):
        assert committed(path) == 1
    assert file.read_bytes() == holed
    kept = ram / f"{FILE}.{ends[0]}.cut"
    with pytest.warns(kstore.DataLossWarning, match="are kept in .*[.]cut"):
        jobs = kstore.open(path).cursor("g")
    assert jobs.position == 1
    assert kept.read_bytes() == holed[ends[0] :]
    assert file.read_bytes() == whole[: ends[0]]
    read_to_end(jobs).commit(2)
    jobs.close()
    assert committed(path) == 2
    assert list(kstore.open(path).cursors()) == ["g"]


@pytest.mark.parametrize("warned", ["error", "ignore"])
def test_a_warning_that_is_an_error_changes_nothing_more(ram: Path, warned: str) -> None:
    path = filled(ram)
    file = ram / FILE
    ends = commits(path, 3, durable=False)
    whole = file.read_bytes()
    file.write_bytes(whole[: ends[0]] + bytes(ends[1] - ends[0]) + whole[ends[1] :])
    with warnings.catch_warnings(action=warned):  # type: ignore[arg-type]
        if warned == "error":
            with pytest.raises(kstore.DataLossWarning):
                kstore.open(path).cursor("g")
        with kstore.open(path).cursor("g") as jobs:
            assert jobs.position == 1
            read_to_end(jobs).commit(3)
        assert committed(path) == 3


@pytest.mark.parametrize("again", [False, True])
def test_zeros_in_what_was_durable_are_damage(ram: Path, again: bool) -> None:
    """A later commit says that it was on the disk. So it is in a file that was written anew."""
    path = filled(ram)
    file = ram / FILE
    ends = commits(path, 100 if again else 20, durable=True, metadata="m" * 600)
    if again:
        start = next(n for n in range(1, len(ends)) if ends[n] < ends[n - 1])
        ends = [0, *ends[start:]]
    whole = file.read_bytes()
    assert len(whole) == ends[-1]
    for n in range(len(ends) - 2):
        file.write_bytes(whole[: ends[n]] + bytes(ends[n + 1] - ends[n]) + whole[ends[n + 1] :])
        for use in (committed, lambda path: kstore.open(path).cursor("g")):
            with pytest.raises(kstore.CorruptRecordError, match=f"byte {ends[n]}: batch"):
                use(path)
        assert len(file.read_bytes()) == len(whole)


def test_a_file_of_an_older_kstore(ram: Path) -> None:
    """Its commits say nothing of what was on the disk: their base sequence is 0."""
    path = filled(ram)
    file = ram / FILE
    ends = commits(path, 1, durable=True)
    batch = kstore.RecordBatch(file.read_bytes())
    assert batch.base_sequence == 1
    (record,) = batch.records()
    old = [
        kstore.encode_batch(
            [(batch.max_timestamp, record.key, record.value, None)],
            base_offset=offset,
            producer_id=batch.producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
        for offset in range(3)
    ]
    assert len(old[0]) == ends[0]
    file.write_bytes(b"".join(old))
    assert committed(path) == 1
    assert commits(path, 3, durable=True)[-1] > 3 * ends[0]
    assert committed(path) == 3


@LOST
@pytest.mark.parametrize("of", ["a log", "a store"])
def test_no_older_position_comes_back(ram: Path, of: str) -> None:
    """What retention deletes because a group has read it, the group has read for good."""
    data = ram / "data"
    store = kstore.LogStore(data, mode="a", background=False, durability="group", **RETENTION)
    store.create_topic("t")
    log = store.log("t")
    assert isinstance(log, kstore.LogWriter)
    for _ in range(20):
        log.append(b"v" * 20, timestamp=1_000_000_000_000)
    jobs = cursor_at_end(data / "t-0")
    with Recorder(data) as recorder:
        jobs.commit(6)
        jobs.commit(16, durable=False)
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
    for state in crash_states(recorder.trace, moments=times(10), seed=1):
        if state.value == "retained":
            place = ram / str(count)
            place.mkdir()
            state.image.write_to(place)
            cut = kstore.open(place / "t-0")
            assert cut.log_start_offset == 16
            assert [position.offset for position in cut.cursors().values()] == [16], state.text
            count += 1
    assert count
