"""Kafka reads a copy as it reads the source."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.golden.scenarios import Scenario, scenarios
from tests.helpers.effort import some
from tests.kafka.jvm import Kafka, KafkaError

# KRaft's own log; and logs of which recovery cuts sound batches off: a copy stops there, or has more than Kafka
OTHERS = ("crash_bad_crc", "crash_middle_segment")
CASES = [each for each in scenarios() if "__cluster_metadata" not in each.name and each.name not in OTHERS]


def told(kafka: Kafka, directory: Path, **given: Any) -> Any:
    log = kafka.open(directory, **given)
    try:
        return log.records(), log.summary()
    finally:
        log.ask("close")


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("scenario", some(CASES, len(CASES)), ids=str)
def test_golden_directories(scenario: Scenario, kafka: Kafka, tmp_path: Path) -> None:
    source = scenario.unpack(tmp_path / "source")
    opened = scenario.options()
    del opened["index_interval_bytes"]
    on_error: Any = (
        "skip" if scenario.name in ("clean_garbage_tail", "crash_below_recovery_point") else "raise"
    )
    kstore.copy(source, tmp_path / scenario.partition, on_error=on_error)
    copy = tmp_path / scenario.partition
    with kstore.open(copy) as log:
        known = {
            "clean": True,
            "recovery_point": log.log_end_offset,
            "log_start_offset": log.log_start_offset,
        }
    try:
        records, summary = told(kafka, source, **opened)
    except KafkaError:  # Kafka cannot read the source
        shutil.rmtree(source)
        told(kafka, copy, **known)
        return
    copied, its_summary = told(kafka, copy, **known)
    assert kafka.recovered() == []
    assert copied == records
    if on_error == "raise":
        for each in (summary, its_summary):
            for name in ("segments", "producers", "recovery_point"):
                each.pop(name)
        assert its_summary == summary
