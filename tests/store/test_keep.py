"""kstore keep, and the commands that wait for it."""

import signal
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
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


def test_it_serves_metrics_on_loopback(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    with kstore.LogStore(tmp_path / "d", mode="a", background=False) as store:
        store.create_topic("t", 2)
        store.extend("t", [b"v"] * 10, keys=[b"k"] * 10)
    process = keep(tmp_path / "d", "--metrics", "0")
    assert process.stderr is not None
    url = process.stderr.readline().split()[-1]
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        families = {f.name: f for f in parser.text_string_to_metric_families(answer.read().decode())}
    ends = [sample.value for sample in families["kstore_partition_log_end_offset"].samples]
    assert sorted(ends) == [0, 10]
    assert all(family.documentation for family in families.values())
    with pytest.raises(urllib.error.HTTPError) as found:
        urllib.request.urlopen(url.replace("/metrics", "/etc"), timeout=60)
    assert found.value.code == 404
    found.value.close()
    head = urllib.request.Request(url, method="HEAD")
    with urllib.request.urlopen(head, timeout=60) as answer:
        assert (answer.status, int(answer.headers["Content-Length"]) > 0, answer.read()) == (200, True, b"")
    for _ in range(5):  # clients that are gone before the answer
        with socket.create_connection(("127.0.0.1", urllib.parse.urlsplit(url).port or 0)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    urllib.request.urlopen(url, timeout=60).close()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        taken_port = taken.getsockname()[1]
        process = keep(tmp_path / "d", "--metrics", str(taken_port))
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"in use: '127.0.0.1:{taken_port}'" in said
    assert kstore.LogStore(tmp_path / "d").closed_cleanly
