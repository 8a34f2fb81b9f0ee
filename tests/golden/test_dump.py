"""The dump of every file of every scenario, line for line what Kafka's own tool printed of it."""

import json
from pathlib import Path

import pytest
from scenarios import Scenario, scenarios

from kstore.__main__ import main

SCENARIOS = list(scenarios())
DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__share_group_state": "--share-group-state-decoder",
}


def dumped(name: str, decoder: str | None, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    options = ["--deep-iteration", "--print-data-log"] if name.endswith((".log", ".checkpoint")) else []
    if decoder and options:
        options = ["--deep-iteration", decoder]
    code = main(["dump", "--files", name, *options])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_dump(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    partition = scenario.unpack(tmp_path)
    monkeypatch.chdir(partition)
    decoder = DECODERS.get(scenario.partition.rpartition("-")[0])
    reports = json.loads(scenario.text("dump-stderr.json")) if scenario.has("dump-stderr.json") else {}
    dumps = scenario.dumps()
    assert dumps
    for name, expected in dumps.items():
        code, out, err = dumped(name, decoder, capsys)
        theirs = reports.get(name, "")
        assert out == expected, name
        if theirs.startswith("Exception "):  # Kafka's tool died of it: we say what is wrong in words of our own
            assert code == 1
            assert err.startswith("kstore: ")
        else:
            assert err.replace(f"{partition}/", "") == theirs, name
            assert code == 0


def test_every_scenario_is_there() -> None:
    assert len(SCENARIOS) >= 40
