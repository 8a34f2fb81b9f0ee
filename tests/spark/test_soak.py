"""AvailableNow every ten seconds on a cluster, while drivers, executors and another writer of the topic are
killed.

For EFFORT minutes, from EFFORT=10 on. Every record is there once, and nothing is left in staging.
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
from kstore.spark import Sink
from tests.helpers.effort import EFFORT, SEED, times
from tests.spark import application

MINUTES = times(1)
CLUSTER = "KSTORE_TEST_CLUSTER"
PROGRAM = Path(__file__).parent / "soak.py"
KILLS = ("executor", "executor", "other writer", "driver", "driver's Python", "driver's other processes")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.datasource,
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(EFFORT < 10, reason="runs for EFFORT minutes if EFFORT is 10 or more"),
    pytest.mark.timeout(MINUTES * 60 + 900),
]


class Program:
    """One of the two programs, begun again whenever it has ended."""

    def __init__(self, kind: str, job: dict[str, Any], work: Path) -> None:
        self.kind, self.job, self.work = kind, job, work
        self.starts = 0
        self.output = work / f"{kind}.out"
        self._running = ExitStack()

    def start(self) -> None:
        self.starts += 1
        environment = application.environment()
        self._running.enter_context(ended(environment))  # with Java and all else that it starts
        self.mark = environment[MARK]
        job = json.dumps(self.job | {"name": f"other-{self.starts}"})
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

    def kill(self, what: str, cluster: str, chance: random.Random) -> bool:
        """Whether there was something to kill."""
        if what in ("driver", "other writer"):
            self.end()  # all of it at once
            if what == "other writer":
                self.start()
            return True
        if what == "executor":
            pids = executors(cluster)
        elif what == "driver's Python":
            pids = [self.process.pid]
        else:  # its Java, or one of the processes in which it plans and commits
            pids = [pid for pid in marked(MARK, self.mark) if pid != self.process.pid]
        with suppress(ProcessLookupError, IndexError):
            os.kill(chance.choice(pids), signal.SIGKILL)
        return bool(pids)


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


def wait_for(moment: str, sink: Sink) -> None:
    """Until something is staged, or a commit has begun: by chance alone a driver is seldom killed then."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if sink.status().pending is not None if moment == "commit" else any(Path(sink.staging).glob("*")):
            return
        time.sleep(0.002)


def check(data: Path, out: Path, count: int, noted: list[str]) -> int:
    """Every record of the input once, in its partition; all of the other writer that it has noted, each
    once."""
    found: list[str] = []
    for partition in (0, 1):
        with kstore.open(out / f"out-{partition}") as log, kstore.open(data / f"in-{partition}") as source:
            mine = [(record.value or b"").decode() for record in log]
            given = sorted((record.value or b"").decode() for record in source)
            assert sorted(value for value in mine if not value.startswith("other-")) == given
            found += mine
    others = [value for value in found if value.startswith("other-")]
    assert len(others) == len(set(others))
    assert set(noted) <= set(others)
    assert sorted(set(found) - set(others)) == sorted(str(n) for n in range(count))
    return len(others)


def test_every_ten_seconds(tmp_path: Path) -> None:
    from pyspark import __version__

    if __version__ < "4.2":
        pytest.skip("needs several micro-batches of one AvailableNow")
    data, out, stop = tmp_path / "data", tmp_path / "out", tmp_path / "stop"
    for partition in (0, 1):
        kstore.open(data / f"in-{partition}", "a").close()
        kstore.open(out / f"out-{partition}", "a").close()
    chance, sink = random.Random(SEED), Sink(out)
    killed: collections.Counter[str] = collections.Counter()
    in_midst: collections.Counter[str] = collections.Counter()  # what was under way right after a kill
    job = {name: str(tmp_path / name) for name in ("data", "out", "checkpoint", "stop", "noted")}
    cluster, count = str(uuid.uuid4()), 0
    with (
        standalone(tmp_path, application.environment() | {CLUSTER: cluster}) as url,
        running(Program("driver", job | {"master": url}, tmp_path)) as driver,
        running(Program("other", job, tmp_path)) as other,
    ):
        deadline = time.monotonic() + MINUTES * 60
        next_kill, last_kill, seen = time.monotonic() + 40, time.monotonic(), sink.status().queries
        while time.monotonic() < deadline:
            for partition in (0, 1):
                with kstore.open(data / f"in-{partition}", "a") as log:
                    size = chance.randint(1, 40)
                    log.extend([f"{number}".encode() for number in range(count, count + size)])
                    count += size
            driver.keep_alive()
            other.keep_alive()
            now, published = time.monotonic(), sink.status().queries
            # what is killed before it has done anything shows little: a busy machine takes its time to start
            # it
            if now > next_kill and (published != seen or now > last_kill + 180):
                what = chance.choice(KILLS)
                moment = chance.choice(("any", "staging", "commit"))
                if what != "other writer" and moment != "any":
                    wait_for(moment, sink)
                    time.sleep(chance.choice((0, chance.uniform(0, 0.03), chance.uniform(0, 0.5))))
                if (other if what == "other writer" else driver).kill(what, cluster, chance):
                    killed[what] += 1
                    left = sink.status()
                    in_midst["of a micro-batch"] += bool(left.jobs)
                    in_midst["of a commit"] += left.pending is not None
                    seen, last_kill = left.queries, time.monotonic()
                    next_kill = last_kill + chance.uniform(5, 60)
            time.sleep(chance.uniform(0.5, 1.5))
        stop.touch()
        assert other.process.wait(120) == 0
        while driver.process.wait(600) != 0:  # it has all to read that is left
            driver.keep_alive()
        runs = driver.output.read_text("utf-8", "replace").splitlines()
    others = check(data, out, count, Path(job["noted"]).read_text("utf-8").split())
    status = sink.status()
    assert (status.pending, status.jobs) == (None, ())
    assert not [path for path in Path(sink.staging).rglob("*") if path.is_file()]
    [last] = status.queries.values()
    errors = collections.Counter(code for line in runs for code in re.findall(r"KSTORE_[A-Z_]+(?=:)", line))
    print(
        f"SEED={SEED}: {count} records, {others} of another writer, {last.number + 1} micro-batches, "
        f"{runs.count('run')} runs, {sum(line.startswith('failed') for line in runs)} failed, {driver.starts} drivers, "
        f"killed {dict(killed)}, in the midst {dict(in_midst)}, errors {dict(errors)}"
    )
    assert set(errors) <= {"KSTORE_LOG_LOCKED"}  # whatever is killed, the sink has no other reason to fail
