"""Work in a forked child: a crash, a hang and an exception of the child are all reported as text."""

import faulthandler
import gc
import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import NamedTuple

LIMIT = 60.0  # seconds for one child


class Ended(NamedTuple):
    """How a child ended: `wrong` is "" if all was well, else the reason; `text` is all that it wrote."""

    wrong: str
    text: str


def say(text: str) -> None:
    """Writes a line that is there even if the process dies right after."""
    os.write(2, text.encode() + b"\n")


def run(task: Callable[[], object], limit: float = LIMIT) -> Ended:
    """Runs a task in a child."""
    with tempfile.TemporaryFile() as output:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _live(task, output.fileno(), limit)
        status = os.waitpid(pid, 0)[1]  # it ends: faulthandler sees to the limit, whatever holds the GIL
        output.seek(0)
        text = output.read().decode(errors="replace")
    wrong = ""
    if os.WIFSIGNALED(status):
        wrong = f"the process died by {signal.Signals(os.WTERMSIG(status)).name}"
    elif "Timeout (" in text:
        wrong = f"it hung for {limit:g} s: {_innermost(text)}"
    elif os.WEXITSTATUS(status):
        lines = [line for line in text.splitlines() if line.startswith("wrong: ")]
        wrong = lines[0][7:] if lines else f"exit code {os.WEXITSTATUS(status)}"
    return Ended(wrong, text)


def _live(task: Callable[[], object], output: int, limit: float) -> None:
    """Never returns: the process ends with 0 if the task returned and nothing went wrong beside it."""
    complaints: list[str] = []
    code = 1
    gc.freeze()  # what was inherited need not be searched for garbage
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        faulthandler.enable(2)
        faulthandler.dump_traceback_later(limit, exit=True, file=2)
        sys.unraisablehook = lambda e: complaints.append(
            f"exception ignored in {e.object!r}: {''.join(traceback.format_exception(e.exc_value))}"
        )
        threading.excepthook = lambda e: complaints.append(
            f"a thread ended with {''.join(traceback.format_exception(e.exc_value))}"
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
            warnings.filterwarnings("ignore", category=ResourceWarning)  # an interrupt leaves files open
            task()
        code = 0
    except BaseException as e:  # noqa: BLE001
        say(f"wrong: {type(e).__name__}: {e}")
        say("".join(traceback.format_exception(e)))
    complaints = [text for text in complaints if "Injected" not in text]
    for text in complaints:
        say(f"wrong: {text}")
    os._exit(code or bool(complaints))


def _innermost(text: str) -> str:
    """The innermost lines of the main thread in what faulthandler wrote."""
    _, _, current = text.partition("Current thread")
    last = current or text.rpartition("Thread 0x")[2]
    frames = [line.strip() for line in last.splitlines() if line.strip().startswith("File")]
    return " < ".join(frame.replace('File "', "").rpartition("/")[2].replace('"', "") for frame in frames[:3])
