"""A Spark application as a process of its own, with the environment that a bucket needs. Run by test_s3.py.

It reads topic t below a URL, by a batch query and then by a stream. The one argument is JSON: master; url;
batch, the file for the rows of the batch query; stream, the directory for a file of each micro-batch.
"""

import json
import sys
from pathlib import Path
from typing import Any

import kstore.spark
from tests.spark.application import session


def rows_of(frame: Any) -> list[list[Any]]:
    rows = frame.selectExpr("partition", "offset", "unix_millis(timestamp)", "hex(value)").collect()
    return [list(row) for row in rows]


def main(job: dict[str, Any]) -> None:
    spark = session(job["master"], {"spark.sql.session.timeZone": "UTC", "spark.task.maxFailures": "4"})
    kstore.spark.register(spark)
    frame = spark.read.format("kstore").option("subscribe", "t").load(job["url"])
    Path(job["batch"]).write_text(json.dumps(rows_of(frame.repartition(2))))
    options = {"subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "600"}

    def take(batch: Any, number: int) -> None:
        Path(job["stream"], f"{number}.json").write_text(json.dumps(rows_of(batch)))

    stream = spark.readStream.format("kstore").options(**options).load(job["url"]).writeStream
    query = stream.foreachBatch(take).trigger(processingTime="1 second").start()
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
