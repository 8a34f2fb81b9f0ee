"""Other processes that a test starts."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import kstore


def environment(**more: str) -> dict[str, str]:
    """This process's, in which Python finds the kstore that is tested, and then the package of the tests."""
    paths = (Path(kstore.__file__).parents[1], Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **more}


def run_python(
    program: str, *arguments: object, options: Sequence[str] = (), timeout: float = 120, **more: str
) -> "subprocess.CompletedProcess[str]":
    """Runs a program in a process of its own, which may hang, with more of an environment; what it writes is
    text."""
    return subprocess.run(
        [sys.executable, "-P", *options, "-c", program, *map(str, arguments)],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
