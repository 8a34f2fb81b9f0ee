"""What a check says of directories that Kafka wrote: sound ones are whole, and each damage is found."""

import shutil
from pathlib import Path

import pytest

import kstore
from tests.golden.scenarios import Scenario, scenarios

# The codes that a check must find in a scenario. All others are whole.
DAMAGED = {
    "clean_files_lost": {"no_offset_index", "no_time_index", "index_without_log", "epochs_differ"},
    "clean_garbage_tail": {"torn_tail"},
    "crash_bad_crc": {"corrupt_batch"},
    "crash_below_recovery_point": {"corrupt_batch"},
    "crash_garbage_tail": {"corrupt_batch"},
    "crash_indexes_damaged": {"no_offset_index", "no_time_index", "index_without_log", "index_damaged"},
    "crash_middle_segment": {"corrupt_batch"},
    "crash_snapshots_damaged": {"snapshot_damaged"},
    "crash_torn_tail": {"torn_tail"},
    "crash_transactions": {"broken_transaction_index", "transaction_index_differs"},
    "overflow_segment": {"offsets_far_apart", "no_offset_index", "epochs_damaged"},
    "swap_1": {"compaction_unfinished"},
    "swap_2": {"compaction_unfinished"},
    "swap_3": {"compaction_replaces", "compaction_all_but_finished"},
    "swap_4": {"removal_under_way", "compaction_all_but_finished"},
}
SCENARIOS = scenarios()


@pytest.fixture(params=SCENARIOS, ids=str)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return request.param


def test_golden(scenario: Scenario, tmp_path: Path) -> None:
    report = kstore.check(scenario.unpack(tmp_path))
    codes = {finding.code for finding in report.findings}
    problems = {finding.code for finding in report.problems()}
    wanted = DAMAGED.get(scenario.name, set())
    assert wanted <= codes, report
    if not wanted or scenario.name.startswith("swap"):
        # an open transaction in files of an earlier year is hanging
        assert problems <= {"hanging_transaction"}, report


@pytest.mark.parametrize("name", ["broker", "broker_killed", "broker_running"])
def test_log_directories_of_brokers(name: str, tmp_path: Path) -> None:
    scenario = next(each for each in SCENARIOS if each.name.startswith(f"{name}/"))
    report = kstore.check(scenario.unpack(tmp_path).parent)
    assert report.partitions > 10
    hanging = [finding for finding in report.problems() if finding.code == "hanging_transaction"]
    assert report.problems() == hanging
    if hanging:
        assert name == "broker_killed"
        assert "'pay-3', its state Ongoing, it began at 20" in hanging[0].meaning


def test_a_lost_partition_of_a_broker(tmp_path: Path) -> None:
    scenario = next(each for each in SCENARIOS if each.name.startswith("broker/"))
    data = scenario.unpack(tmp_path).parent
    shutil.rmtree(data / "events-1")
    report = kstore.check(data)
    assert all(each.remedy for each in report.findings)
    problems = [(each.severity, each.code, Path(each.file).name) for each in report.problems()]
    assert problems[0] == ("lost", "partition_missing", "events-1")
    assert {code for _, code, _ in problems[1:]} == {"checkpoint_of_none"}
    meta = data / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))  # of which the metadata knows nothing
    assert "partition_missing" not in {each.code for each in kstore.check(data).findings}
    shutil.rmtree(data / "__cluster_metadata-0")
    assert {each.code for each in kstore.check(data).problems()} == {"checkpoint_of_none"}
