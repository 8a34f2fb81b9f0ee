"""A handler of logging in several processes: whatever way they begin and end, each record is there once."""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import kstore
from kstore.logging import LogHandler
from tests.helpers.processes import run_python
from tests.helpers.waiting import threads_doing, until

PER_PROCESS = 50


def messages(directory: Path) -> list[str]:
    return [(record.value or b"").decode() for record in kstore.open(directory / "log-0")]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("processes")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    yield logger
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()


@contextmanager
def stopped_inside_an_append(directory: Path, handler: LogHandler, logger: logging.Logger) -> Iterator[None]:
    """Logs "0". Then another process appends "other", and is stopped inside of that until the block ends."""
    logger.info("0")
    handler.flush()
    stops = False

    def clock() -> int:
        if stops:
            os.kill(os.getpid(), signal.SIGSTOP)
        return 1000

    child = os.fork()
    if child == 0:
        log = kstore.open(directory / "log-0", "a", shared=True, clock=clock)
        stops = True
        log.append(b"other")
        stops = False
        log.close()
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    try:
        yield
    finally:
        os.kill(child, signal.SIGCONT)
        os.waitpid(child, 0)


def log_some(name: int) -> None:
    for n in range(PER_PROCESS):
        logging.getLogger("processes").info("%d %d", name, n)


def configure_and_log(directory: str, name: int) -> None:
    """In a process that inherits no handler."""
    logger = logging.getLogger("processes")
    logger.setLevel(logging.INFO)
    logger.addHandler(LogHandler(directory))
    log_some(name)


# ---- beginnings and ends -----------------------------------------------------------------------------------


def in_pool(_: str) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(log_some, range(4), chunksize=1)
        pool.close()
        pool.join()


def in_executor(_: str) -> None:
    with ProcessPoolExecutor(4, multiprocessing.get_context("fork")) as executor:
        list(executor.map(log_some, range(4)))


def in_forked_processes(_: str) -> None:
    join(multiprocessing.get_context("fork").Process(target=log_some, args=(n,)) for n in range(4))


def in_other_processes(method: str, directory: str) -> None:
    context = multiprocessing.get_context(method)
    join(context.Process(target=configure_and_log, args=(directory, n)) for n in range(4))


def in_spawned_processes(directory: str) -> None:
    in_other_processes("spawn", directory)


def in_processes_of_a_server(directory: str) -> None:
    in_other_processes("forkserver", directory)


def in_programs(directory: str) -> None:
    """They end without a close, one by an exception."""
    program = (
        "import sys\n"
        "from tests.logging.test_processes import configure_and_log\n"
        "configure_and_log(sys.argv[1], int(sys.argv[2]))\n"
        "raise SystemExit(int(sys.argv[2]))"
    )
    codes: list[int] = []
    work = [lambda n=n: codes.append(run_python(program, directory, n).returncode) for n in range(4)]
    with threads_doing(*work):
        pass
    assert sorted(codes) == list(range(4))


def join(processes: Iterator[multiprocessing.process.BaseProcess]) -> None:
    started = list(processes)
    for process in started:
        process.start()
    for process in started:
        process.join()
        assert process.exitcode == 0


@pytest.mark.parametrize(
    "start",
    [
        in_pool,
        in_executor,
        in_forked_processes,
        in_spawned_processes,
        in_processes_of_a_server,
        in_programs,
    ],
)
@pytest.mark.parametrize("is_used_before", [False, True])
def test_each_record_of_each_process(
    tmp_path: Path, logger: logging.Logger, start: Callable[[str], None], is_used_before: bool
) -> None:
    directory = tmp_path / "logs"
    handler = LogHandler(directory)
    logger.addHandler(handler)
    if is_used_before:
        logger.info("9 0")
    start(str(directory))
    if is_used_before:
        logger.info("9 1")
    handler.close()
    found = [tuple(map(int, text.split())) for text in messages(directory)]
    expected = dict.fromkeys(range(4), PER_PROCESS) | ({9: 2} if is_used_before else {})
    assert {name: [n for each, n in found if each == name] for name in expected} == {
        name: list(range(count)) for name, count in expected.items()
    }
    assert len(found) == sum(expected.values())


def test_a_fork_while_records_wait(tmp_path: Path, logger: logging.Logger) -> None:
    """The parent appends what it has queued, and the child does not."""
    handler = LogHandler(tmp_path / "logs", linger_ms=3_600_000)
    logger.addHandler(handler)
    logger.info("parent")
    child = os.fork()
    if child == 0:
        logger.info("child")
        handler.flush()
        os._exit(handler.dropped)
    assert os.waitpid(child, 0)[1] == 0
    assert messages(tmp_path / "logs") == ["child"]
    handler.close()
    assert messages(tmp_path / "logs") == ["child", "parent"]


