"""What the applications of tests have in common that are processes of their own: driver.py, soak.py and archive.py."""

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


def session(master: str) -> Any:
    """A session that begins soon, with kstore."""
    from pyspark.sql import SparkSession

    import kstore.spark

    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.codegen.wholeStage", "false")  # takes longer than it saves here
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    kstore.spark.register(spark)
    return spark
