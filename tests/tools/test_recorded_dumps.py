"""The dump as Kafka's own tool (4.3.1) gave it, under many options and of files made for it.

recorded/cases.py has the cases, recorded/record.py says how they were recorded. Where Kafka's tool died with an
exception, kstore prints as much on stdout, then a line of its own on stderr, and ends with 1. It also ends with 1, where
Kafka's tool ends with 0, after an unknown or damaged file; a wrong checksum has a line of its own on stderr.
"""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kstore.__main__ import main
from tests.tools.recorded.cases import Case, cases

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
RECORDED = Path(__file__).parent / "recorded" / "dumps.jsonl.gz"
BAD = (
    "Ignoring unknown file",
    "Snapshot ",
    "Mismatches in",
    "Found timestamp mismatch",
    "Found out of order",
    "The following indexed offsets are not found",
)


def recorded() -> list[tuple[Case, dict[str, Any]]]:
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        return list(zip(cases(), map(json.loads, lines), strict=True))


def test_as_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    endings: Counter[str] = Counter()
    for number, (case, kafka) in enumerate(recorded()):
        assert case.args == kafka["args"]
        directory = tmp_path / str(number) if case.files else GOLDEN
        for name, data in case.files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(data)
        monkeypatch.chdir(directory)
        code = main(["dump", *case.args])
        out, err = capsys.readouterr()
        where = f"case {number}: {case.args}"
        assert out == kafka["out"], where
        lines = err.replace(str(directory), "{cwd}").splitlines()
        damaged = False
        if kafka["died"] is not None:
            assert lines.pop().startswith("kstore: "), where
        while lines and lines[-1].endswith(f"wrong checksum: {out.count('isvalid: false')}"):
            assert lines.pop().startswith("kstore: "), where
            damaged = True
        bad = damaged or any(line.startswith(BAD) for line in lines)
        assert code == (kafka["code"] or int(bad)), where
        assert lines == kafka["err"].splitlines(), where
        endings["died" if kafka["died"] else "bad" if bad else "done"] += 1
    assert min(endings["died"], endings["bad"], endings["done"]) > 10
