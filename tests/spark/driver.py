"""A Spark application as a process of its own, which is killed within commits. Run by test_drivers.py.

It copies records, each copy from logs of its own into logs of its own, all at once. The one argument is JSON:
master; job_count; arrived, a directory; copies: of each its kind, data (the log directory that is read), out,
checkpoint, jobs (which ones of job_count a batch copy runs), and kill: in which commit, at which system call
of it (0: before it), and whether staged files are to be moved into the log; or null. A copy that reaches its
kill makes a file in `arrived`; when all have, they are killed, with the driver's Python and its Java.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import kstore.spark
from kstore.spark.writing import transfer
from kstore.testing import failing
from tests.spark.application import session


def die(kill: dict[str, Any]) -> NoReturn:
    """Once all copies have reached their kill: of the driver, then of this process."""
    Path(kill["arrived"], kill["name"]).touch()
    while len(os.listdir(kill["arrived"])) < kill["count"]:  # noqa: PTH208
        time.sleep(0.01)
    for number in (signal.SIGSTOP, signal.SIGKILL):  # so that none notices another's end
        for pid in kill["pids"]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("alive")


def commit_and_die(kill: dict[str, Any], commit: Callable[[], None]) -> NoReturn:
    """The commit runs in a child, as this process has to wait for the other copies."""
    if kill["call"]:
        child = os.fork()
        if child == 0:
            try:
                if kill["moved"]:
                    transfer._LARGE = 0
                with failing(kill["call"], how="kill"):
                    commit()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    die(kill)


def killed_in_commit(writer: Any, kill: dict[str, Any]) -> Any:
    """A writer whose commit of that number, or of the job of that number, is killed."""
    commit = writer.commit

    def own(messages: Any, *batch: int) -> None:
        number = batch[0] if batch else int(writer.transaction.name.removeprefix("job "))
        if number == kill["commit"]:
            commit_and_die(kill, lambda: commit(messages, *batch))
        commit(messages, *batch)

    writer.commit = own
    return writer


def source_to_kill(kill: dict[str, Any]) -> type[kstore.spark.KStoreDataSource]:
    class Source(kstore.spark.KStoreDataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return str(kill["name"])

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return killed_in_commit(kstore.spark.KStoreDataSource.writer(self, schema, overwrite), kill)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return killed_in_commit(kstore.spark.KStoreDataSource.streamWriter(self, schema, overwrite), kill)

    return Source


def begun(spark: Any, copy: dict[str, Any], job_count: int, sink: str) -> Callable[[], None]:
    """Begins one copy; returns what is left to do, which may take place in a thread."""
    read = {"path": copy["data"], "subscribe": "in", "startingOffsets": "earliest"}
    write = {"path": copy["out"], "topic": "out", "numPartitions": "2"}
    columns = ["value", "partition", "timestamp"]
    if copy["kind"] == "batch":
        rows = spark.read.format("kstore").options(**read, minPartitions="2").load().select(*columns)

        def batch() -> None:
            classic = spark._jvm.org.apache.spark.sql.classic  # else a thread finds no source in Python
            classic.SparkSession.setActiveSession(spark._jsparkSession)
            for number in copy["jobs"]:
                own = rows.where(f"cast(cast(value AS string) AS int) % {job_count} = {number}")
                own.write.format(sink).mode("append").options(**write, txnId=f"job {number}").save()

        return batch
    rows = spark.readStream.format("kstore").options(**read, maxOffsetsPerTrigger="200").load()
    writer = rows.select(*columns).writeStream.format(sink)
    writer = writer.options(**write, checkpointLocation=copy["checkpoint"])
    if copy["kind"] == "available now":
        return writer.trigger(availableNow=True).start().awaitTermination  # type: ignore[no-any-return]
    query = writer.start()

    def stream() -> None:
        query.processAllAvailable()
        query.stop()

    return stream


def main(job: dict[str, Any]) -> None:
    spark = session(job["master"])
    kstore.spark.register(spark)
    pids = [spark.sparkContext._gateway.proc.pid, os.getpid()]
    copies, sinks = job["copies"], []
    for number, copy in enumerate(copies):
        sinks.append("kstore" if copy["kill"] is None else f"kill_{number}")
        if copy["kill"] is not None:
            own = {"name": sinks[-1], "arrived": job["arrived"], "count": len(copies), "pids": pids}
            spark.dataSource.register(source_to_kill(copy["kill"] | own))

    def live(copy: dict[str, Any], rest: Callable[[], None]) -> None:
        try:
            rest()
            if copy["kill"] is not None:
                raise AssertionError("alive")
        except BaseException:  # noqa: BLE001 - whatever it is
            print(copy, traceback.format_exc(), file=sys.stderr, flush=True)
            os._exit(1)  # the others would wait for it

    with ThreadPoolExecutor(len(copies)) as pool:
        for copy, sink in zip(
            copies, sinks, strict=True
        ):  # each begins when the one before has ended or arrived
            done = pool.submit(live, copy, begun(spark, copy, job["job_count"], sink))
            while not done.done() and not Path(job["arrived"], sink).exists():
                time.sleep(0.01)
            if done.done():
                done.result()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
