"""Makes an archive of the classes that Spark loads, with which Java starts in half of the time; for the
nightly tests."""

import os
import tempfile
from pathlib import Path

import kstore.spark
from tests.helpers.java import ARCHIVE, FAST
from tests.spark.application import environment, missing, session


def main() -> None:
    """Without Spark, or a Java that makes archives, it is an empty file."""
    if missing() is not None:
        ARCHIVE.touch()
        return
    made = ARCHIVE.with_suffix(".tmp")
    made.unlink(missing_ok=True)
    os.environ.update(environment())
    del os.environ["JAVA_TOOL_OPTIONS"]  # which is for other Javas, too
    os.environ["SPARK_SUBMIT_OPTS"] = f"{FAST} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
    with tempfile.TemporaryDirectory() as directory:
        spark = session("local[2]")
        kstore.spark.register(spark)
        rows = spark.createDataFrame([(b"k", b"v")] * 100, "key binary, value binary")
        rows.repartition(2).write.format("kstore").option("topic", "t").mode("append").save(directory)
        read = spark.read.format("kstore").option("subscribe", "t").load(directory)
        read.groupBy("key").count().collect()
        stream = spark.readStream.format("kstore").option("subscribe", "t").load(directory).writeStream
        stream = stream.format("noop").option("checkpointLocation", str(Path(directory, "checkpoint")))
        stream.trigger(availableNow=True).start().awaitTermination()
        java = spark.sparkContext._gateway.proc
        spark.stop()
        java.stdin.close()  # it ends, and writes the archive
        java.wait()
    if made.exists():
        made.replace(ARCHIVE)
    else:
        ARCHIVE.touch()


if __name__ == "__main__":
    main()
