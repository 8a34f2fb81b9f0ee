"""Logs in HDFS: a name node and a data node of Hadoop in one process, by hdfs-native."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from tests.helpers.waiting import until
from tests.kafka import jvm

pytestmark = pytest.mark.nightly
fsspec = pytest.importorskip("fsspec")
pytest.importorskip("hdfs_native")

RECORDS = 2_000


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the root."""
    jars = jvm.BUILD / "hdfs"
    try:
        jvm.fetch_jars(Path(__file__).parent / "hdfs" / "pom.xml", jars)
    except jvm.KafkaMissingError as e:
        pytest.skip(str(e))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    directory = tmp_path_factory.mktemp("hdfs")
    manager = ["org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-nomr", "-format"]
    manager += ["-nnport", str(port), "-datanodes", "1", "-D", "dfs.replication=1", "-writeConfig", "started"]
    command = [
        "java",
        "-Xmx256m",
        f"-Djava.io.tmpdir={directory}",
        "-XX:+UseSerialGC",
        "-cp",
        f"{jars}/*",
        *manager,
    ]
    with (
        (directory / "output").open("wb") as output,
        subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ) as cluster,
    ):
        try:
            until(lambda: (directory / "started").exists() or cluster.poll() is not None, 120)
            assert cluster.poll() is None, (directory / "output").read_text()
            yield f"hdfs://127.0.0.1:{port}"
        finally:
            cluster.kill()


@pytest.fixture
def local(tmp_path: Path) -> Path:
    path = tmp_path / "local/orders-0"
    append(path)
    return path


def append(path: Path) -> None:
    with kstore.open(path, "a", internal_segment_bytes=1 << 20) as log:
        for first in range(log.log_end_offset, log.log_end_offset + RECORDS, 100):
            log.extend([b"%01000d" % i for i in range(first, first + 100)])


def test_the_rows_are_those_of_the_local_log(hdfs: str, local: Path) -> None:
    files, root = fsspec.core.url_to_fs(f"{hdfs}/logs")
    files.put(str(local.parent), root, recursive=True)
    here = kstore.open(local)
    there = kstore.open(f"{hdfs}/logs/orders-0")
    assert there.scan().to_arrow() == here.scan().to_arrow()
    assert there.get(1_234) == here.get(1_234)
    assert kstore.LogStore(f"{hdfs}/logs").log("orders").get(3) == here.get(3)


def test_shipping(hdfs: str, local: Path) -> None:
    """A file of the remote log that is written again replaces the first one."""
    url = f"{hdfs}/shipped/orders-0"
    kstore.ship(local, url)
    append(local)
    rows = kstore.open(local).scan().to_arrow()
    end = kstore.open(local).segments[-1].base_offset
    kstore.ship(local, url, local_retention_ms=0)
    assert kstore.ship(local, url).shipped_bytes == 0
    assert kstore.open(local).log_start_offset == end
    assert kstore.open(local, remote=url).scan().to_arrow() == rows
    shutil.rmtree(local)
    assert kstore.open(url).log_end_offset == end
