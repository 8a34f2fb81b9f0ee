"""One store, written by the programs of everyday work: gunicorn, a pool of processes, a notebook."""

import contextlib
import http.client
import importlib.util
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import Program, environment
from tests.helpers.waiting import threads_doing, until

WORKERS = 4

SETTINGS = f"""
workers, worker_class, threads = {WORKERS}, "gthread", 3
bind, graceful_timeout, timeout = "unix:socket", 10, 60
preload_app = True
control_socket_disable = True


def post_fork(server, worker):
    import app

    app.open_store()


def worker_exit(server, worker):
    import app

    app.store.close()
"""

# POST appends the body, and answers with the process id and the offset. GET /N sends N records as they come.
APP = """
import os
from itertools import islice

import kstore

store = None


def open_store():
    global store
    store = kstore.LogStore("data", mode="a", shared=True)
    store.create_topic("posts", exist_ok=True)


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["REQUEST_METHOD"] == "POST":
        value = environ["wsgi.input"].read()
        _, offset = store.append("posts", value)
        return [b"%d %d" % (os.getpid(), offset)]
    return lines(int(environ["PATH_INFO"][1:]))


def lines(count):
    with store.follow(["posts"], "earliest", timeout=60) as follower:
        for _, _, record in islice(follower, count):
            yield record.value + b"\\n"
"""


class Connection(http.client.HTTPConnection):
    """A connection to a socket of the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Gunicorn:
    """gunicorn with the application above, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        (directory / "app.py").write_text(APP)
        (directory / "gunicorn.conf.py").write_text(SETTINGS)
        self._socket = directory / "socket"
        self._errors = (directory / "errors").open("wb")
        command = [sys.executable, "-m", "gunicorn", "app:app"]
        self._process = subprocess.Popen(command, cwd=directory, env=environment(), stderr=self._errors)
        self.acked: dict[str, int] = {}  # the offset of each value
        self.workers: Counter[int] = Counter()

    def post(self, value: str) -> int | None:
        """Appends a value; the id of the process that did. None: there was no answer, as when it has died."""
        connection = Connection(self._socket)
        try:
            connection.request("POST", "/", value)
            answer = connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        pid, offset = map(int, answer.split())
        self.acked[value] = offset
        self.workers[pid] += 1
        return pid

    def post_many(self, name: str, count: int = 40) -> None:
        """Several clients at once."""
        work = [lambda c=c: [self.post(f"{name} {c} {n}") for n in range(count)] for c in range(6)]
        with threads_doing(*work):
            pass

    def tail(self, count: int) -> list[str]:
        connection = Connection(self._socket)
        connection.request("GET", f"/{count}")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return lines

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        self._process.terminate()
        code = self._process.wait(60)
        self._errors.close()
        return code

    @property
    def children(self) -> set[int]:
        return set(
            map(int, Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split())
        )


@pytest.fixture
def gunicorn(tmp_path: Path) -> Iterator[Gunicorn]:
    if importlib.util.find_spec("gunicorn") is None:
        pytest.skip("gunicorn is not installed")
    server = Gunicorn(tmp_path)
    try:
        until(lambda: server.post("first") is not None)
        yield server
    finally:
        server.end()


def test_gunicorn(gunicorn: Gunicorn, tmp_path: Path) -> None:
    """Four workers append and tail; one is killed, and all are replaced at a reload."""
    seen: list[str] = []
    with threads_doing(lambda: seen.extend(gunicorn.tail(200))):
        gunicorn.post_many("four")
    until(lambda: gunicorn.post("spread") and len(gunicorn.workers) == WORKERS)
    assert len(set(gunicorn.workers) & gunicorn.children) == WORKERS

    victim = next(iter(gunicorn.children))
    with threads_doing(lambda: gunicorn.post_many("killed", 60)):
        os.kill(victim, signal.SIGKILL)
    until(lambda: len(gunicorn.children) == WORKERS and victim not in gunicorn.children)

    before = gunicorn.children
    with threads_doing(lambda: gunicorn.post_many("reloaded", 60)):
        gunicorn.signal(signal.SIGHUP)
    until(lambda: not before & gunicorn.children)
    until(lambda: gunicorn.post("after the reload") not in (None, *before))
    assert gunicorn.end() == 0

    values = [(record.value or b"").decode() for record in kstore.open(tmp_path / "data" / "posts-0")]
    assert seen == values[:200]
    assert {value: values[offset] for value, offset in gunicorn.acked.items()} == {
        value: value for value in gunicorn.acked
    }
    repeated = ("spread", "after the reload", "first")
    assert {v: n for v, n in Counter(values).items() if n > 1 and v not in repeated} == {}
    assert sum(value.startswith("four") for value in gunicorn.acked) == 6 * 40
    assert b"Traceback" not in (tmp_path / "errors").read_bytes()
    with kstore.LogStore(tmp_path / "data", mode="a") as store:  # nobody has it any more
        assert store.append("posts", b"last") == (0, len(values))


