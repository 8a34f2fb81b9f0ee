"""Truncations, and what is left of a log at whatever call the power fails or the process dies."""

import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

import kstore
from kstore.testing import Recorder, State, Trace, crash_states
from tests.helpers.effort import some

SEVERAL = {"internal_segment_bytes": 150, "segment_index_bytes": 800}  # two records each
FULLY = list(
    product(
        [("t-0", {}), ("log", SEVERAL)],  # one segment in a log directory, several in a log of its own
        [(0, 0), (50, 50), (50, 53)],  # base of the first segment, log start
        [(0, None), (55, 52), (58, None), (100, None), (100, 54)],  # new base, new log start
    )
)


def begun(own: Path, partition: str, options: dict[str, int], base: int, start: int) -> list[int]:
    """A log of eight records from `base` on, of which those below `start` are deleted."""
    own.mkdir()
    if partition == "t-0":
        (own / "meta.properties").write_text("version=1\nbroker.id=1\n")
    with kstore.open(own / partition, "a", **options) as log:
        if base:
            log.truncate_fully_and_start_at(base)
        for _ in range(8):
            log.append(b"a" * 10)
        log.delete_records(start)
        return [record.offset for record in log]


def states_in(trace: Trace, image: Path) -> Iterator[State]:
    """Some states, each while it is in `image`."""
    for state in crash_states(trace, most=1, moments=40):
        image.mkdir()
        state.image.write_to(image)
        yield state
        shutil.rmtree(image)


@pytest.mark.parametrize("case", some(FULLY, 2, "fully"), ids=str)
def test_fully(
    ram: Path, case: tuple[tuple[str, dict[str, int]], tuple[int, int], tuple[int, int | None]]
) -> None:
    """The old log or the new one, or the old one from the new offset on: no offset is given out twice."""
    (partition, options), (base, start), (offset, new_start) = case
    old = begun(ram / "own", partition, options, base, start)
    log = kstore.open(ram / "own" / partition, "a", **options)
    with Recorder(ram / "own") as recorder:
        log.truncate_fully_and_start_at(offset, new_start)
        recorder.mark("done")
        log.abandon()
    first = max(start, offset)
    allowed = [(start, old[-1] + 1, old)]
    allowed += [
        (first, end, [each for each in old if first <= each < end]) for end in range(first, old[-1] + 2)
    ]
    new = (offset, offset, [])
    seen = set()
    for state in states_in(recorder.trace, ram / "image"):
        for mode in ("r", "a"):
            with kstore.open(ram / "image" / partition, mode) as again:  # and no loss is warned of
                shown = (again.log_start_offset, again.log_end_offset, [record.offset for record in again])
            assert shown == new or (state.value is None and shown in allowed), (mode, shown, state.text)
            seen.add(shown == new)
    assert seen == {False, True} or new in allowed


# ---- inside a batch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "then"),
    some([(0, "flush"), (1, "roll"), (0, "close"), (1, "flush"), (0, "roll"), (1, "close")], 3, "inside"),
)
def test_a_batch_keeps_its_first_records(ram: Path, before: int, then: str) -> None:
    with kstore.open(ram / "own" / "t-0", "a", segment_index_bytes=800) as log:
        for _ in range(before):
            log.append(b"a")
        log.extend([b"b"] * 10)
    log = kstore.open(ram / "own" / "t-0", "a")
    with Recorder(ram / "own") as recorder:
        log.truncate_to(3)
        recorder.mark("truncated")
        getattr(log, then)()
        recorder.mark("done")
        log.abandon()
    tried = set()
    for state in crash_states(recorder.trace, models=["strict"]):
        if state.value is None:
            continue  # within the truncation
        tried.add(state.value)
        (ram / "image").mkdir()
        state.image.write_to(ram / "image")
        for opening in range(3):
            again = kstore.open(ram / "image" / "t-0", "a")  # a loss would be a warning
            assert [record.offset for record in again][:3] == [0, 1, 2]
            if opening == 1:
                assert again.append(b"c") == 3
            again.abandon()
        shutil.rmtree(ram / "image")
    assert tried == {"truncated", "done"}
