"""Drivers that are killed as processes, before or in the midst of commits, and started again: every record is there once.

A driver runs cells of all kinds, and is killed when each of them has come to its moment. KSTORE_KILLS=10 kills ten
drivers one after the other at each moment. Of the three moments two are tried on one machine, and the other on a cluster, and
each kind copies old records at one and new ones at the next; with KSTORE_CLUSTER=all it is all of each.
"""

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.spark import application

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.filterwarnings("ignore")]

DRIVER = Path(__file__).parent / "driver.py"
LAST_STEP = 7  # of a commit: the journal, four staged logs, the journal, and then Spark is not told
OLD_MS = 30 * 86_400_000
MOMENTS = ("before the commit", "in the first commit", "in a later commit")
AGES = ("fresh", "old")
KINDS = ("batch", "stream", "available now")
ALL = os.environ.get("KSTORE_CLUSTER") == "all"
ON_A_CLUSTER = MOMENTS if ALL else MOMENTS[1:2]
ON_ONE_MACHINE = [moment for moment in MOMENTS if ALL or moment not in ON_A_CLUSTER]
KILLS = int(os.environ.get("KSTORE_KILLS", "1"))
DRIVER_S = 600  # its own limit; a test's limit is that of all its drivers, so that the one that hangs is told
LIMIT_S = DRIVER_S * (KILLS + 3)
NOT_BEGUN = "Python worker failed to connect back"


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    from pyspark import __version__

    if __version__ < "4.2":
        pytest.skip("needs several micro-batches of one AvailableNow")
    return application.environment()


