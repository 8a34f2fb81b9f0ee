"""A Spark application as a process of its own, which may kill itself in the midst of a commit. Run by test_drivers.py.

The one argument is JSON: master; kind; data (the log directory that is read), out, checkpoint; jobs (which ones of
job_count a batch driver runs); death: which commit, after which of its steps, and whether staged files are to be moved into
the log; or none.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from pyspark.sql import SparkSession

import kstore.spark
from kstore.spark.datasource import KStoreDataSource
from kstore.spark.sink import KStoreStreamWriter, KStoreWriter, batch_writer, stream_writer


def dying(death: dict[str, Any], pids: list[int], commit: Callable[[], None]) -> NoReturn:
    """Commits, and kills the driver after so many steps: each write of the journal is one, and each staged log."""
    from kstore.spark import transfer
    from kstore.spark.journal import Journal

    steps = 0

    def die() -> None:
        for pid in [*pids, os.getpid()]:
            os.kill(pid, signal.SIGKILL)

    def counted(real: Any) -> Any:
        def call(*arguments: Any) -> None:
            nonlocal steps
            real(*arguments)
            steps += 1
            if steps == death["step"]:
                die()

        return call

    if death["step"] > 0:
        if death["moved"]:
            transfer._LARGE = 0
        transfer.Transfer.take = counted(transfer.Transfer.take)  # type: ignore[method-assign]
        Journal._write = counted(Journal._write)  # type: ignore[method-assign]
        commit()
    die()
    raise AssertionError("alive")


def dying_source(death: dict[str, Any], pids: list[int]) -> type[KStoreDataSource]:
    class Batch(KStoreWriter):
        def commit(self, messages: Any) -> None:
            if self.transaction.name == f"job {death['commit']}":
                dying(death, pids, lambda: KStoreWriter.commit(self, messages))
            KStoreWriter.commit(self, messages)

    class Stream(KStoreStreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            if batchId == death["commit"]:
                dying(death, pids, lambda: KStoreStreamWriter.commit(self, messages, batchId))
            KStoreStreamWriter.commit(self, messages, batchId)

    class Source(KStoreDataSource):
        @classmethod
        def name(cls) -> str:
            return "kstore_dying"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Batch(batch_writer(self.options, schema, overwrite=overwrite).target)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return Stream(stream_writer(self.options, schema).target)

    return Source


def main(job: dict[str, Any]) -> None:
    spark = (
        SparkSession.builder.master(job["master"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.codegen.wholeStage", "false")  # takes longer than it saves here
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    kstore.spark.register(spark)
    sink, death = "kstore", job["death"]
    if death is not None:
        sink = "kstore_dying"
        spark.dataSource.register(dying_source(death, [spark.sparkContext._gateway.proc.pid, os.getpid()]))
    read = {"path": job["data"], "subscribe": "in", "startingOffsets": "earliest"}
    write = {"path": job["out"], "topic": "out", "numPartitions": "2"}
    columns = ["value", "partition", "timestamp"]
    if job["kind"] == "batch":
        rows = spark.read.format("kstore").options(**read, minPartitions="2").load().select(*columns)
        for number in job["jobs"]:
            own = rows.where(f"cast(cast(value AS string) AS int) % {job['job_count']} = {number}")
            own.write.format(sink).mode("append").options(**write, txnId=f"job {number}").save()
    else:
        rows = spark.readStream.format("kstore").options(**read, maxOffsetsPerTrigger="200").load()
        begun = rows.select(*columns).writeStream.format(sink)
        begun = begun.options(**write, checkpointLocation=job["checkpoint"])
        if job["kind"] == "stream":
            query = begun.start()
            query.processAllAvailable()
            query.stop()
        else:
            begun.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
