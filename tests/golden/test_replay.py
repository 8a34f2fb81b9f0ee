"""What Kafka was told to do, done by kstore: the same results and refusals, and byte for byte the same files."""

from pathlib import Path

import pytest

import kstore
from tests.golden.replay import ERRORS, Replay, files_of
from tests.golden.scenarios import Scenario, scenarios

# cleaning is for a later issue; messages of magic 0 and 1 are what kstore never writes
NOT_OURS = ("compact_", "swap_", "magic", "overflow_segment")


def replayable(scenario: Scenario) -> bool:
    return scenario.has("ops.jsonl") and not scenario.name.startswith(NOT_OURS)


SCENARIOS = [s for s in scenarios() if replayable(s)]


@pytest.fixture(params=SCENARIOS, ids=str)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return request.param


def test_the_same_operations_leave_the_same_files(scenario: Scenario, tmp_path: Path) -> None:
    operations = scenario.lines("ops.jsonl")
    kafka = scenario.unpack(tmp_path / "kafka")
    damaged = scenario.name.startswith(("crash_", "clean_"))  # afterwards, so their files tell nothing here
    stored = (
        {}
        if damaged
        else {
            batch.base_offset: batch
            for batch in kstore.open(kafka, recover=False, clean=True).from_file_start().batches()
        }
    )
    ours = tmp_path / "ours" / scenario.partition
    ours.parent.mkdir()
    (ours.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")  # makes it a log directory
    replay = Replay(ours, stored)
    for number, operation in enumerate(operations):
        if "error" in operation:
            with pytest.raises(ERRORS[operation["error"]]):
                replay.run(operation)
            continue
        result = replay.run(operation)
        expected = operation.get("result")
        if expected is not None:
            assert result is not None
            if not replay.exact or damaged:  # packed by another library: other sizes
                expected = {k: v for k, v in expected.items() if not k.startswith("segment")}
            assert {key: result.get(key) for key in expected} == expected, (
                f"operation {number}: {operation['op']}"
            )
    if damaged or not replay.exact:
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
