"""Terminals, closed streams, full disks and closed pipes: no silence, and no control characters."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main
from tests.helpers.processes import environment
from tests.tools.conftest import Terminal

TXN = Path(__file__).parents[1] / "golden" / "data" / "transactions" / "txn-0"
KSTORE = [sys.executable, "-P", "-m", "kstore"]
SHELL = '"$0" -P -m kstore '
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")


def test_nothing_commands_a_terminal(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kstore.open(odd, "a") as log:
        log.append(b"c\rd\xc2\x9be")
    for words in (
        ["records", odd],
        ["records", odd, "--format", "csv", "--raw"],
        ["records", odd, "--format", "jsonl"],
        ["follow", odd, "--from-start", "--timeout", "0"],
        ["dump", "--print-data-log", odd / f"{0:020d}.log"],
        ["stat", f"{odd}\x1b[2J"],
    ):
        out = Terminal()
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, out)
        main([str(word) for word in words])
        monkeypatch.undo()
        assert "[2J" in out.getvalue()
        assert CONTROLS.search(out.getvalue()) is None


@pytest.mark.nightly
def test_in_a_terminal_of_the_system(odd: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([*KSTORE, "records", str(odd)], stdout=theirs, stderr=theirs, env=environment()):
        os.close(theirs)
        out = b""
        while True:
            try:
                out += os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert b"[2J" in out
    assert CONTROLS.search(out.decode()) is None


def shell(command: str, path: Path, data: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    words = ["sh", "-c", command, sys.executable, str(path)]
    return subprocess.run(words, input=data, env=environment(), capture_output=True, check=False)


@pytest.mark.parametrize(
    ("words", "closed"),
    [
        pytest.param('records "$1"', ">&-", marks=pytest.mark.nightly),
        ('records "$1" --format csv', ">&- 2>&- <&-"),
        ('stat "$1"', "2>&- <&-"),
    ],
)
def test_closed_streams(odd: Path, words: str, closed: str) -> None:
    """What could not be printed is an error: a reader of the output would take it for all there is."""
    done = shell(f"{SHELL}{words} {closed}", odd)
    is_lost = ">&-" in closed.split()
    said = b"kstore: [Errno 9] Bad file descriptor\n" if is_lost and "2>&-" not in closed else b""
    assert (done.returncode, done.stderr) == (int(is_lost), said)


def test_append_needs_standard_input(odd: Path) -> None:
    done = shell(f'{SHELL}append "$1" <&-', odd)
    assert done.returncode in (0, 1)  # 0: the shell gave it a stream that is at its end
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("words", ['records "$1"', pytest.param("records --help", marks=pytest.mark.nightly)])
def test_a_full_disk_behind_stdout_is_an_error(odd: Path, words: str) -> None:
    done = shell(f"{SHELL}{words} >/dev/full", odd)
    assert (done.returncode, done.stderr) == (1, b"kstore: [Errno 28] No space left on device\n")


def test_append_says_that_all_is_appended_though_stdout_takes_nothing(partition: Path) -> None:
    """Who reads only of a full disk appends all once more."""
    done = shell(f'{SHELL}append "$1" >/dev/full', partition, b"a\nb\n")
    assert done.returncode == 1
    assert done.stderr.startswith(b"kstore: 2 records appended: offsets 3 to 4. Only this report failed")
    assert [record.value for record in kstore.open(partition)][3:] == [b"a", b"b"]


def test_a_closed_pipe_ends_it_in_silence() -> None:
    files = sorted(map(str, TXN.glob("*.log"))) * 40
    command = [*KSTORE, "dump", "--deep-iteration", "--print-data-log", *files]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize("form", ["text", "csv"])
@pytest.mark.parametrize(
    "locale",
    [{"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "latin-1"}],
    ids=["POSIX", "Latin-1"],
)
def test_files_and_pipes_get_utf_8(tmp_path: Path, form: str, locale: dict[str, str]) -> None:
    value = "wert ü \u65e5\U0001f600"
    path = tmp_path / "ü" / "t-0"
    with kstore.open(path, "a") as log:
        log.append(value.encode())
    words = [*KSTORE, "records", str(path), "--format", form]
    done = subprocess.run(words, capture_output=True, check=True, env=environment() | locale)
    assert value.encode() in done.stdout
    words = [*KSTORE, "records", str(tmp_path / "nö-0")]
    done = subprocess.run(words, capture_output=True, check=False, env=environment() | locale)
    assert "nö-0".encode() in done.stderr or rb"n\udcc3\udcb6-0" in done.stderr