def test_forks_while_threads_log(tmp_path: Path, logger: logging.Logger) -> None:
    handler = LogHandler(tmp_path / "logs")
    logger.addHandler(handler)
    ended = threading.Event()
    counts = [0, 0]

    def work(name: int) -> None:
        while not ended.is_set():
            logger.info("thread %d", name)
            counts[name] += 1

    with threads_doing(lambda: work(0), lambda: work(1), ended=ended):
        for n in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                logger.info("child %d", n)
                handler.flush()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    handler.close()
    found = messages(tmp_path / "logs")
    assert [text for text in found if text.startswith("child")] == [f"child {n}" for n in range(10)]
    assert handler.dropped + sum(text.startswith("thread") for text in found) == sum(counts)


AT_EXIT = """
import atexit, logging, sys, threading
from kstore.logging import LogHandler

logger = logging.getLogger()
logger.setLevel("INFO")
logger.addHandler(LogHandler(sys.argv[1], linger_ms=3_600_000))

class Late:
    def __del__(self):
        logger.info("after logging.shutdown()")

late = Late()
atexit.register(logger.info, "in atexit")
threading.Timer(0.05, logger.info, ["in a thread"]).start()
logger.info("in the program")
raise SystemError
"""


def test_the_end_of_the_interpreter(tmp_path: Path) -> None:
    done = run_python(AT_EXIT, tmp_path / "logs")
    assert done.stderr.splitlines()[-1] == "SystemError"
    assert messages(tmp_path / "logs") == ["in the program", "in a thread", "in atexit"]
    assert kstore.LogStore(tmp_path / "logs").closed_cleanly


def test_a_killed_process(tmp_path: Path, logger: logging.Logger) -> None:
    """What was appended stays, and others go on."""
    handler = LogHandler(tmp_path / "logs", block=True)
    logger.addHandler(handler)
    for n in range(5):
        child = os.fork()
        if child == 0:
            logger.info("child %d", n)
            os.kill(os.getpid(), signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        logger.info("parent %d", n)
    assert messages(tmp_path / "logs") == [f"{name} {n}" for n in range(5) for name in ("child", "parent")]


def test_a_process_that_is_stopped_inside_an_append(tmp_path: Path, logger: logging.Logger) -> None:
    """No call of a logger waits for it."""
    handler = LogHandler(tmp_path / "logs")
    logger.addHandler(handler)
    with stopped_inside_an_append(tmp_path / "logs", handler, logger):
        for n in range(1, 2000):
            logger.info("%d", n)
        assert messages(tmp_path / "logs") == ["0"]
    handler.flush()
    assert messages(tmp_path / "logs") == ["0", "other", *map(str, range(1, 2000))]


# ---- signals -----------------------------------------------------------------------------------------------

SIGNALS = """
import logging, signal, sys
from kstore.logging import LogHandler

handler = LogHandler(sys.argv[1], block=sys.argv[2] == "block")
logger = logging.getLogger()
logger.setLevel("INFO")
logger.addHandler(handler)
count = 0

def on_signal(*_):
    global count
    number, count = count, count + 1
    logger.info("signal %d", number)
    signal.setitimer(signal.ITIMER_REAL, 0.0005)  # the next: on a slow machine they would pile up without end

signal.signal(signal.SIGALRM, on_signal)
signal.setitimer(signal.ITIMER_REAL, 0.001)
n = 0
while n < 300 or count < 100:
    logger.info("main %d", n)
    n += 1
    if n % 50 == 0:
        handler.flush()
signal.signal(signal.SIGALRM, signal.SIG_IGN)
print(n, count, handler.dropped)
"""


@pytest.mark.parametrize("mode", ["block", "queue"])
def test_signal_handlers_that_log(tmp_path: Path, mode: str) -> None:
    """They interrupt calls of the same logger in the same thread."""
    done = run_python(SIGNALS, tmp_path / "logs", mode)
    assert done.stderr == ""
    n, count, dropped = map(int, done.stdout.split())
    found = messages(tmp_path / "logs")
    assert [text for text in found if text.startswith("main")] == [f"main {each}" for each in range(n)]
    assert sorted(text for text in found if text.startswith("signal")) == sorted(
        f"signal {each}" for each in range(count)
    )
    assert dropped == 0


def test_an_interrupt_of_a_call_that_blocks(tmp_path: Path, logger: logging.Logger) -> None:
    handler = LogHandler(tmp_path / "logs", block=True)
    logger.addHandler(handler)
    with stopped_inside_an_append(tmp_path / "logs", handler, logger):
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            logger.info("1")
        timer.join()
    until(lambda: messages(tmp_path / "logs") == ["0", "other", "1"])
