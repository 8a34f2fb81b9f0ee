"""Another program shortens an index file that a writer has mapped: touching it raises SIGBUS."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.effort import times
from tests.helpers.processes import environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no handler")


def run(directory: Path, *names: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, Path(__file__).with_name("shortened.py"), *names],
        cwd=directory,
        env=environment(
            PYTHONFAULTHANDLER="",
            # AddressSanitizer would take the signal that the process dies of, and end it in its own way.
            ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":handle_sigbus=0",
        ),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(times(300))
@pytest.mark.parametrize("name", ["trials", "reader_first", "sealed", "threads", "own_handler", "fork"])
def test_a_writer_survives_it(tmp_path: Path, name: str) -> None:
    """What each of them tries is in shortened.py."""
    done = run(tmp_path, name)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


@pytest.mark.parametrize("at", [0, 1, 2])
def test_faulthandler_does_not_end_a_writer_and_still_reports_others(tmp_path: Path, at: int) -> None:
    """Enabled before the first writer, between it and the next, or after both."""
    steps = ["open_log", "open_log"]
    steps.insert(at, "enable_faulthandler")
    done = run(tmp_path, *steps, "shorten", "enable_faulthandler", "touch_another")
    assert done.returncode == -signal.SIGBUS, done.stderr
    assert "Fatal Python error: Bus error" in done.stderr
    assert done.stdout == "touching\n"


@pytest.mark.parametrize(
    "steps",
    [
        ["open_log", "touch_another"],
        ["enable_faulthandler", "open_log", "kill"],
        ["open_log", "enable_faulthandler", "open_log", "touch_another"],
        ["open_log", "open_log", "kill"],
    ],
    ids=" ".join,
)
def test_a_signal_for_anything_else_ends_the_process_as_before(tmp_path: Path, steps: list[str]) -> None:
    done = run(tmp_path, *steps)
    handled = "enable_faulthandler" in steps
    # faulthandler itself may fall when it examines the frames of other threads, which run on.
    assert done.returncode in ({-signal.SIGBUS, -signal.SIGSEGV} if handled else {-signal.SIGBUS}), (
        done.stderr
    )
    assert "still here" not in done.stdout
    assert ("Bus error" in done.stderr) == handled
