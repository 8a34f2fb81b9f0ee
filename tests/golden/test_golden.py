"""Every record and every answer that Kafka gives for the golden scenarios."""

from pathlib import Path

import pytest

import kstore
from tests.golden.answers import all_lines, answer
from tests.golden.scenarios import Scenario, scenarios

SCENARIOS = list(scenarios())
OPENED = [s for s in SCENARIOS if "error" not in s.lines("records.jsonl")[-1]]  # by Kafka
READ = [
    s for s in OPENED if not any("error" in line for line in s.lines("records.jsonl"))
]  # by Kafka, to the end


@pytest.mark.parametrize("scenario", OPENED, ids=str)
def test_records(scenario: Scenario, tmp_path: Path) -> None:
    log = kstore.open(scenario.unpack(tmp_path), **scenario.options())
    *expected, summary = scenario.lines("records.jsonl")
    for line in expected:
        if "error" in line:
            line["error"] = True
    assert all_lines(log) == expected
    assert log.log_start_offset == summary["log_start_offset"]
    assert log.log_end_offset == summary["log_end_offset"]
    assert log.last_stable_offset() == summary["last_stable_offset"]
    assert [list(entry) for entry in log.leader_epochs] == summary["leader_epochs"]
    assert [s.base_offset for s in log.segments] == [s["base_offset"] for s in summary["segments"]]
    for segment, theirs in zip(log.segments, summary["segments"], strict=True):
        assert segment.size == theirs["size"]
        assert len(segment.offset_index) == theirs["index_entries"]
        assert list(segment.max_timestamp_so_far) == theirs["max_timestamp_so_far"]
        assert [list(txn[:4]) for txn in segment.transaction_index] == theirs["aborted"]


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("scenario", OPENED, ids=str)
def test_lookups(scenario: Scenario, tmp_path: Path) -> None:
    log = kstore.open(scenario.unpack(tmp_path), **scenario.options())
    wrong = []
    for expected in scenario.lines("lookups.jsonl"):
        ours = answer(log, expected["query"])
        if "error" in expected and "error" in ours and expected["query"].startswith("timestamp"):
            continue
        if ours != expected:
            wrong.append((ours, expected))
    assert not wrong, f"{len(wrong)} wrong, the first: {wrong[0]}"


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("scenario", READ, ids=str)
def test_plain_iteration(scenario: Scenario, tmp_path: Path) -> None:
    """What an application reads: data from the log start on, without markers."""
    *lines, summary = scenario.lines("records.jsonl")
    log = kstore.open(scenario.unpack(tmp_path), **scenario.options())
    start = summary["log_start_offset"]
    expected = [
        line["offset"]
        for line in lines
        if line["offset"] is not None and line["offset"] >= start and "control_type" not in line
    ]
    assert [record.offset for record in log] == expected


def test_few_are_left_out() -> None:
    """What Kafka itself cannot open, or read to the end."""
    assert len(SCENARIOS) - len(READ) <= 2
    assert len(READ) >= 40


def test_what_kafka_cannot_recover_opens(tmp_path: Path) -> None:
    """Sound data on which Kafka's recovery fails: a marker whose value is too short for it."""
    [scenario] = [s for s in SCENARIOS if s.name == "kafka_cannot_recover"]
    log = kstore.open(scenario.unpack(tmp_path), **scenario.options())
    assert log.log_end_offset > 0
    assert len(list(log)) > 0
    assert log.recovery.truncated_bytes == 0
