"""Logs in S3, as moto's server is one."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kstore
from tests.helpers.processes import run_python
from tests.helpers.s3 import bucket_of

pytestmark = pytest.mark.nightly
s3fs = pytest.importorskip("s3fs")

RECORDS = 40_000


class Bucket(NamedTuple):
    """A log in S3, its copy on the disk, and the requests that the server got."""

    url: str
    options: dict[str, Any]
    local: Path
    requests: list[tuple[str, str]]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    local = tmp_path_factory.mktemp("s3") / "orders-0"
    with kstore.open(local, "a", segment_bytes=16 << 20) as log:
        for first in range(0, RECORDS, 1000):
            log.extend([b"%01000d" % i for i in range(first, first + 1000)])
    requests: list[tuple[str, str]] = []
    with bucket_of(local, "logs/orders-0") as options, pytest.MonkeyPatch.context() as patch:
        whole = s3fs.S3FileSystem._call_s3

        async def counted(own: Any, method: str, *args: Any, **given: Any) -> Any:
            requests.append((method, str(given.get("Range", ""))))
            return await whole(own, method, *args, **given)

        patch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
        yield Bucket("s3://kstore/logs/orders-0", options, local, requests)


def test_the_rows_are_those_of_the_local_log(bucket: Bucket) -> None:
    here = kstore.open(bucket.local)
    there = kstore.open(bucket.url, storage_options=bucket.options)
    assert there.scan().to_arrow() == here.scan().to_arrow()
    assert there.get(12_345) == here.get(12_345)


def test_requests_are_few(bucket: Bucket) -> None:
    bucket.requests.clear()
    log = kstore.open(bucket.url, storage_options=bucket.options)
    assert sum(len(batch) for batch in log.scan()) == RECORDS
    size = sum(segment.size for segment in log.segments)
    assert 0 < len(bucket.requests) <= 2 + 2 * len(log.segments) + size / (8 << 20), bucket.requests


def test_a_store_takes_one_listing(bucket: Bucket) -> None:
    bucket.requests.clear()
    store = kstore.LogStore(bucket.url.rpartition("/")[0], storage_options=bucket.options)
    assert store.log("orders").get(3) == kstore.open(bucket.local).get(3)
    assert [method for method, _ in bucket.requests if method.startswith("list")] == ["list_objects_v2"]


@pytest.mark.parametrize("change", ["replaced", "shortened", "removed"])
def test_an_object_that_changes_is_an_error(bucket: Bucket, change: str, tmp_path: Path) -> None:
    """The rows are those before the change as far as they were read, and no others."""
    log = kstore.open(bucket.url, storage_options=bucket.options)
    rows = [record.value for record in kstore.open(bucket.local)]
    assert log.get(3).value == rows[3]
    files = s3fs.S3FileSystem(**bucket.options)
    name = f"{0:020}.log"
    whole = (bucket.local / name).read_bytes()
    with kstore.open(tmp_path / "other-0", "a") as other:
        other.extend([b"other" * 200] * 16_000)
    try:
        if change == "removed":
            files.rm(f"kstore/logs/orders-0/{name}")
        elif change == "shortened":
            files.pipe(f"kstore/logs/orders-0/{name}", whole[: 1 << 20])
        else:
            files.pipe(f"kstore/logs/orders-0/{name}", (tmp_path / "other-0" / name).read_bytes())
        read: list[bytes | None] = []
        with pytest.raises((OSError, kstore.CorruptRecordError), match=rf"{bucket.url}/{name}"):
            read.extend(record.value for record in log)
        assert read == rows[: len(read)]
    finally:
        files.pipe(f"kstore/logs/orders-0/{name}", whole)


def test_shipping(bucket: Bucket, tmp_path: Path) -> None:
    """Segments of more than one part of an upload, two programs at once, and both parts as one log."""
    local, url = tmp_path / "orders-0", "s3://kstore/shipped/orders-0"
    shutil.copytree(bucket.local, local)
    end = kstore.open(local).segments[-1].base_offset
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(kstore.ship, local, url, storage_options=bucket.options) for _ in range(2)]
        assert [run.result().partitions["orders-0"].end for run in runs] == [end, end]
    bucket.requests.clear()
    again = kstore.ship(local, url, storage_options=bucket.options)
    assert again.shipped_bytes == 0
    assert len(bucket.requests) <= 3  # the listing, the newest manifest
    rows = kstore.open(local).scan().to_arrow()
    kstore.ship(local, url, local_retention_ms=0, storage_options=bucket.options)
    assert kstore.open(local).log_start_offset == end
    log = kstore.open(local, remote=url, storage_options=bucket.options)
    assert log.scan().to_arrow() == rows


def test_a_manifest_is_created_once(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another log is shipped to the same place in the moment before the first manifest."""
    url = "s3://kstore/both/orders-0"
    with kstore.open(tmp_path / "other-0", "a", segment_bytes=16 << 20) as log:
        for first in range(0, RECORDS, 1000):
            log.extend([b"x%0999d" % i for i in range(first, first + 1000)])
    kind = s3fs.S3FileSystem
    whole = kind._pipe_file

    async def second(own: Any, path: str, *args: Any, **given: Any) -> Any:
        if path.endswith(".shipped"):
            monkeypatch.undo()
            await asyncio.to_thread(run_ship, tmp_path / "other-0", url, bucket.options)
        return await whole(own, path, *args, **given)

    monkeypatch.setattr(kind, "_pipe_file", second)
    with pytest.raises(kstore.LogChangedError, match="another"):
        kstore.ship(bucket.local, url, storage_options=bucket.options)


def run_ship(local: Path, url: str, options: dict[str, Any]) -> None:
    """Ships in a process of its own: fsspec has one event loop in each."""
    run_python(f"import kstore; kstore.ship({str(local)!r}, {url!r}, storage_options={options!r})")
