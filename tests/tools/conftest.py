"""The command line in this process: a command and its words, the exit code and what it wrote."""

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main

T = 1_700_000_000_000
Run = Callable[..., tuple[int, str, str]]
Feed = Callable[[str | bytes], None]


class Terminal(io.StringIO):
    """A stream that says that it is one."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command: its exit code, stdout and stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        try:
            code = main([str(word) for word in words])
        except SystemExit as e:  # wrong usage
            code = int(e.code or 0)
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """Sets the standard input of the next command."""
    with contextlib.ExitStack() as files:

        def put(data: str | bytes) -> None:
            file = files.enter_context(tempfile.TemporaryFile())
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            monkeypatch.setattr(sys, "stdin", files.enter_context(open(file.fileno(), closefd=False)))

        yield put


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Three records."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for i in range(3):
            log.append(b"value", timestamp=T + i)
    return tmp_path / "t-0"


ODD = [
    b"text",
    b"",
    None,
    "\u00fc".encode(),
    b"\xff\xfe",
    b"abcd",
    b'{"a": 1}',
    b"\x1b[2J",
    b"a\nb\tc",
    b"-5",
    b"=1",
]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Keys, values and headers that text does not show as they are."""
    with kstore.open(tmp_path / "odd-0", "a") as log:
        for i, data in enumerate(ODD):
            log.append(data, data, T + i, [("h", data), ("h", b"twice")])
    return tmp_path / "odd-0"
