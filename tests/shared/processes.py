"""Children of fork that a test talks with."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import kstore
import kstore.testing

Step = Callable[[kstore.LogWriter], object]


def started(work: Callable[[], object]) -> int:
    """A child of fork that does it; it ends with status 0 if nothing was raised."""
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            work()
            status = 0
        os._exit(status)
    return child


def ended(child: int) -> int:
    """The exit code of a child, once it has ended; negative if a signal has killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Writer:
    """A child that has a log open, and does with it what it is asked to, until it is told to close it."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self._pipe, other = Pipe()
        self.pid = started(lambda: self._serve(other, directory, options))
        other.close()
        assert self._pipe.recv() == "open"

    def _serve(self, pipe: Any, directory: Path, options: dict[str, Any]) -> None:
        self._pipe.close()
        with kstore.open(directory, "a", shared=True, **options) as log:
            pipe.send("open")
            with contextlib.suppress(EOFError):
                while (name := pipe.recv()) is not None:
                    try:
                        pipe.send(STEPS[name](log))
                    except (OSError, kstore.KstoreError) as e:
                        pipe.send(type(e).__name__)

    def begin(self, name: str) -> None:
        self._pipe.send(name)

    def end(self) -> Any:
        return self._pipe.recv()

    def do(self, name: str) -> Any:
        self.begin(name)
        return self.end()

    def close(self) -> int:
        self._pipe.send(None)
        return ended(self.pid)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        ended(self.pid)


def _die_in(log: kstore.LogWriter) -> None:
    with kstore.testing.failing(1, how="kill_half"):
        log.append(b"x" * 5000)


def _fail_sync(log: kstore.LogWriter) -> None:
    with kstore.testing.failing(1, this_thread=True):
        log.flush()


STEPS: dict[str, Step] = {
    "append": lambda log: log.append(b"child", b"key"),
    "append durably": lambda log: (log.append(b"child"), log.flush())[0],
    "read": lambda log: [record.value for record in log],
    "end": lambda log: log.log_end_offset,
    "roll": lambda log: log.roll(),
    "options": lambda log: log.config.given_options(),
    "epoch": lambda log: log.leader_epoch,
    "die in an append": _die_in,
    "fail a sync": _fail_sync,
}


@contextlib.contextmanager
def writer(directory: Path, **options: Any) -> Iterator[Writer]:
    child = Writer(directory, **options)
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            child.go_on()
            child.kill()
