"""The dump of every file of every scenario, line for line what Kafka's own tool printed of it."""

import gzip
import json
from pathlib import Path

import pytest

from kstore.__main__ import main
from tests.golden.scenarios import ROOT, Scenario, scenarios

SCENARIOS = list(scenarios())
DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}


def dumped(name: str, decoder: str | None, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    options = ["--deep-iteration"] if name.endswith((".log", ".checkpoint")) else []
    if options:
        options.append(decoder or "--print-data-log")
    code = main(["dump", "--files", name, *options])
    out, err = capsys.readouterr()
    return code, out, err


# Scenarios with a file that is damaged: kstore's dump of it ends with 1.
NOT_CLOSED = ("broker_running/", "broker_killed/")  # indexes have room behind their entries
DAMAGED = {"crash_bad_crc", "crash_middle_segment", "crash_snapshots_damaged", "crash_transactions"}


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
        if theirs.startswith(
            "Exception "
        ):  # Kafka's tool died of it: we say what is wrong in words of our own
            assert out == expected, name
            assert code == 1
            assert err.startswith("kstore: ")
        else:
            assert out == expected, name
            told = [line for line in err.splitlines(keepends=True) if not line.startswith("kstore: ")]
            assert "".join(told).replace(f"{partition}/", "") == theirs, name
            assert code == 0 or (
                scenario.name in DAMAGED or scenario.name.startswith(NOT_CLOSED)
            )  # Kafka's tool ends with 0 for all of them


def test_dump_of_the_bootstrap_snapshot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = ROOT / "broker"
    monkeypatch.chdir(directory / "data")
    packed = directory / "expected" / "dump-bootstrap.checkpoint.txt.gz"
    expected = (
        gzip.decompress(packed.read_bytes()) if packed.exists() else packed.with_suffix("").read_bytes()
    )
    _, out, _ = dumped("bootstrap.checkpoint", "--cluster-metadata-decoder", capsys)
    assert out == expected.decode()


def test_every_scenario_is_there() -> None:
    assert len(SCENARIOS) >= 40
