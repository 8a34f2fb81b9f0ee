"""The dump of every file of every scenario, line for line what Kafka's own tool printed of it."""

import gzip
import json
import re

import pytest

from kstore.__main__ import main
from tests.golden.scenarios import ROOT, Scenario, scenarios

DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}
# Scenarios with a file that is damaged: kstore's dump of it ends with 1, Kafka's tool with 0.
DAMAGED = {"crash_bad_crc", "crash_middle_segment", "crash_snapshots_damaged", "crash_transactions"}
NOT_CLOSED = ("broker_running/", "broker_killed/")  # indexes have room behind their entries


def dumped(names: list[str], decoder: str | None, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["dump", "--files", ",".join(names), "--deep-iteration", decoder or "--print-data-log"])
    return code, *capsys.readouterr()


def findings(text: str) -> list[str]:
    """The findings on stderr: a line with the name of a file, and the lines that belong to it."""
    return sorted(part for part in re.split(r"(?m)^(?!  |Indexed offset: )", text) if part)


@pytest.mark.parametrize("scenario", scenarios(), ids=str)
def test_dump(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    partition = scenario.shared()
    monkeypatch.chdir(partition)
    decoder = DECODERS.get(scenario.partition.rpartition("-")[0])
    reports = json.loads(scenario.text("dump-stderr.json")) if scenario.has("dump-stderr.json") else {}
    dumps = scenario.dumps()
    broken = [name for name in dumps if reports.get(name, "").startswith("Exception ")]
    for name in broken:  # Kafka's tool died of it: kstore has words of its own
        code, out, err = dumped([name], decoder, capsys)
        assert (code, out) == (1, dumps[name]), name
        assert err.startswith("kstore: ")
    sound = [name for name in dumps if name not in broken]
    code, out, err = dumped(sound, decoder, capsys)
    assert out == "".join(dumps[name] for name in sound)
    said = "".join(line for line in err.splitlines(keepends=True) if not line.startswith("kstore: "))
    wanted = "".join(reports.get(name, "") for name in sound)
    assert findings(said.replace(f"{partition}/", "")) == findings(wanted)
    assert code == 0 or scenario.name in DAMAGED or scenario.name.startswith(NOT_CLOSED)


def test_dump_of_the_bootstrap_snapshot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT / "broker" / "data")
    _, out, _ = dumped(["bootstrap.checkpoint"], "--cluster-metadata-decoder", capsys)
    expected = ROOT / "broker" / "expected" / "dump-bootstrap.checkpoint.txt.gz"
    assert out == gzip.decompress(expected.read_bytes()).decode()
