"""Of a segment in the middle nothing has reached the disk when the power fails, and of the next one all: that is told."""

import os
import warnings
from pathlib import Path

import pytest

import kstore
from kstore.testing import Recorder, crash_states

OPTIONS = {"internal_segment_bytes": 250, "segment_index_bytes": 800}  # two records each


def missing(directory: Path, mode: str) -> tuple[list[int], int, int]:
    """Which offsets are there, how many gaps are told, and how many warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with kstore.open(directory, mode) as log:
            return [record.offset for record in log], len(log.recovery.missing), len(caught)


@pytest.mark.parametrize("lost", [[2], [4], [2, 4, 6, 8]])
@pytest.mark.parametrize("size", [1, 50])
def test_it_is_told(ram: Path, lost: list[int], size: int) -> None:
    log = kstore.open(ram / "t-0", "a", internal_segment_bytes=4 * size + 200, segment_index_bytes=800)
    for _ in range(6):
        log.extend([b"x" * size] * 2)
        log.roll()
    for _ in range(2):  # a large batch behind excuses nothing
        log.extend([b""] * 10)
    log.abandon()
    for base in lost:
        for kind in ("log", "index", "timeindex"):
            os.truncate(ram / "t-0" / f"{base:020}.{kind}", 0)
    kept = [offset for offset in range(32) if offset // 2 * 2 not in lost]
    for mode in ("r", "a", "r"):
        assert missing(ram / "t-0", mode) == (kept, len(lost), 1), mode


def test_a_power_cut_that_does_it(ram: Path) -> None:
    own = ram / "own"
    own.mkdir()
    with Recorder(own) as recorder:
        log = kstore.open(own / "t-0", "a", **OPTIONS)
        for _ in range(8):
            log.append(b"x" * 50)
        log.abandon()
    told = 0
    for number, state in enumerate(crash_states(recorder.trace, models=["strict"], moments=20, randoms=20)):
        image = ram / f"image{number}"
        image.mkdir()
        state.image.write_to(image)
        logs = sorted(image.glob("t-0/*.log"))
        if any(log.stat().st_size == 0 for log in logs[:-1]):
            assert missing(image / "t-0", "r")[1:] > (0, 0), state.text
            told += 1
    assert told


def test_what_compaction_emptied_is_not(ram: Path) -> None:
    with kstore.open(
        ram / "t-0", "a", cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, **OPTIONS
    ) as log:
        for _ in range(3):
            for key in (b"a", b"b"):
                log.append(b"x" * 50, key)
            log.roll()
        log.compact()
    for kind in ("log", "index", "timeindex"):  # as Kafka's cleaner leaves one without records
        (ram / "t-0" / f"{0:020}.{kind}").write_bytes(b"")
    assert missing(ram / "t-0", "r")[1:] == (0, 0)
