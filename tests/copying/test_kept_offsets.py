"""kstore append --keep-offsets."""

import io
import json
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main
from tests.copying.test_copies import rows
from tests.golden.scenarios import scenarios


def append(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: str, *words: object) -> int:
    file = tmp_path / "lines"
    file.write_text(lines)
    with file.open("rb") as source:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(source))
        return main(["append", "--format", "jsonl", "--keep-offsets", *map(str, words)])


def line(offset: int | None, value: str = "v", **batch: object) -> str:
    return json.dumps({"offset": offset, "value": value, "timestamp": 5, "batch": batch}) + "\n"


@pytest.mark.parametrize("name", ["compact_2_cleaned", "leader_epochs", "codec_lz4"])
def test_there_and_back(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `records` prints is the log again, with its gaps and its leader epochs."""
    source = next(each for each in scenarios() if each.name == name).shared()
    assert main(["records", str(source), "--format", "jsonl", "--base64"]) == 0
    lines = capsys.readouterr().out
    for size in (16384, 1):
        copy = tmp_path / f"copy-{size}"
        assert append(monkeypatch, tmp_path, lines, "--base64", "--batch-bytes", size, copy) == 0
        assert rows(copy) == rows(source)
        with kstore.open(source) as log, kstore.open(copy) as copied:
            assert [(epoch, at) for epoch, at in copied.leader_epochs if epoch > 0] == [
                (epoch, at) for epoch, at in log.leader_epochs if epoch > 0
            ]


def test_gaps_and_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "t-0"
    far = 3 * 2**31
    assert append(monkeypatch, tmp_path, line(3) + line(7) + line(far), log) == 0
    assert capsys.readouterr().out == f"3 records appended, up to offset {far}\n"
    cases = {
        line(far + 1) + line(far + 1): f"line 2: offset {far + 1} must be at least {far + 2}",
        line(far): f"line 1: offset {far} must be at least {far + 2}",
        line(None): "line 1: no offset, which --keep-offsets needs",
        line(far + 9, leader_epoch=5)
        + line(far + 10, leader_epoch=4): "line 2: leader epoch 4 must be at least 5",
        '{"offset":"7","value":"v"}': "line 1: offset '7' is not a number from 0 on",
    }
    for lines, expected in cases.items():
        assert append(monkeypatch, tmp_path, lines, log) == 2
        assert expected in capsys.readouterr().err
    assert [row[0] for row in rows(log)] == [3, 7, far, far + 1, far + 9]
    with pytest.raises(SystemExit):
        main(["append", str(log), "--keep-offsets", "--batch-bytes", "x"])
    assert main(["append", str(log), "--keep-offsets"]) == 2
    assert "--keep-offsets needs --format jsonl" in capsys.readouterr().err
