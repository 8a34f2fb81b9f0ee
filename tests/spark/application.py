"""What Spark applications of tests have in common: the session of the tests, driver.py and archive.py."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from kstore.spark.java import provide
from tests.helpers.java import options

REPOSITORY = Path(__file__).parents[2]


def missing() -> str | None:
    """What Spark lacks here; None if it can run."""
    for name in ("pyspark", "pyarrow", "pandas"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    return provide()


def environment() -> dict[str, str]:
    """The environment of such a process, and of the cluster that it uses."""
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": options(),
    }


def session(master: str, more: dict[str, str] | None = None) -> Any:
    """A session that starts soon, with this configuration too."""
    from pyspark.sql import SparkSession

    own = {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",  # takes longer than it saves here
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.authenticate.socketTimeout": "120s",  # the default is 15 s
    }
    builder = SparkSession.builder.master(master)
    for name, value in (own | (more or {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
