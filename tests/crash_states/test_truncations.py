"""Truncations, and what is left of a log at whatever call the power fails or the process dies."""

import shutil
from pathlib import Path

import pytest

import kstore
from kstore.testing import Recorder, crash_states

SEVERAL = {"internal_segment_bytes": 150, "segment_index_bytes": 800}  # two records each


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


@pytest.mark.parametrize(
    ("partition", "options"), [("t-0", {}), ("log", SEVERAL)], ids=["one segment", "several"]
)
@pytest.mark.parametrize(("base", "start"), [(0, 0), (50, 50), (50, 53)])
@pytest.mark.parametrize(("offset", "start_given"), [(0, None), (55, 52), (58, None), (100, None), (100, 54)])
def test_fully(
    ram: Path,
    partition: str,
    options: dict[str, int],
    base: int,
    start: int,
    offset: int,
    start_given: int | None,
) -> None:
    """The old one or the new one; or a part of the old one, from the new offset on if the log has it, without a hole: no offset
    below that is given out again."""
    own, image = ram / "own", ram / "image"
    old = begun(own, partition, options, base, start)
    log = kstore.open(own / partition, "a", **options)
    with Recorder(own) as recorder:
        log.truncate_fully_and_start_at(offset, start_given)
        recorder.mark("done")
        log.abandon()
    first = max(start, offset)
    allowed = [(start, old[-1] + 1, old)]
    allowed += [
        (first, end, [each for each in old if first <= each < end]) for end in range(first, old[-1] + 2)
    ]
    new = (offset, offset, [])
    seen = set()
    for state in crash_states(recorder.trace, most=1, moments=40):
        image.mkdir()
        state.image.write_to(image)
        for mode in ("r", "a"):
            with kstore.open(image / partition, mode) as again:  # and no loss is warned of
                shown = (again.log_start_offset, again.log_end_offset, [record.offset for record in again])
            assert shown == new or (state.value is None and shown in allowed), (mode, shown, state.text)
            seen.add(shown == new)
        shutil.rmtree(image)
    assert seen == {False, True} or new in allowed


@pytest.mark.parametrize("offset", [1, 2, 5])
def test_over_segments(ram: Path, offset: int) -> None:
    """The records from the first one on, to the new end or behind it, without a hole."""
    own, image = ram / "own", ram / "image"
    old = begun(own, "log", SEVERAL, 0, 0)
    log = kstore.open(own / "log", "a", **SEVERAL)
    with Recorder(own) as recorder:
        log.truncate_to(offset)
        recorder.mark("done")
        log.abandon()
    seen = set()
    for state in crash_states(recorder.trace, most=1, moments=40):
        image.mkdir()
        state.image.write_to(image)
        for mode in ("r", "a"):
            with kstore.open(image / "log", mode) as again:  # and no loss is warned of
                shown = [record.offset for record in again]
                assert shown == old[: again.log_end_offset], (mode, shown, state.text)
                assert shown == old[:offset] or (state.value is None and len(shown) > offset), state.text
            seen.add(len(shown))
        shutil.rmtree(image)
    assert {offset, len(old)} <= seen
