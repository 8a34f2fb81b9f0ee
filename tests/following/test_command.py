"""kstore follow."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main
from tests.helpers.processes import environment


def test_it_prints_what_is_appended(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"old", timestamp=1)
        process = subprocess.Popen(
            [sys.executable, "-m", "kstore", "follow", str(tmp_path / "t-0"), "--from-start"],
            stdout=subprocess.PIPE,
            text=True,
            # a shell's background job has SIGINT ignored, and hands that on
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            env=environment(),
        )
        assert process.stdout is not None
        assert process.stdout.readline().endswith("\told\n")
        for text in ("one", "two"):
            log.append(text.encode(), timestamp=2)
            assert process.stdout.readline().endswith(f"\t{text}\n")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        assert process.returncode == 130


def test_formats_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"%d" % n for n in range(10)], timestamps=5)
    path = str(tmp_path / "t-0")
    assert main(["follow", path, "--start", "7", "--timeout", "0.05", "--format", "jsonl"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["offset"] for line in lines] == [7, 8, 9]
    assert main(["follow", path, "--from-start", "--count", "2", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "offset,timestamp,key,value,headers",
        "0,5,,0,",
        "1,5,,1,",
    ]
    assert main(["follow", path, "--timeout", "0"]) == 0
    assert capsys.readouterr().out == ""
    with kstore.open(path) as log:
        (batch,) = log.batches()
    with Path(batch.file).open("r+b") as file:
        file.seek(batch.size - 3)
        file.write(b"\xff")
    assert main(["follow", path, "--from-start", "--timeout", "0.05"]) == 1
    assert 'on_error="skip"' in capsys.readouterr().err
    assert main(["follow", path, "--from-start", "--timeout", "0.05", "--on-error", "skip"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"left out {batch.size} bytes: {batch.file}" in shown.err
    assert main(["follow", path, "--start", "11"]) == 1
    assert "outside the log" in capsys.readouterr().err
