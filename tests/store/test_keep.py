"""kstore keep, and the commands that wait for it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main
from tests.helpers.processes import environment


def keep(directory: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "kstore", "keep", str(directory), "--every", "0.05", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def segments_told(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline().split("  ")[2].split()[0])


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_it_deletes_old_segments_and_ends_cleanly(tmp_path: Path, end: signal.Signals) -> None:
    with kstore.LogStore(tmp_path / "d", mode="a", background=False) as store:
        store.create_topic("t", retention_ms=1000)
        log = store.log("t")
        for _ in range(3):
            log.append(b"old", timestamp=1)
            log.roll()
    (tmp_path / "properties").write_text("log.retention.check.interval.ms=10\n")
    process = keep(tmp_path / "d", "--server-properties", str(tmp_path / "properties"))
    while segments_told(process) > 1:
        pass
    process.send_signal(end)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    store = kstore.LogStore(tmp_path / "d")
    assert store.closed_cleanly
    assert store.log("t").log_start_offset == 3


def test_a_command_waits_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["create", str(tmp_path / "d"), "t"]) == 0
    process = keep(tmp_path / "d")
    assert segments_told(process) == 0
    assert main(["create", str(tmp_path / "d"), "u", "--wait", "0.01"]) == 1
    assert f"locked by process {process.pid}" in capsys.readouterr().err
    process.send_signal(signal.SIGTERM)
    assert main(["create", str(tmp_path / "d"), "u", "--wait", "60"]) == 0
    process.communicate(timeout=60)
    assert list(kstore.LogStore(tmp_path / "d").topics) == ["t", "u"]


def test_it_names_the_tasks_that_fail(tmp_path: Path) -> None:
    with kstore.LogStore(tmp_path / "d", mode="a", background=False) as store:
        store.create_topic("t", retention_ms=1000)
        store.append("t", b"x")
        store.create_topic("u")
    (tmp_path / "d" / "t-0" / f"{0:020d}.log").unlink()
    (tmp_path / "d" / "t-0" / f"{0:020d}.log").symlink_to("/nowhere\x1b.log")
    (tmp_path / "properties").write_text("log.retention.check.interval.ms=10\n")
    process = keep(tmp_path / "d", "--server-properties", str(tmp_path / "properties"))
    assert process.stdout is not None
    while "failed" not in process.stdout.readline():
        pass
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    lines = [line for line in said.splitlines() if line.startswith("kstore: retention of t-0 failed: ")]
    assert len(lines) == 1
    assert r"nowhere\x1b.log" in lines[0]
