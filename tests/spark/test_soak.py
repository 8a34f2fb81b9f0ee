"""For KSTORE_SPARK_SOAK_MINUTES: AvailableNow every ten seconds on a cluster, while drivers, executors and another writer of
the topic are killed at random. Every record is there once, and nothing is left in staging.
"""

import collections
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import kstore
from examples.cluster import MARK, ended, marked, standalone
from kstore.spark.journal import Journal
from kstore.spark.publish import Sink
from tests.spark import application

MINUTES = float(os.environ.get("KSTORE_SPARK_SOAK_MINUTES", "0"))
SEED = int(os.environ.get("KSTORE_SPARK_SOAK_SEED", time.time_ns() % 1_000_000))
CLUSTER = "KSTORE_TEST_CLUSTER"
PROGRAM = Path(__file__).parent / "soak.py"
pytestmark = [
    pytest.mark.spark,
    pytest.mark.datasource,
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(MINUTES <= 0, reason="KSTORE_SPARK_SOAK_MINUTES says for how long"),
    pytest.mark.timeout(MINUTES * 60 + 900),
]


class Program:
    """One of the two programs, begun again whenever it has ended."""

    def __init__(self, kind: str, job: dict[str, Any], work: Path, environment: dict[str, str]) -> None:
        self.kind, self.job, self.work, self.environment = kind, job, work, environment
        self.starts = 0
        self.output = work / f"{kind}.out"
        self._running = ExitStack()

    def start(self) -> None:
        self.starts += 1
        job = json.dumps(self.job | {"name": f"other-{self.starts}"})
        environment = dict(self.environment)
        self._running.enter_context(ended(environment))  # with Java and all else that it starts
        self.mark = environment[MARK]
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), self.kind, job],
                env=environment,
                cwd=self.work,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def end(self) -> None:
        self._running.close()
        self.process.wait()

    def keep_alive(self) -> None:
        """A driver may fail, as its cluster and its Java may be gone; the other writer may not."""
        if self.process.poll() is not None:
            assert self.kind == "driver", self.output.read_text("utf-8", "replace")[-3000:]
            self.end()
            self.start()


@contextmanager
def running(program: Program) -> Iterator[Program]:
    program.start()
    try:
        yield program
    finally:
        program.end()