@pytest.fixture(scope="module")
def cluster(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a standalone cluster of two workers."""
    from examples.cluster import standalone

    with standalone(tmp_path_factory.mktemp("cluster"), environment) as url:
        yield url


class Cell:
    """Logs that are filled, copied by drivers that are killed, and counted."""

    def __init__(self, kind: str, age: str, moment: str, work: Path) -> None:
        self.kind, self.age, self.moment, self.work = kind, age, moment, work
        self.is_later = moment == "in a later commit"
        self.rows = 0
        self._chance = random.Random(f"{moment} {kind} {age} {KILLS}")

    def fill(self, count: int = 400) -> None:
        """More records in the two partitions that are read."""
        at = int(time.time() * 1000) - (OLD_MS if self.age == "old" else 0)
        for partition in (0, 1):
            own = range(self.rows + partition, self.rows + count, 2)
            with kstore.open(self.work / "data" / f"in-{partition}", "a") as log:
                log.extend([str(i).encode() for i in own], timestamps=[at] * len(own))
        self.rows += count

    def committed(self) -> int:
        """The last micro-batch that Spark noted, -1 if there is none."""
        noted = (self.work / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(path.name) for path in noted), default=-1)

    def job(self, jobs: list[int] | None = None, death: dict[str, Any] | None = None) -> dict[str, Any]:
        """What a driver is to do: all that is left, or to die."""
        return {
            "kind": self.kind,
            "data": str(self.work / "data"),
            "out": str(self.work / "out"),
            "checkpoint": str(self.work / "checkpoint"),
            "jobs": list(range(KILLS + 1)) if jobs is None else jobs,
            "death": death,
        }

    def dying_job(self, kill: int) -> dict[str, Any]:
        """The same, to die for the so-manyeth time."""
        chance = self._chance
        jobs = [kill, kill + 1] if self.is_later else [kill]
        commit = jobs[-1]
        if self.kind != "batch":
            self.fill()
            again = kill > 0 and chance.random() < 0.3  # killed once more in the very same micro-batch
            commit = self.committed() + (2 if (self.is_later or kill) and not again else 1)
        step = 0 if self.moment == "before the commit" else chance.randint(1, LAST_STEP)
        return self.job(jobs, {"commit": commit, "step": step, "moved": chance.random() < 0.5})

    def check(self) -> int:
        """Every record once, in the partition and with the time that it had. How many there are."""
        count = 0
        for partition in (0, 1):
            with (
                kstore.open(self.work / "data" / f"in-{partition}") as given,
                kstore.open(self.work / "out" / f"out-{partition}") as log,
            ):
                wanted = sorted((int(r.value or b""), r.timestamp) for r in given)
                found = sorted((int(r.value or b""), r.timestamp) for r in log)
                assert found == wanted
                count += len(found)
        if self.kind != "batch":  # what a dead batch driver has staged is left to the sweeper
            staging = self.work / ".out.kstore-spark"
            assert not [path for path in staging.rglob("*") if path.is_file()]
        return count


def run(master: str, jobs: list[dict[str, Any]], gate: Path, environment: dict[str, str]) -> bool:
    """One driver with these jobs, to the end, or killed if that is what they are to do. False if a query did not begin,
    for Spark gives a process of Python ten seconds to start, which are not enough on a busy machine.
    """
    from examples.cluster import ended

    gate.mkdir(parents=True)
    job = json.dumps({"master": master, "job_count": KILLS + 1, "cells": jobs, "gate": str(gate)})
    is_killed = any(one["death"] is not None for one in jobs)
    environment = dict(environment)
    with ended(environment):
        try:
            done = subprocess.run(
                [sys.executable, str(DRIVER), job],
                env=environment,
                cwd=gate.parent,
                capture_output=True,
                text=True,
                timeout=DRIVER_S,
                check=False,
            )
        except subprocess.TimeoutExpired as e:
            arrived = sorted(path.name for path in gate.iterdir())
            pytest.fail(f"a driver did not end within {DRIVER_S} s; {arrived} of {jobs}:\n{e.stderr!r:.3000}")
    if done.returncode == 1 and NOT_BEGUN in done.stderr:
        return False
    assert done.returncode == (-9 if is_killed else 0), done.stderr[-5000:]
    assert len(list(gate.iterdir())) == len(jobs) * is_killed
    return True


def killed(master: str, moment: str, work: Path, environment: dict[str, str]) -> None:
    """Kills one driver after the other, each of which first has to end what the one before has left."""
    cells = [
        Cell(kind, age, moment, work / f"{kind} {age}")
        for i, kind in enumerate(KINDS)
        for j, age in enumerate(AGES)
        if ALL or (i + j + MOMENTS.index(moment)) % 2 == 0
    ]
    for cell in cells:
        if cell.kind == "batch":
            cell.fill()
        elif cell.kind == "available now" and cell.is_later:
            cell.fill(200)
    before = [cell.job() for cell in cells if cell.kind == "available now" and cell.is_later]
    again = 0

    def until_it_begins(jobs: Callable[[], list[dict[str, Any]]]) -> None:
        nonlocal again
        while not run(master, jobs(), work / "gates" / str(uuid.uuid4()), environment):
            again += 1
            assert again <= 5 * (KILLS + 2)

    if before:
        until_it_begins(lambda: before)
    for kill in range(KILLS):
        until_it_begins(lambda kill=kill: [cell.dying_job(kill) for cell in cells])  # type: ignore[misc]
    until_it_begins(lambda: [cell.job() for cell in cells])
    if again:
        print(f"{again} drivers did not begin")
    for cell in cells:
        print(
            f"{master[:5]}: {moment}, {cell.age}, {cell.kind}: {KILLS} kills, {cell.rows} records, {cell.check()} found"
        )


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("moment", ON_ONE_MACHINE)
def test_a_driver_is_killed(moment: str, environment: dict[str, str], tmp_path: Path) -> None:
    killed("local[2]", moment, tmp_path, environment)


@pytest.mark.cluster
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("moment", ON_A_CLUSTER)
def test_a_driver_of_a_cluster_is_killed(
    moment: str, environment: dict[str, str], cluster: str, tmp_path: Path
) -> None:
    killed(cluster, moment, tmp_path, environment)
