"""A standalone cluster of two workers, as processes of this machine, all of which are ended with it."""

import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

MARK = "KSTORE_TEST_PROCESSES"


@contextmanager
def ended(environment: dict[str, str]) -> Iterator[None]:
    """Ends every process that was started with this environment and what they started, however they are related."""
    environment[MARK] = mark = str(uuid.uuid4())
    try:
        yield
    finally:
        deadline = time.monotonic() + 30
        while pids := _marked(mark):
            assert time.monotonic() < deadline, f"processes {pids} do not end"
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)


def _marked(mark: str) -> list[int]:
    """The processes with this mark in their environment, but for those that only wait to be reaped."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


@contextmanager
def standalone(work: Path, environment: dict[str, str]) -> Iterator[str]:
    """The master's URL, once two workers with one core each have come to it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    own = environment | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(work),
        "SPARK_WORKER_DIR": str(work),
    }
    spark_class = f"{_find_spark_home()}/bin/spark-class"
    deploy = "org.apache.spark.deploy"
    master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [f"{deploy}.worker.Worker", url, "--host", "127.0.0.1", "--webui-port", "0"]
    worker += ["--cores", "1", "--memory", "640m"]
    started = []
    with ended(own), (work / "master.log").open("wb") as log:
        try:
            for command in (master, worker, worker):
                own_command = [spark_class, *command]
                process = subprocess.Popen(
                    own_command, env=own, cwd=work, stdout=log, stderr=subprocess.STDOUT
                )
                started.append(process)
            deadline = time.monotonic() + 60
            while (work / "master.log").read_text().count("Registering worker") < 2:
                assert time.monotonic() < deadline, (work / "master.log").read_text()
                time.sleep(0.1)
            yield url
        finally:
            for process in started:
                process.kill()
                process.wait()
