"""Spark Connect: the data source through a server of its own. It runs in a process of its own, and so does
its Java."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.datasource]
LACKING = [
    n for n in ("grpc", "grpc_status", "google.rpc") if importlib.util.find_spec(n.split(".")[0]) is None
]
PROGRAM = """
import faulthandler, json, sys, time, warnings
faulthandler.dump_traceback_later(200, exit=True)
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.driver.host", "127.0.0.1").getOrCreate()
import kstore.spark
broker, out = sys.argv[1:]
kstore.spark.register(spark)
told = {"connect": "connect" in type(spark).__module__}
frame = spark.read.format("kstore").options(path=broker, subscribe="events").load()
told["count"] = frame.count()
told["offsets"] = frame.where("partition = 0").selectExpr("max(offset)").first()[0]
told["mapInArrow"] = kstore.spark.dataframe(spark, broker, "events", via="mapInArrow").count()
frame.selectExpr("key", "value").write.format("kstore").mode("append").options(path=out, topic="t").save()
told["written"] = kstore.spark.dataframe(spark, out, "t", columns=["offset"]).count()
lag = kstore.spark.LagListener(broker)
spark.streams.addListener(lag)
stream = spark.readStream.format("kstore").options(path=broker, subscribe="events", startingOffsets="earliest").load()
writing = stream.writeStream.format("noop").option("checkpointLocation", out + ".checkpoint").queryName("all")
writing.trigger(availableNow=True).start().awaitTermination()
while "all" not in lag.queries or lag.queries["all"].is_active:  # removeListener hangs while an event is on its way
    time.sleep(0.1)
spark.streams.removeListener(lag)
told["lag"] = lag.queries["all"].offsets, lag.queries["all"].ms, len(lag.queries["all"].partitions)
try:
    spark.read.format("kstore").options(path=broker, subscribe="nothing").load().count()
except Exception as e:
    told["error"] = str(e)
print(json.dumps(told))
spark.stop()
"""


@pytest.mark.skipif(bool(LACKING), reason=f"{', '.join(LACKING)} not installed: pip install pyspark[connect]")
def test_through_a_server(broker: Path, tmp_path: Path) -> None:
    repository = str(Path(__file__).parents[2])
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([repository, os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(broker), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert "KSTORE_TOPIC_NOT_FOUND: topic nothing" in told.pop("error")
    assert told.pop("lag") == [0, 0, 2]
    assert told == {"connect": True, "count": 146, "offsets": 103, "mapInArrow": 146, "written": 146}
