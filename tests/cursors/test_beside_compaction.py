"""A compaction puts other files in the place of those that a cursor is reading, and deletes those at once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore


def from_cursor(path: Path, **options: Any) -> Iterator[kstore.Record]:
    with kstore.open(path).cursor("g", **options) as jobs:
        yield from jobs


def from_columns(path: Path, **options: Any) -> Iterator[int]:
    with kstore.open(path).cursor("g", **options) as jobs:
        for batch in jobs.scan(["offset"], batch_rows=1):
            yield from batch.column("offset").to_list()


def from_tasks(path: Path, **options: Any) -> Iterator[kstore.Record]:
    with kstore.open(path).cursor("g", **options) as jobs, asyncio.Runner() as runner:
        records = aiter(jobs)
        while (record := runner.run(anext(records, None))) is not None:
            yield record


def from_store_cursor(path: Path, **options: Any) -> Iterator[kstore.Record]:
    with kstore.LogStore(path.parent).cursor("g", ["t"], **options) as jobs:
        yield from (record for _, _, record in jobs)


def from_store_follower(path: Path, **options: Any) -> Iterator[kstore.Record]:
    with kstore.LogStore(path.parent).follow(["t"], start="earliest", timeout=0, **options) as jobs:
        yield from (record for _, _, record in jobs)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(
    "reader", [from_cursor, from_columns, from_tasks, from_store_cursor, from_store_follower]
)
def test_it_reads_on(tmp_path: Path, reader: Any, on_error: str) -> None:
    path = tmp_path / "t-0"
    options = {"cleanup_policy": "compact", "file_delete_delay_ms": 0, "internal_segment_bytes": 250_000}
    with kstore.open(path, "a", **options) as log:
        for number in range(60):
            log.append(b"." * 50_000, b"%d" % (number // 2))
        log.roll()
        log.append(b"last", b"last")
        source = reader(path, on_error=on_error)
        found = [next(source) for _ in range(2)]
        log.compact()
        found += source
        offsets = [record if isinstance(record, int) else record.offset for record in found]
        assert offsets == sorted(set(offsets))
        assert set(range(1, 61, 2)) | {60} <= set(offsets)
