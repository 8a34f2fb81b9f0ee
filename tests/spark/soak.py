"""Programs of test_soak.py: a driver that runs an AvailableNow query every ten seconds, another writer of its
topic.

Both run until the file `stop` is there, or they are killed. The first argument says which, the second is
JSON.
"""

import json
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import kstore.spark
from tests.spark.application import session

EVERY_S = 10


def driver(job: dict[str, Any]) -> None:
    """A run that fails is followed by the next. The last begins after `stop` was there."""
    from pyspark.errors import PySparkException

    spark = session(job["master"])
    kstore.spark.register(spark)
    read = {
        "path": job["data"],
        "subscribe": "in",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "500",
    }
    write = {"path": job["out"], "topic": "out", "checkpointLocation": job["checkpoint"]}
    last = False
    while not last:
        begun, last = time.monotonic(), Path(job["stop"]).exists()
        rows = spark.readStream.format("kstore").options(**read).load()
        query = rows.select("value", "partition").writeStream.format("kstore").options(**write)
        try:
            query.trigger(availableNow=True).start().awaitTermination()
            print("run", flush=True)
        except PySparkException:
            print("failed", traceback.format_exc(), flush=True)
            last = False
        if not last:
            time.sleep(max(0.0, begun + EVERY_S - time.monotonic()))
    spark.stop()


def other(job: dict[str, Any]) -> None:
    """Appends records of its own to the topic, holds its partitions for up to three seconds, and notes what
    was done."""
    number = 0
    with Path(job["noted"]).open("a", encoding="utf-8") as noted:
        while not Path(job["stop"]).exists():
            with kstore.open(Path(job["out"], f"out-{random.randrange(2)}"), "a", wait=60) as log:
                for _ in range(random.randint(1, 5)):
                    name = f"{job['name']}-{number}"
                    log.append(name.encode())
                    noted.write(f"{name}\n")
                    noted.flush()
                    number += 1
                    time.sleep(random.uniform(0, 0.6))
            time.sleep(random.uniform(0, 2))


if __name__ == "__main__":
    {"driver": driver, "other": other}[sys.argv[1]](json.loads(sys.argv[2]))
