"""Work in forked children: a crash, a hang and an exception of a child are all told as text."""

import faulthandler
import gc
import os
import pickle
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple, TypeVar

T = TypeVar("T")
LIMIT = float(os.environ.get("KSTORE_INTERRUPTS_LIMIT", "60"))  # seconds for one child
JOBS = len(os.sched_getaffinity(0))


class Ended(NamedTuple):
    """How a child ended: `wrong` is "" if all was well, otherwise what was wrong; `text` is all that it wrote."""

    wrong: str
    text: str


class _Child(NamedTuple):
    key: object
    pid: int
    pidfd: int
    output: "IO[bytes]"
    until: float


def say(text: str) -> None:
    """Writes a line that is there even if the process dies right after."""
    os.write(2, text.encode() + b"\n")


def run_all(tasks: Iterable[tuple[T, Callable[[], None]]], limit: float = LIMIT) -> Iterator[tuple[T, Ended]]:
    """Runs every task in a child of its own, some at once; gives its key and how it ended, in the order of ending."""
    running: list[_Child] = []
    coming = iter(tasks)
    more = True
    try:
        while more or running:
            while more and len(running) < JOBS:
                task = next(coming, None)
                if task is None:
                    more = False
                else:
                    running.append(_start(*task, limit))
            for child in _ended(running) if running else ():
                running.remove(child)
                yield child.key, _end(child, limit)  # type: ignore[misc]
    finally:
        for child in running:
            os.kill(child.pid, signal.SIGKILL)
            _end(child, limit)


def run(task: Callable[[], None], limit: float = LIMIT) -> Ended:
    """Runs one task in a child."""
    return next(run_all([(None, task)], limit))[1]


_other: tuple[int, "IO[bytes]", "IO[bytes]"] | None = None  # of which process, and what it is told and tells


def in_another_process(work: Callable[[], None]) -> None:
    """Does it in another process: AssertionError where it fails. `work` can be pickled.

    It is a child of fork that was begun at the first call, or at `begin_another_process`: to fork each time would take
    longer than most work.
    """
    begin_another_process()
    assert _other is not None
    _, to, back = _other
    pickle.dump(work, to)
    to.flush()
    wrong = pickle.load(back)
    assert not wrong, f"another process could not go on: {wrong}"


def begin_another_process() -> None:
    """Forks it, if it is not there. It has what this process has open, so nothing should be."""
    global _other
    if _other is not None and _other[0] == os.getpid():
        return
    (take, give), (take_back, give_back) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(give)
        os.close(take_back)
        _serve(os.fdopen(take, "rb"), os.fdopen(give_back, "wb"))
    os.close(take)
    os.close(give_back)
    _other = os.getpid(), os.fdopen(give, "wb"), os.fdopen(take_back, "rb")


def _serve(calls: "IO[bytes]", answers: "IO[bytes]") -> None:
    """Never returns: the process ends with the one that it works for."""
    while True:
        wrong = ""
        try:
            work = pickle.load(calls)
        except EOFError:
            os._exit(0)
        try:
            work()
        except BaseException as e:  # noqa: BLE001
            wrong = f"{type(e).__name__}: {e}"
        pickle.dump(wrong, answers)
        answers.flush()


def _start(key: object, task: Callable[[], None], limit: float) -> _Child:
    output = tempfile.TemporaryFile()  # noqa: SIM115 - the parent closes it when the child has ended
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _live(task, output.fileno(), limit)
    return _Child(key, pid, os.pidfd_open(pid), output, time.monotonic() + limit + 5)


def _live(task: Callable[[], None], output: int, limit: float) -> None:
    """Never returns: the process ends with 0 if the task did its work and nothing went wrong beside it."""
    complaints: list[str] = []
    code = 1
    gc.freeze()  # what was inherited need not be looked through
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
            warnings.filterwarnings(
                "ignore", category=ResourceWarning
            )  # the library's own files, interrupted
            task()
        code = 0
    except BaseException as e:  # noqa: BLE001
        say(f"wrong: {type(e).__name__}: {e}")
        say("".join(traceback.format_exception(e)))
    complaints = [text for text in complaints if "Injected" not in text]
    for text in complaints:
        say(f"wrong: {text}")
    os._exit(code or bool(complaints))


def _ended(running: list[_Child]) -> list[_Child]:
    poll = select.poll()
    for child in running:
        poll.register(child.pidfd, select.POLLIN)
    soonest = min(child.until for child in running)
    ready = {fd for fd, _ in poll.poll(max(0, soonest - time.monotonic()) * 1000 + 1)}
    for child in running:
        if time.monotonic() > child.until:
            os.kill(child.pid, signal.SIGKILL)
            ready.add(child.pidfd)
    return [child for child in running if child.pidfd in ready]


def _end(child: _Child, limit: float) -> Ended:
    status = os.waitpid(child.pid, 0)[1]
    os.close(child.pidfd)
    with child.output as output:
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


def _innermost(text: str) -> str:
    """The innermost lines of the main thread in what faulthandler wrote."""
    last = (
        text.rpartition("Thread 0x")[2]
        if "Current thread" not in text
        else text.partition("Current thread")[2]
    )
    frames = [line.strip() for line in last.splitlines() if line.strip().startswith("File")]
    return " < ".join(frame.replace('File "', "").rpartition("/")[2].replace('"', "") for frame in frames[:3])
