"""Spark's own source and sink for Kafka, with `kstore.serve` as the broker."""

import json
import time
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import run_python
from tests.kafka.jvm import BUILD, KafkaMissingError, fetch_jars
from tests.spark import application

JARS = BUILD / "spark-kafka"
NEEDED = "spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2"
PROGRAM = """
import json, sys
from tests.spark.application import session

address, checkpoint, time, *jars = sys.argv[1:]
spark = session("local[2]", {"spark.jars": ",".join(jars)})

def options(of, **more):
    return of.format("kafka").options(**{"kafka.bootstrap.servers": address, **more})

def rows(frame):
    text = frame.selectExpr("partition", "offset", "string(key)", "string(value)")
    return sorted(map(list, text.collect()))

def copied():
    stream = options(spark.readStream, subscribe="orders", startingOffsets="earliest").load()
    stream = options(stream.select("key", "value").writeStream, topic="copy", checkpointLocation=checkpoint)
    stream.trigger(availableNow=True).start().awaitTermination()

whole = options(spark.read, subscribe="orders").load()
starts, ends = (json.dumps({"orders": each}) for each in ({"0": -2, "1": 2}, {"0": 3, "1": -1}))
part = options(spark.read, subscribe="orders", startingOffsets=starts, endingOffsets=ends)
since = options(spark.read, subscribePattern="ord.*", startingTimestamp=time).load()
print(json.dumps({"whole": rows(whole), "part": rows(part.load()), "since": rows(since)}))
copied()
more = spark.createDataFrame([("k", "later")], "key string, value string")
options(more.write, topic="orders").save()
copied()
"""


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_spark_reads_and_writes(tmp_path: Path) -> None:
    if (why := application.missing()) is not None:
        pytest.skip(why)
    from pyspark import __version__

    if __version__ < "4.2":
        pytest.skip("the source is that of Spark 4.2")
    try:
        fetch_jars(Path(__file__).parent / "kafka-source.xml", JARS, f"-DincludeArtifactIds={NEEDED}")
    except KafkaMissingError as e:
        pytest.skip(f"Spark's source for Kafka: {e}")
    with kstore.LogStore(tmp_path / "data", mode="a") as store, kstore.serve(store) as server:
        store.create_topic("orders", partitions=2)
        store.create_topic("copy")
        expected, first = [], time.time_ns() // 1_000_000 - 100
        for number in range(100):
            key, value = f"k{number}", f"v{number}"
            partition, offset = number % 2, number // 2
            log = store.log("orders", partition)
            log.append(value.encode(), key=key.encode(), timestamp=first + number)
            expected.append([partition, offset, key, value])
        expected.sort()
        done = run_python(
            PROGRAM,
            server.bootstrap_servers,
            tmp_path / "checkpoint",
            first + 50,
            *sorted(JARS.glob("*.jar")),
            timeout=600,
            **application.environment(),
        )
        assert done.returncode == 0, done.stderr[-5000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["whole"] == expected
        assert found["part"] == [row for row in expected if (row[1] < 3 if row[0] == 0 else row[1] >= 2)]
        assert found["since"] == [row for row in expected if row[1] >= 25]
        values = [record.value.decode() for record in store.log("copy")]
        assert sorted(values[:-1]) == sorted(row[3] for row in expected)
        assert values[-1] == "later"
