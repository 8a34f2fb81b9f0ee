"""One Spark session for all tests; they are skipped if pyspark or Java is missing.

`--spark-master local`, the default, is a session in this process. `cluster` starts a standalone cluster of
two workers and runs the session there. `spark://…` is a cluster on this machine: tests share files with its
executors.
"""

import importlib.util
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark import application

REPOSITORY = Path(__file__).parents[2]
MISSING = application.missing()
DATA_SOURCES = MISSING is None and importlib.util.find_spec("pyspark.sql.datasource") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") and MISSING is not None:
            item.add_marker(pytest.mark.skip(reason=MISSING))
        elif item.get_closest_marker("datasource") and not DATA_SOURCES:
            item.add_marker(pytest.mark.skip(reason="Spark 3.5 has no data sources in Python"))


@pytest.fixture(scope="session")
def broker() -> Path:
    """A log directory that a real broker wrote."""
    return REPOSITORY / "tests" / "golden" / "data" / "broker" / "data"


@pytest.fixture(scope="session")
def master(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the session runs, in the environment that executors need."""
    if MISSING is not None:
        pytest.skip(MISSING)
    own = application.environment()
    os.environ |= {name: own[name] for name in ("PYTHONPATH", "PYSPARK_PYTHON")}
    given = pytestconfig.getoption("spark_master")
    if given == "cluster":
        from examples.cluster import standalone

        with standalone(tmp_path_factory.mktemp("cluster"), own, worker_memory="1g") as url:
            yield url
    else:
        yield "local[2,3]" if given == "local" else given


@pytest.fixture(scope="session")
def spark(master: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    own = {
        "spark.driver.memory": "2g",
        "spark.executor.memory": "1g",
        "spark.task.maxFailures": "3",  # on a cluster; local[2,3] says the same
        "spark.python.unix.domain.socket.enabled": "false",  # as users have it by default
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = application.session(master, own)
    yield session
    session.stop()
