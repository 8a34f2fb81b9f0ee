"""Drivers that are killed as processes, before or within commits, and started again: every record is there
once.

A driver runs several copies at once, of every kind, and is killed when each of them has come to its moment.
"""

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.effort import EFFORT, SEED, some
from tests.spark import application

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.filterwarnings("ignore")]

DRIVER = Path(__file__).parent / "driver.py"
MOMENTS = ("before the commit", "in the first commit", "in a later commit")
COPIES = list(product(("batch", "stream", "available now"), ("fresh", "old"), MOMENTS))
KILLS = -(-EFFORT // 6)  # of each copy, one after the other: at EFFORT=6 there are all copies
AT_ONCE = 6  # copies of one driver
CALLS = 200  # a commit makes about so many system calls; after them Spark is not told that it has ended
OLD_MS = 30 * 86_400_000
DRIVER_S = 600  # its own limit, below a test's, so that it is known which driver hangs
NOT_BEGUN = "Python worker failed to connect back"  # Spark gives a process of Python 10 s to start


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    from pyspark import __version__

    if __version__ < "4.2":
        pytest.skip("needs several micro-batches of one AvailableNow")
    return application.environment()


@pytest.fixture(scope="module")
def cluster(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a standalone cluster of two workers, for drivers alone."""
    from examples.cluster import standalone

    with standalone(tmp_path_factory.mktemp("cluster"), environment) as url:
        yield url


class Copy:
    """Logs that are filled, copied by drivers that are killed, and counted."""

    def __init__(self, kind: str, age: str, moment: str, work: Path) -> None:
        self.kind, self.age, self.moment, self.work = kind, age, moment, work
        self.is_later = moment == "in a later commit"
        self.rows = 0
        self._chance = random.Random(f"{SEED} {moment} {kind} {age}")
        if kind == "batch":
            self.fill()

    def fill(self) -> None:
        """400 more records in the two partitions that are read."""
        at = int(time.time() * 1000) - (OLD_MS if self.age == "old" else 0)
        for partition in (0, 1):
            own = range(self.rows + partition, self.rows + 400, 2)
            with kstore.open(self.work / "data" / f"in-{partition}", "a") as log:
                log.extend([str(i).encode() for i in own], timestamps=[at] * len(own))
        self.rows += 400

    def committed(self) -> int:
        """The last micro-batch that Spark noted, -1 if there is none."""
        noted = (self.work / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(path.name) for path in noted), default=-1)

    def job(self, jobs: list[int] | None = None, kill: dict[str, Any] | None = None) -> dict[str, Any]:
        """What a driver is to do: all that is left, or to be killed."""
        paths = {name: str(self.work / name) for name in ("data", "out", "checkpoint")}
        return {
            "kind": self.kind,
            "jobs": list(range(KILLS + 1)) if jobs is None else jobs,
            "kill": kill,
        } | paths

    def job_to_kill(self, kill: int) -> dict[str, Any]:
        chance = self._chance
        jobs = [kill, kill + 1] if self.is_later else [kill]
        commit = jobs[-1]
        if self.kind != "batch":
            self.fill()
            again = kill > 0 and chance.random() < 0.3  # killed once more in the very same micro-batch
            commit = self.committed() + (2 if (self.is_later or kill) and not again else 1)
        call = 0 if self.moment == "before the commit" else chance.randint(1, CALLS)
        return self.job(jobs, {"commit": commit, "call": call, "moved": chance.random() < 0.5})

    def check(self) -> None:
        """Every record once, in the partition and with the time that it had."""
        for partition in (0, 1):
            with (
                kstore.open(self.work / "data" / f"in-{partition}") as given,
                kstore.open(self.work / "out" / f"out-{partition}") as log,
            ):
                wanted = sorted((int(r.value or b""), r.timestamp) for r in given)
                found = sorted((int(r.value or b""), r.timestamp) for r in log)
                assert found == wanted, f"{self.work.name}, SEED={SEED}"
        if self.kind != "batch":  # what a dead batch driver has staged is left to the sweeper
            staging = self.work / ".out.kstore-spark"
            assert not [path for path in staging.rglob("*") if path.is_file()]


def run(master: str, jobs: list[dict[str, Any]], work: Path, environment: dict[str, str]) -> bool:
    """One driver with these jobs, to the end, or killed if that is what they are to be. False if a query did
    not begin."""
    from examples.cluster import ended

    arrived = work / str(uuid.uuid4())
    arrived.mkdir(parents=True)
    job = {"master": master, "job_count": KILLS + 1, "copies": jobs, "arrived": str(arrived)}
    is_killed = any(one["kill"] is not None for one in jobs)
    environment = dict(environment)
    with ended(environment):
        try:
            done = subprocess.run(
                [sys.executable, str(DRIVER), json.dumps(job)],
                env=environment,
                cwd=work,
                capture_output=True,
                text=True,
                timeout=DRIVER_S,
                check=False,
            )
        except subprocess.TimeoutExpired as e:
            names = sorted(os.listdir(arrived))  # noqa: PTH208
            pytest.fail(f"a driver did not end within {DRIVER_S} s; {names} of {jobs}:\n{e.stderr!r:.3000}")
    if done.returncode == 1 and NOT_BEGUN in done.stderr:
        return False
    assert done.returncode == (-9 if is_killed else 0), done.stderr[-5000:]
    assert len(list(arrived.iterdir())) == len(jobs) * is_killed
    return True


PLACES = ["one machine", pytest.param("a cluster", marks=pytest.mark.cluster)]


@pytest.mark.timeout(DRIVER_S * (KILLS + 2) * 6)
@pytest.mark.parametrize("place", some(PLACES, 1, "drivers"))
def test_drivers_that_are_killed(
    place: str, environment: dict[str, str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    master = "local[2]" if place == "one machine" else request.getfixturevalue("cluster")
    chosen = some(COPIES, 3, place)
    for first in range(0, len(chosen), AT_ONCE):
        copies = [Copy(*one, tmp_path / " ".join(one)) for one in chosen[first : first + AT_ONCE]]
        for kill in range(KILLS + 1):
            for _ in range(5):
                jobs = [copy.job_to_kill(kill) if kill < KILLS else copy.job() for copy in copies]
                if run(master, jobs, tmp_path / "arrived", environment):
                    break
            else:
                pytest.fail("Spark has not begun the queries in five tries")
        for copy in copies:
            copy.check()