def executors(cluster: str) -> list[int]:
    """Those of the cluster."""
    found = []
    for pid in marked(CLUSTER, cluster):
        with suppress(OSError):
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def wait_for(moment: str, sink: Sink, limit_s: float) -> None:
    """Until something is staged, or a commit has begun: by chance alone a driver is seldom killed then."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if moment == "commit":
            is_now = Journal.read(sink.root).pending is not None
        else:
            is_now = any(Path(sink.staging).glob("*"))
        if is_now:
            return
        time.sleep(0.002)


def kill(what: str, driver: Program, other: Program, cluster: str, chance: random.Random) -> bool:
    """Whether there was something to kill."""
    if what == "driver":
        driver.end()  # all of it at once
        return True
    if what == "other writer":
        other.end()
        other.start()
        return True
    if what == "executor":
        pids = executors(cluster)
    elif what == "driver's Python":
        pids = [driver.process.pid]
    else:  # its Java, or one of the processes in which it plans and commits
        pids = [pid for pid in marked(MARK, driver.mark) if pid != driver.process.pid]
    if not pids:
        return False
    with suppress(ProcessLookupError):
        os.kill(chance.choice(pids), signal.SIGKILL)
    return True


KILLS = ("executor", "executor", "other writer", "driver", "driver's Python", "driver's other processes")


def test_every_ten_seconds(tmp_path: Path) -> None:
    from pyspark import __version__

    if __version__ < "4.2":
        pytest.skip("needs several micro-batches of one AvailableNow")
    data, out, stop = tmp_path / "data", tmp_path / "out", tmp_path / "stop"
    noted = tmp_path / "noted"
    for partition in (0, 1):
        kstore.open(data / f"in-{partition}", "a").close()
        kstore.open(out / f"out-{partition}", "a").close()
    environment = application.environment()
    print("seed", SEED)
    chance = random.Random(SEED)
    killed: collections.Counter[str] = collections.Counter()  # and what was under way right after
    in_midst: collections.Counter[str] = collections.Counter()
    sink = Sink(out)
    job = {name: str(tmp_path / name) for name in ("data", "out", "checkpoint", "stop", "noted")}
    cluster = str(uuid.uuid4())
    count = 0
    with (
        standalone(tmp_path, environment | {CLUSTER: cluster}) as url,
        running(Program("driver", job | {"master": url}, tmp_path, environment)) as driver,
        running(Program("other", job, tmp_path, environment)) as other,
    ):
        deadline = time.monotonic() + MINUTES * 60
        next_kill, last_kill, seen = time.monotonic() + 40, time.monotonic(), -1
        while time.monotonic() < deadline:
            for partition in (0, 1):
                with kstore.open(data / f"in-{partition}", "a") as log:
                    size = chance.randint(1, 40)
                    log.extend([f"{number}".encode() for number in range(count, count + size)])
                    count += size
            driver.keep_alive()
            other.keep_alive()
            now, epoch = time.monotonic(), Journal.read(str(out)).epoch
            # what is killed before it has done anything shows little: a busy machine takes its time to start it
            if now > next_kill and (epoch > seen or now > last_kill + 180):
                what = chance.choice(KILLS)
                if what != "other writer":
                    moment = chance.choice(("any", "staging", "commit"))
                    if moment != "any":
                        wait_for(moment, sink, 20)
                        time.sleep(chance.choice((0, chance.uniform(0, 0.03), chance.uniform(0, 0.5))))
                if kill(what, driver, other, cluster, chance):
                    killed[what] += 1
                    left = sink.status()
                    in_midst["of a micro-batch"] += bool(left.jobs)
                    in_midst["of a commit"] += left.pending is not None
                    seen, last_kill = Journal.read(str(out)).epoch, time.monotonic()
                    next_kill = time.monotonic() + chance.uniform(5, 60)
            time.sleep(chance.uniform(0.5, 1.5))
        stop.touch()
        assert other.process.wait(120) == 0
        while driver.process.wait(600) != 0:  # it has all to read that is left
            driver.keep_alive()
        runs = driver.output.read_text("utf-8", "replace").splitlines()
        starts = driver.starts
    given, acknowledged = sorted(str(n) for n in range(count)), noted.read_text("utf-8").split()
    found = []
    for partition in (0, 1):
        with kstore.open(out / f"out-{partition}") as log, kstore.open(data / f"in-{partition}") as source:
            mine = [(record.value or b"").decode() for record in log]
            of_source = sorted((record.value or b"").decode() for record in source)
            assert sorted(value for value in mine if not value.startswith("other-")) == of_source
            found += mine
    others = [value for value in found if value.startswith("other-")]
    assert len(others) == len(set(others))
    assert set(acknowledged) <= set(others)
    assert sorted(set(found) - set(others)) == given
    status = sink.status()
    assert (status.pending, status.jobs) == (None, ())
    assert not [path for path in Path(sink.staging).rglob("*") if path.is_file()]
    [last] = status.queries.values()
    failed = sum(line.startswith("failed") for line in runs)
    errors = collections.Counter(code for line in runs for code in re.findall(r"KSTORE_[A-Z_]+(?=:)", line))
    print(
        f"{count} records, {len(others)} of another writer, {last.number + 1} micro-batches, {runs.count('run')} "
        f"runs, {failed} failed, {starts} drivers, killed {dict(killed)}, in the midst {dict(in_midst)}, errors {dict(errors)}"
    )
    assert set(errors) <= {"KSTORE_LOG_LOCKED"}  # whatever is killed, the sink has no other reason to fail
