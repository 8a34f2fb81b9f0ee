"""examples/file_server.py does what it says."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import environment

SERVER = Path(__file__).parents[2] / "examples" / "file_server.py"


def test_it_serves(tmp_path: Path) -> None:
    if not SERVER.exists():
        pytest.skip("no examples beside these tests")
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=50_000) as log:
        log.extend([b"." * 100] * 2000, batch_bytes=2000)
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(tmp_path / "t-0"), "0"],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as sock:
            file = sock.makefile("rb")
            for offset, size in ((0, 150_000), (1234, 20_000), (2000, 1)):
                sock.sendall(b"%d %d\n" % (offset, size))
                span = log_span(tmp_path / "t-0", offset, size)
                assert file.readline() == b"%d\n" % len(span)
                assert file.read(len(span)) == span
            file.close()
    finally:
        process.terminate()
        process.communicate(timeout=120)


def log_span(path: Path, offset: int, size: int) -> bytes:
    return bytes(kstore.open(path).span(offset, size))
