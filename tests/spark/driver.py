"""A Spark application as a process of its own, which may be killed in the midst of commits. Run by test_drivers.py.

It runs several cells, each with logs of its own. The one argument is JSON: master; job_count; cells: of each its
kind; data (the log directory that is read), out, checkpoint; jobs (which ones of job_count a batch cell runs); death: which
commit, after which of its steps, and whether staged files are to be moved into the log; or none. `gate` is a directory in
which every cell that has come to its death says so: when all have, they are killed, with the driver's Python and its Java.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from kstore.spark.datasource import KStoreDataSource
from kstore.spark.sink import KStoreStreamWriter, KStoreWriter, batch_writer, stream_writer
from tests.spark.application import session


@dataclass
class Death:
    """How a cell dies, and with whom."""

    name: str
    commit: int
    step: int
    moved: bool
    gate: str
    cell_count: int
    pids: list[int]

    def come(self) -> NoReturn:
        Path(self.gate, self.name).touch()
        while len(os.listdir(self.gate)) < self.cell_count:  # noqa: PTH208
            time.sleep(0.01)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # so that none sees another's death
            for pid in self.pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("alive")


def dying(death: Death, commit: Callable[[], None]) -> NoReturn:
    """Commits, and dies after so many steps: each write of the journal is one, and each staged log."""
    from kstore.spark import transfer
    from kstore.spark.journal import Journal

    steps = 0

    def counted(real: Any) -> Any:
        def call(*arguments: Any) -> None:
            nonlocal steps
            real(*arguments)
            steps += 1
            if steps == death.step:
                death.come()

        return call

    if death.step > 0:
        if death.moved:
            transfer._LARGE = 0
        transfer.Transfer.take = counted(transfer.Transfer.take)  # type: ignore[method-assign]
        Journal._write = counted(Journal._write)  # type: ignore[method-assign]
        commit()
    death.come()


def dying_source(death: Death) -> type[KStoreDataSource]:
    class Batch(KStoreWriter):
        def commit(self, messages: Any) -> None:
            if self.transaction.name == f"job {death.commit}":
                dying(death, lambda: KStoreWriter.commit(self, messages))
            KStoreWriter.commit(self, messages)

    class Stream(KStoreStreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            if batchId == death.commit:
                dying(death, lambda: KStoreStreamWriter.commit(self, messages, batchId))
            KStoreStreamWriter.commit(self, messages, batchId)

    class Source(KStoreDataSource):
        @classmethod
        def name(cls) -> str:
            return death.name

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Batch(batch_writer(self.options, schema, overwrite=overwrite).target)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return Stream(stream_writer(self.options, schema).target)

    return Source


def begun(spark: Any, cell: dict[str, Any], job_count: int, sink: str) -> Callable[[], None]:
    """Begins one cell; gives what is left to do, which may take place in a thread."""
    read = {"path": cell["data"], "subscribe": "in", "startingOffsets": "earliest"}
    write = {"path": cell["out"], "topic": "out", "numPartitions": "2"}
    columns = ["value", "partition", "timestamp"]
    if cell["kind"] == "batch":
        rows = spark.read.format("kstore").options(**read, minPartitions="2").load().select(*columns)

        def batch() -> None:
            classic = spark._jvm.org.apache.spark.sql.classic
            classic.SparkSession.setActiveSession(
                spark._jsparkSession
            )  # else a thread finds no source in Python
            for number in cell["jobs"]:
                own = rows.where(f"cast(cast(value AS string) AS int) % {job_count} = {number}")
                own.write.format(sink).mode("append").options(**write, txnId=f"job {number}").save()

        return batch
    rows = spark.readStream.format("kstore").options(**read, maxOffsetsPerTrigger="200").load()
    writer = rows.select(*columns).writeStream.format(sink)
    writer = writer.options(**write, checkpointLocation=cell["checkpoint"])
    if cell["kind"] == "available now":
        query = writer.trigger(availableNow=True).start()
        return query.awaitTermination  # type: ignore[no-any-return]
    query = writer.start()

    def stream() -> None:
        query.processAllAvailable()
        query.stop()

    return stream


def main(job: dict[str, Any]) -> None:
    spark = session(job["master"])
    pids = [spark.sparkContext._gateway.proc.pid, os.getpid()]
    cells, sinks = job["cells"], []
    for number, cell in enumerate(cells):
        sinks.append("kstore" if cell["death"] is None else f"dying_{number}")
        if cell["death"] is not None:
            death = Death(sinks[-1], **cell["death"], gate=job["gate"], cell_count=len(cells), pids=pids)
            spark.dataSource.register(dying_source(death))

    def live(cell: dict[str, Any], rest: Callable[[], None]) -> None:
        try:
            rest()
            if cell["death"] is not None:
                raise AssertionError("alive")
        except BaseException:  # noqa: BLE001 - whatever it is
            print(cell, traceback.format_exc(), file=sys.stderr, flush=True)
            os._exit(1)  # the others would wait for it

    with ThreadPoolExecutor(len(cells)) as pool:
        for cell, sink in zip(
            cells, sinks, strict=True
        ):  # each is begun when the one before has come to its end or death
            done = pool.submit(live, cell, begun(spark, cell, job["job_count"], sink))
            while not done.done() and not Path(job["gate"], sink).exists():
                time.sleep(0.01)
            if done.done():
                done.result()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
