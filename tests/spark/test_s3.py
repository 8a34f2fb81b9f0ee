"""A standalone cluster of Spark whose two workers have directories of their own, and read from S3, as moto's
server is one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import kstore
import kstore.spark
from examples.cluster import standalone
from tests.helpers.s3 import bucket_of
from tests.helpers.waiting import until
from tests.spark import application

pytestmark = [
    pytest.mark.spark,
    pytest.mark.datasource,
    pytest.mark.cluster,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
]
s3fs = pytest.importorskip("s3fs")
fsspec = pytest.importorskip("fsspec")
RECORDS = 4000  # of each of two partitions


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    with kstore.LogStore(path, mode="a", internal_segment_bytes=1 << 20) as store:
        store.create_topic("t", 2)
        for partition in (0, 1):
            log = store.log("t", partition)
            for first in range(0, RECORDS, 100):
                log.extend([b"%d %01000d" % (partition, i) for i in range(first, first + 100)])
    return path


@pytest.fixture
def bucket(logs: Path) -> Iterator[dict[str, str]]:
    """The environment of processes that read the bucket."""
    with bucket_of(logs, "logs") as options:
        yield {
            "AWS_ACCESS_KEY_ID": options["key"],
            "AWS_SECRET_ACCESS_KEY": options["secret"],
            "AWS_DEFAULT_REGION": "eu-west-1",
            "FSSPEC_S3_ENDPOINT_URL": options["endpoint_url"],
        }


def test_a_stream_lists_a_bucket_again(
    logs: Path, bucket: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType

    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": bucket["FSSPEC_S3_ENDPOINT_URL"]})
    for name, value in bucket.items():
        monkeypatch.setenv(name, value)
    given = {"path": "s3://kstore/logs", "subscribe": "t", "startingOffsets": "earliest"}
    own = kstore.spark.KStoreDataSource(given).streamReader(StructType([StructField("value", BinaryType())]))
    end = own.latestOffset(own.initialOffset())
    with kstore.open(logs / "t-0", "a") as log:
        log.append(b"more")
    for file in (logs / "t-0").iterdir():
        s3fs.S3FileSystem().put_file(str(file), f"kstore/logs/t-0/{file.name}")
    now = 1.0
    more = own.latestOffset(end)
    assert more["t"] == {"0": RECORDS + 1, "1": RECORDS}
    assert [batch.num_rows for task in own.partitions(end, more) for batch in own.read(task)] == [1]


def workers(url: str) -> list[int]:
    """The processes of the workers of a master."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"org.apache.spark.deploy.worker.Worker" in words and url.encode() in words:
                found.append(int(entry.name))
    return found


def children(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [own for child in listed.stdout.split() for own in (int(child), *children(int(child)))]


def test_a_cluster_without_a_shared_disk(logs: Path, bucket: dict[str, str], tmp_path: Path) -> None:
    """Its rows are those of the local logs, of a batch query and of a stream, of which a worker is killed."""
    work, stream = tmp_path / "cluster", tmp_path / "stream"
    work.mkdir()
    stream.mkdir()
    environment = application.environment() | bucket
    log = tmp_path / "driver.log"
    with log.open("wb") as errors, standalone(work, environment, worker_memory="1g") as master:
        job = {
            "master": master,
            "url": "s3://kstore/logs",
            "batch": str(tmp_path / "batch.json"),
            "stream": str(stream),
        }
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.remote_driver", json.dumps(job)],
            env=environment,
            cwd=application.REPOSITORY,
            stderr=errors,
        )
        until(lambda: (stream / "2.json").exists() or driver.poll() is not None, 400)
        assert driver.poll() is None, log.read_text()[-5000:]
        killed, living = workers(master)
        place = (Path("/proc") / str(living) / "cwd").readlink()
        for pid in (killed, *children(killed)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.wait(400)
    assert driver.returncode == 0, log.read_text()[-5000:]
    wanted = [
        [partition, record.offset, record.timestamp, (record.value or b"").hex().upper()]
        for partition in (0, 1)
        for record in kstore.open(logs / f"t-{partition}")
    ]
    assert sorted(json.loads(Path(job["batch"]).read_text())) == wanted
    batches = [json.loads(file.read_text()) for file in stream.iterdir()]
    assert len(batches) > 5
    assert sorted(row for batch in batches for row in batch) == wanted
    assert list(place.glob("kstore-*")) == []  # its tasks leave nothing
