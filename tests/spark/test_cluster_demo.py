"""`make demo-cluster`: examples/pipeline.py on two workers, of which no process is left, however it ends."""

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from examples.cluster import marked
from tests.helpers.effort import SEED, some
from tests.helpers.java import options

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.cluster, pytest.mark.timeout(600)]
DEMO = Path(__file__).parents[2] / "examples" / "cluster.py"
OWN = "KSTORE_TEST_DEMO"
INTERRUPTED = [
    (signal.SIGINT, "records landed"),
    (signal.SIGTERM, "records landed"),
    (signal.SIGINT, "a master and two workers"),
]


def start(mark: str, work: Path) -> "subprocess.Popen[str]":
    environment = os.environ | {OWN: mark, "TMPDIR": str(work), "PYTHONUNBUFFERED": "1"}
    environment["JAVA_TOOL_OPTIONS"] = options()
    return subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, str(DEMO)],  # shells ignore it in the background
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def test_to_the_end(tmp_path: Path) -> None:
    mark = str(uuid.uuid4())
    out, _ = start(mark, tmp_path).communicate(timeout=500)
    assert "\n2 executors did the tasks\n" in out
    assert "\nequal to what is computed without Spark: sizes, windows in the log, windows in Parquet\n" in out
    assert marked(OWN, mark) == []


@pytest.mark.parametrize(("number", "line"), some(INTERRUPTED, 1, "demo"))
def test_it_is_interrupted(number: int, line: str, tmp_path: Path) -> None:
    mark = str(uuid.uuid4())
    process = start(mark, tmp_path)
    assert process.stdout is not None
    for printed in process.stdout:
        if line in printed:
            break
    else:
        pytest.fail("the demo ended before")
    assert len(marked(OWN, mark)) >= 3
    time.sleep(random.Random(SEED).uniform(0, 2))  # at any moment after that
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode != 0
    assert marked(OWN, mark) == []
