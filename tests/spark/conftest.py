"""One Spark session for all tests; the tests are skipped where pyspark or Java is missing.

It is local[2], or with KSTORE_SPARK_MASTER=cluster one on a standalone cluster of two workers, which is started and ended
here. KSTORE_SPARK_MASTER=spark://… takes a cluster that is there, on this machine: tests share files with its executors.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.application import missing

REPOSITORY = Path(__file__).parents[2]
BROKER = REPOSITORY / "tests" / "golden" / "data" / "broker" / "data"


MISSING = missing()
DATA_SOURCES = MISSING is None and importlib.util.find_spec("pyspark.sql.datasource") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") and MISSING is not None:
            item.add_marker(pytest.mark.skip(reason=MISSING))
        elif item.get_closest_marker("datasource") and not DATA_SOURCES:
            item.add_marker(pytest.mark.skip(reason="Spark 3.5 has no data sources in Python"))


@pytest.fixture(scope="session")
def broker() -> Path:
    return BROKER


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the session runs; with the environment that executors need."""
    if MISSING is not None:
        pytest.skip(MISSING)
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    given = os.environ.get("KSTORE_SPARK_MASTER") or "local[2,3]"
    if given != "cluster":
        yield given
        return
    from examples.cluster import standalone

    work = tmp_path_factory.mktemp("cluster")
    with standalone(work, dict(os.environ), worker_memory="1g") as url:
        yield url


@pytest.fixture(scope="session")
def spark(master: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import warnings

    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = (
            SparkSession.builder.master(master)
            .appName("kstore-tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "2g")
            .config("spark.executor.memory", "1g")
            .config("spark.task.maxFailures", "3")  # of a cluster; local[2,3] says it, too
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.python.authenticate.socketTimeout", "120s")  # 15 s are too few beside others
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
