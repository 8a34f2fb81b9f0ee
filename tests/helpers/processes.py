"""Other processes that a test starts."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import kstore


def environment(**more: str) -> dict[str, str]:
    """This process's, in which Python finds the kstore that is tested, and then the package of the tests."""
    paths = (Path(kstore.__file__).parents[1], Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **more}


def run_python(
    program: str, *arguments: object, options: Sequence[str] = (), timeout: float = 120, **more: str
) -> "subprocess.CompletedProcess[str]":
    """Runs a program, which may hang, in a process of its own, with `more` environment; output is text."""
    return _run([*options, "-c", program, *arguments], timeout, **more)


def run_command(*words: object, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command line in a process of its own, likewise, with these variables in its environment."""
    return _run(["-m", "kstore", *words], 120, **variables)


def _run(words: Sequence[object], timeout: float, **more: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", *map(str, words)]
    return subprocess.run(
        command, env=environment(**more), capture_output=True, text=True, timeout=timeout, check=False
    )


class Program:
    """A program that runs in a process of its own beside a test, which talks with it line by line.

    It exists when its first line, `first`, has come. The end of the block closes its stdin, and waits until
    it ends.
    """

    def __init__(self, program: str, *arguments: object) -> None:
        command = [sys.executable, "-P", "-c", program, *map(str, arguments)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment(), text=True)
        self.pid = self._process.pid
        self.first = self.read()

    def read(self) -> str:
        """The next line that it writes."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def tell(self, line: str = "") -> str:
        """Has it read a line, and returns its answer, a line too."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.read()

    def end(self) -> None:
        self._process.communicate(timeout=120)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
