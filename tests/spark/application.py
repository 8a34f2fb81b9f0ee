"""What the applications of tests have in common that are processes of their own: driver.py and soak.py."""

import os
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """The environment of such a process, and of the cluster that it uses. They do not live long, so Java optimizes little."""
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
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
