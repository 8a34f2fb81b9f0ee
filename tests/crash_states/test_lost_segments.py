"""A power cut lost a segment in the middle, and kept later ones: opening reports a gap."""

import shutil
from pathlib import Path

import kstore
from kstore.testing import Recorder, crash_states

OPTIONS = {"internal_segment_bytes": 250, "segment_index_bytes": 800}  # two records each


def shown(directory: Path, mode: str) -> tuple[list[int], int]:
    """Which offsets are there, and how many gaps are reported."""
    with kstore.open(directory, mode) as log:
        gaps = [finding for finding in log.recovery.findings if finding.code == "segment_empty"]
        return [record.offset for record in log], len(gaps)


def test_a_power_cut_that_does_it(ram: Path) -> None:
    own = ram / "own"
    own.mkdir()
    with Recorder(own) as recorder:
        log = kstore.open(own / "t-0", "a", **OPTIONS)
        for _ in range(8):
            log.append(b"x" * 50)
        log.abandon()
    reported = 0
    for number, state in enumerate(crash_states(recorder.trace, models=["strict"], moments=20, randoms=20)):
        image = ram / f"image{number}"
        image.mkdir()
        state.image.write_to(image)
        logs = sorted(image.glob("t-0/*.log"))
        if any(log.stat().st_size == 0 for log in logs[:-1]):
            with kstore.open(image / "t-0") as log:
                found = {finding.kind for finding in log.recovery.findings}
                assert "gap" in found or log.recovery.truncated_bytes, state.text  # it ends before the gap
            reported += 1
    assert reported


def test_a_segment_that_compaction_emptied_is_no_gap(ram: Path) -> None:
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
    assert shown(ram / "t-0", "r")[1] == 0


def test_a_copy_of_a_compacted_log_has_no_gap(ram: Path) -> None:
    """The checkpoint with the compacted offset is in the log directory, and is not copied."""
    kstore.LogStore(ram / "store", mode="a", background=False).close()
    with kstore.open(
        ram / "store" / "t-0", "a", cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, **OPTIONS
    ) as log:
        for _ in range(5):
            log.append(b"x" * 50, b"a")
        log.roll()
        log.compact()
        assert log.segments[0].size == 0
    shutil.copytree(ram / "store" / "t-0", ram / "t-0")
    for mode in ("r", "a", "r"):
        assert shown(ram / "t-0", mode)[1] == 0
