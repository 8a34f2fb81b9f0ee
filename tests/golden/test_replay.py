"""The operations that Kafka was given, done by kstore: the same results, refusals and bytes of files."""

from pathlib import Path

import pytest

import kstore
from tests.golden.batches import shape
from tests.golden.replay import ERRORS, Replay, files_of
from tests.golden.scenarios import Scenario, scenarios

# what begins with messages of magic 0 and 1, which kstore never writes; made by hand; what was truncated within
# a batch, of which kstore keeps the first records
NOT_OURS = ("compact_magic1_", "magic", "overflow_segment", "truncated")
# where the batches of a story lie as they were before its cleanings
BEFORE_CLEANING = {"compact_": ("compact_1_dirty", "compact_3_grown"), "swap_": ("swap_1",)}


def replayable(scenario: Scenario) -> bool:
    return scenario.has("ops.jsonl") and not scenario.name.startswith(NOT_OURS)


SCENARIOS = [s for s in scenarios() if replayable(s)]


@pytest.fixture(params=SCENARIOS, ids=str)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return request.param


def batches_of(scenario: Scenario, into: Path) -> dict[int, kstore.RecordBatch]:
    """By base offset, the batches that a scenario was written with."""
    names = next((names for start, names in BEFORE_CLEANING.items() if scenario.name.startswith(start)), None)
    if names is None:
        return _batches(scenario.unpack(into))
    stored: dict[int, kstore.RecordBatch] = {}
    for each in scenarios():
        if each.name in names:  # the later one, behind what was cleaned
            end = max((batch.last_offset for batch in stored.values()), default=-1)
            found = _batches(each.unpack(into / each.name))
            stored |= {offset: batch for offset, batch in found.items() if offset > end}
    return stored


def _batches(partition: Path) -> dict[int, kstore.RecordBatch]:
    log = kstore.open(partition, recover=False, clean=True)
    return {batch.base_offset: batch for batch in log.from_file_start().batches()}


def test_the_same_operations_leave_the_same_files(scenario: Scenario, tmp_path: Path) -> None:
    operations = scenario.lines("ops.jsonl")
    kafka = scenario.unpack(tmp_path / "kafka")
    damaged = scenario.name.startswith(("crash_", "clean_"))  # afterwards, so their files tell nothing here
    stored = {} if damaged else batches_of(scenario, tmp_path / "stored")
    ours = tmp_path / "ours" / scenario.partition
    ours.parent.mkdir()
    (ours.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")  # makes it a log directory
    replay = Replay(ours, stored)
    for number, operation in enumerate(operations):
        if operation["op"] == "clean" and scenario.name in ("swap_1", "swap_2"):
            check_same_batches(ours, kafka)  # then the crash took back what the cleaning did
        if "error" in operation:
            with pytest.raises(ERRORS[operation["error"]]):
                replay.run(operation)
            continue
        result = replay.run(operation)
        expected = operation.get("result")
        if expected is not None:
            if operation["op"] == "clean":  # Kafka tells more of it
                told = result.keys() - {"bytes_written"} if replay.packed else result.keys()
                expected = {k: v for k, v in expected.items() if k in told}
            if not replay.exact or damaged:  # packed by another library: other sizes
                expected = {k: v for k, v in expected.items() if not k.startswith("segment")}
            assert {key: result.get(key) for key in expected} == expected, (
                f"operation {number}: {operation['op']}"
            )
    if replay.cleaned and scenario.name not in ("swap_1", "swap_2"):
        check_same_batches(ours, kafka)
    if damaged or not replay.exact or (replay.cleaned and (replay.packed or scenario.name[:5] == "swap_")):
        return
    if operations[-1]["op"] == "close":
        assert files_of(ours) == files_of(kafka)
        reopened = scenario.open()
        log = kstore.open(
            ours,
            "a",
            config=kstore.LogConfig.from_topic(reopened["config"]),
            clock=lambda: reopened["now_ms"],
        )
        log.flush()
        log.close()
    summary = scenario.lines("records.jsonl")[-1]
    if operations[-1]["op"] == "close" and "files_after_close" in summary:
        assert files_of(ours) == summary["files_after_close"]


def check_same_batches(ours: Path, kafka: Path) -> None:
    """The same segments with the same batches; Kafka may have left its directory amid a cleaning."""
    mine, theirs = (kstore.open(path, clean=True) for path in (ours, kafka))
    assert [s.base_offset for s in mine.segments] == [s.base_offset for s in theirs.segments]
    for a, b in zip(mine.from_file_start().batches(), theirs.from_file_start().batches(), strict=True):
        assert shape(a) == shape(b)
        assert a == b or a.codec != "none"
