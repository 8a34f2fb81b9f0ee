"""The dump of every file of every scenario, line for line what Kafka's own tool printed of it."""

import json
import re
from pathlib import Path

import pytest
from scenarios import Scenario, scenarios

from kstore.__main__ import main

SCENARIOS = list(scenarios())
# Their records are dumped with decoders that kstore does not have yet: what stands before them is compared.
INTERNAL = ("__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state")
DECODED = re.compile(r"(?m)(?P<record>^\| .*?headerKeys: \[[^]]*\])(?! endTxnMarker).*$")


def dumped(name: str, internal: bool, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    options = ["--deep-iteration"] if name.endswith((".log", ".checkpoint")) else []
    if options and not internal:
        options.append("--print-data-log")
    code = main(["dump", "--files", name, *options])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_dump(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    partition = scenario.unpack(tmp_path)
    monkeypatch.chdir(partition)
    internal = scenario.partition.startswith(INTERNAL)
    reports = json.loads(scenario.text("dump-stderr.json")) if scenario.has("dump-stderr.json") else {}
    dumps = scenario.dumps()
    assert dumps
    for name, expected in dumps.items():
        code, out, err = dumped(name, internal, capsys)
        if internal:
            out, expected = (DECODED.sub(r"\g<record>", text) for text in (out, expected))
        theirs = reports.get(name, "")
        if theirs.startswith(
            "Exception "
        ):  # Kafka's tool died of it: we say what is wrong in words of our own
            assert out.rstrip("\n") == expected.rstrip("\n"), name
            assert code == 1
            assert err.startswith("kstore: ")
        else:
            assert out == expected, name
            assert err.replace(f"{partition}/", "") == theirs, name
            assert code == 0


def test_every_scenario_is_there() -> None:
    assert len(SCENARIOS) >= 40