# ---- a pool ------------------------------------------------------------------------------------------------

_store: kstore.LogStore


def open_in_worker(directory: str) -> None:
    global _store
    _store = kstore.LogStore(directory, mode="a", shared=True)


def append_in_worker(n: int) -> tuple[int, int]:
    return _store.append("jobs", b"%d" % n, key=b"%d" % (n % 7))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_whose_workers_are_replaced(tmp_path: Path, method: str) -> None:
    """A worker ends after some tasks without closing its store; the last ones are terminated."""
    directory = tmp_path / "data"
    tasks = 60 if method == "fork" else 12
    with kstore.LogStore(directory, mode="a", shared=True) as store:
        store.create_topic("jobs", partitions=3)
        arguments = (3, open_in_worker, (str(directory),), 5)
        with multiprocessing.get_context(method).Pool(*arguments) as pool:
            placed = pool.map(append_in_worker, range(tasks), chunksize=1)
        store.append("jobs", b"last", key=b"0")
        for n, (partition, offset) in enumerate(placed):
            record = store.log("jobs", partition).get(offset)
            assert (record.key, record.value) == (b"%d" % (n % 7), b"%d" % n)
        assert len(set(placed)) == tasks
        assert sum(store.log("jobs", n).log_end_offset for n in range(3)) == tasks + 1
    assert kstore.LogStore(directory).closed_cleanly


# ---- a notebook beside a service ---------------------------------------------------------------------------

NOTEBOOK = """
import sys
import kstore

print("begun", flush=True)
for cell in sys.stdin:
    try:
        print(eval(cell), flush=True)
    except SyntaxError:
        exec(cell)
        print("done", flush=True)
    except Exception as e:
        print(type(e).__name__, flush=True)
"""


def test_a_notebook_beside_a_service(tmp_path: Path) -> None:
    """It runs a cell that opens the store once more, is stopped for a while, and is killed in the end."""
    directory = tmp_path / "data"
    ended = threading.Event()
    count = 0

    def serve(store: kstore.LogStore) -> None:
        nonlocal count
        while not ended.is_set():
            store.append("events", b"%d" % count)
            count += 1

    with kstore.LogStore(directory, mode="a", shared=True) as store, Program(NOTEBOOK) as notebook:
        store.create_topic("events", internal_segment_bytes=5000, retention_bytes=20_000)
        with threads_doing(lambda: serve(store), ended=ended):
            opening = f"kstore.LogStore({str(directory)!r}, mode='a', shared=True)"
            assert notebook.tell(f"store = {opening}") == "done"
            assert notebook.tell(opening) == "LogLockedError"
            assert int(notebook.tell("store.log('events').log_end_offset")) <= count + 1
            until(lambda: len(store.log("events").segments) > 8)
            os.kill(notebook.pid, signal.SIGSTOP)
            store.retain()  # a stopped notebook keeps no file from it
            until(lambda: len(store.log("events").segments) > 8)
            os.kill(notebook.pid, signal.SIGCONT)
            assert notebook.tell("store.create_topic('notes').name") == "notes"
            assert notebook.tell("store.append('notes', b'a note')") == "(0, 0)"
            until(lambda: "notes" in store.topics)
            assert store.log("notes").get(0).value == b"a note"
            values = eval(notebook.tell("[int(r.value) for r in store.log('events')]"))
            assert values == list(range(values[0], values[0] + len(values)))
            begun = count
            assert values[-1] <= begun  # the last one may have been appended and not been counted yet
            notebook.kill()
            until(lambda: count > begun + 10)
        log = store.log("events")
        assert log.log_end_offset == count
        assert [int(record.value or b"") for record in log] == list(range(log.log_start_offset, count))
        with contextlib.suppress(BrokenPipeError):
            notebook.end()
    assert kstore.LogStore(directory).closed_cleanly
