"""kstore keys, and what stat and get make of the files."""

import json
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.__main__ import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for number in range(3):
            log.extend([b"%d" % number] * 10, keys=[b"key-%d" % (number + i) for i in range(10)])
            log.roll()
    return tmp_path / "t-0"


def stat(path: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[Any, Any]]:
    capsys.readouterr()
    assert main(["stat", str(path), "--json"]) == 0
    return [(each["keys"], each["key_file"]) for each in json.loads(capsys.readouterr().out)["segments"]]


def test_made_told_and_used(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stat(path, capsys) == [(None, "none")] * 4
    assert main(["keys", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["10", "10", "keys", "576", "bytes,", "made"]
    assert main(["keys", str(path), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["base_offset"], row["keys"], row["made"]) for row in rows] == [
        (i, 10, False) for i in (0, 10, 20)
    ]
    assert stat(path, capsys) == [(10, "fits")] * 3 + [(None, "none")]
    assert main(["get", str(path), "--key", "key-1"]) == 0
    assert capsys.readouterr().out.startswith("10\t")
    assert main(["stat", str(path)]) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[2:6]] == ["10", "10", "10", "-"]
    assert main(["get", str(path), "--key", "nobody"]) == 1


def test_files_that_do_not_fit(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", str(path)]) == 0
    first, second, third = sorted(path.glob("*.keys"))
    first.with_suffix(".log").chmod(0o600)
    data = bytearray(second.read_bytes())
    data[100] ^= 1
    second.write_bytes(data)
    third.unlink()
    third.mkdir()
    assert stat(path, capsys) == [(None, "stale"), (None, "damaged"), (None, "damaged"), (None, "none")]
    for number in range(12):
        assert main(["get", str(path), "--key", f"key-{number}"]) == 0
    third.rmdir()
    assert main(["keys", str(path)]) == 0
    assert stat(path, capsys) == [(10, "fits")] * 3 + [(None, "none")]


def test_none_can_be_made(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = min(path.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    assert main(["keys", str(path)]) == 1
    assert "no file: " in capsys.readouterr().out.splitlines()[0]
    with kstore.open(tmp_path / "u-0", "a"):
        pass
    assert main(["keys", str(tmp_path / "u-0")]) == 0
    assert capsys.readouterr().out == "nothing to do: there is no sealed segment\n"
    assert main(["keys", str(tmp_path / "none-0")]) == 1


def test_in_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["create", str(tmp_path / "data"), "t", "--config", "key.files=true"]) == 0
    assert main(["describe", str(tmp_path / "data"), "t"]) == 0
    assert "key.files" in capsys.readouterr().out
    with kstore.LogStore(tmp_path / "data", mode="a", background=False) as store:
        assert store.describe("t").config.key_files
