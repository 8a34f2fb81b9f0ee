"""Drivers that are killed as processes, before or in the midst of a commit, and started again: every record is there once.

Some in every run; all with KSTORE_CLUSTER=all. KSTORE_KILLS=10 kills so many drivers one after the other in each case.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import kstore

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.filterwarnings("ignore")]

REPOSITORY = Path(__file__).parents[2]
DRIVER = Path(__file__).parent / "driver.py"
LAST_STEP = 7  # of a commit: the journal, four staged logs, the journal, and then Spark is not told
OLD_MS = 30 * 86_400_000
MOMENTS = ("before the commit", "in the first commit", "in a later commit")
AGES = ("fresh", "old")
KINDS = ("batch", "stream", "available now")
GRID = [(moment, age, kind) for moment in MOMENTS for age in AGES for kind in KINDS]
USUAL = {
    "local": [
        ("before the commit", "fresh", "available now"),
        ("in the first commit", "old", "stream"),
        ("in a later commit", "old", "batch"),
    ],
    "cluster": [("in the first commit", "old", "available now")],
}
ALL = os.environ.get("KSTORE_CLUSTER") == "all"
KILLS = int(os.environ.get("KSTORE_KILLS", "1"))
DRIVER_S = 240  # its own limit; a test's limit is that of all its drivers, so that the one that hangs is told
LIMIT_S = DRIVER_S * (KILLS + 3)


def cases(where: str) -> list[Any]:
    return [pytest.param(*case, id=", ".join(case)) for case in (GRID if ALL else USUAL[where])]


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    from pyspark import __version__

    if __version__ < "4.2":
        pytest.skip("needs several micro-batches of one AvailableNow")
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # these processes do not live long
    }


@pytest.fixture(scope="module")
def cluster(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a standalone cluster of two workers."""
    from examples.cluster import standalone

    with standalone(tmp_path_factory.mktemp("cluster"), environment) as url:
        yield url


class Driver:
    """Starts drivers one after the other, and fills what they read."""

    def __init__(self, master: str, kind: str, age: str, work: Path, environment: dict[str, str]) -> None:
        self.master, self.kind, self.work, self.environment = master, kind, work, environment
        self.age_ms = OLD_MS if age == "old" else 0
        self.rows = 0

    def fill(self, count: int = 400) -> None:
        """More records in the two partitions that are read."""
        at = int(time.time() * 1000) - self.age_ms
        for partition in (0, 1):
            own = range(self.rows + partition, self.rows + count, 2)
            with kstore.open(self.work / "data" / f"in-{partition}", "a") as log:
                log.extend([str(i).encode() for i in own], timestamps=[at] * len(own))
        self.rows += count

    def run(self, death: dict[str, Any] | None = None, jobs: Sequence[int] = ()) -> None:
        """To the end, or killed: after this step of this commit."""
        from examples.cluster import ended

        job = {
            "master": self.master,
            "kind": self.kind,
            "data": str(self.work / "data"),
            "out": str(self.work / "out"),
            "checkpoint": str(self.work / "checkpoint"),
            "jobs": list(jobs),
            "job_count": KILLS + 1,
            "death": death,
        }
        environment = dict(self.environment)
        with ended(environment):
            try:
                done = subprocess.run(
                    [sys.executable, str(DRIVER), json.dumps(job)],
                    env=environment,
                    cwd=self.work,
                    capture_output=True,
                    text=True,
                    timeout=DRIVER_S,
                    check=False,
                )
            except subprocess.TimeoutExpired as e:
                pytest.fail(
                    f"a driver did not end within {DRIVER_S} s; death {death}, jobs {jobs}:\n{e.stderr!r:.3000}"
                )
        assert done.returncode == (0 if death is None else -9), done.stderr[-3000:]

    def committed(self) -> int:
        """The last micro-batch that Spark noted, -1 if there is none."""
        noted = (self.work / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(path.name) for path in noted), default=-1)

    def check(self) -> None:
        """Every record once, in the partition and with the time that it had."""
        for partition in (0, 1):
            with (
                kstore.open(self.work / "data" / f"in-{partition}") as given,
                kstore.open(self.work / "out" / f"out-{partition}") as log,
            ):
                wanted = sorted((int(r.value or b""), r.timestamp) for r in given)
                assert sorted((int(r.value or b""), r.timestamp) for r in log) == wanted
        if self.kind != "batch":  # what a dead batch driver has staged is left to the sweeper
            staging = self.work / ".out.kstore-spark"
            assert not [path for path in staging.rglob("*") if path.is_file()]


def killed(driver: Driver, moment: str) -> None:
    """Kills one driver after the other, each of which first has to end what the one before has left."""
    chance = random.Random(f"{moment} {driver.kind} {driver.age_ms} {driver.master[:5]} {KILLS}")
    later = moment == "in a later commit"
    if driver.kind == "batch":
        driver.fill()
    elif driver.kind == "available now" and later:
        driver.fill(200)
        driver.run()
    for kill in range(KILLS):
        commit, jobs = kill + later, [kill, kill + 1] if later else [kill]
        if driver.kind != "batch":
            driver.fill()
            again = kill > 0 and chance.random() < 0.3  # killed once more in the very same micro-batch
            commit = driver.committed() + (2 if (later or kill) and not again else 1)
        step = 0 if moment == "before the commit" else chance.randint(1, LAST_STEP)
        driver.run({"commit": commit, "step": step, "moved": chance.random() < 0.5}, jobs)
    driver.run(jobs=range(KILLS + 1))
    driver.check()


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(("moment", "age", "kind"), cases("local"))
def test_a_driver_is_killed(
    moment: str, age: str, kind: str, environment: dict[str, str], tmp_path: Path
) -> None:
    killed(Driver("local[2]", kind, age, tmp_path, environment), moment)


@pytest.mark.cluster
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(("moment", "age", "kind"), cases("cluster"))
def test_a_driver_of_a_cluster_is_killed(
    moment: str, age: str, kind: str, environment: dict[str, str], cluster: str, tmp_path: Path
) -> None:
    killed(Driver(cluster, kind, age, tmp_path, environment), moment)
