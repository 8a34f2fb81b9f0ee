"""Readers of partition t-0, of every kind, and the ways in which they give its records."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import kstore

Make = Callable[..., Any]  # from the path of the partition, and options
CURSORS: dict[str, Make] = {
    "cursor": lambda path, group="g", **options: kstore.open(path).cursor(group, **options),
    "following cursor": lambda path, group="g", timeout=0, **options: kstore.open(path).cursor(
        group, follow=True, timeout=timeout, **options
    ),
    "store cursor": lambda path, group="g", **options: kstore.LogStore(path.parent).cursor(
        group, ["t"], **options
    ),
    "following store cursor": lambda path, group="g", timeout=0, **options: kstore.LogStore(
        path.parent
    ).cursor(group, ["t"], follow=True, timeout=timeout, **options),
}
FOLLOWERS: dict[str, Make] = {
    "follower": lambda path, timeout=0, **options: kstore.open(path).follow(0, timeout=timeout, **options),
    "store follower": lambda path, timeout=0, **options: kstore.LogStore(path.parent).follow(
        ["t"], start="earliest", timeout=timeout, **options
    ),
}
READERS = CURSORS | FOLLOWERS


def offsets_in(item: Any) -> list[int]:
    """The offsets of a record, of a batch, or of rows of columns."""
    item = getattr(item, "batch", item)
    if hasattr(item, "column"):
        found: list[int] = item.column("offset").to_list()
        return found
    return [record.offset for record in item] if isinstance(item, kstore.RecordBatch) else [item.offset]


def by_records(source: Any) -> Iterator[int]:
    for item in source:
        yield from offsets_in(item)


def by_columns(source: Any) -> Iterator[int]:
    for item in source.scan(["offset"], batch_rows=7):
        yield from offsets_in(item)


def by_batches(source: Any) -> Iterator[int]:
    given: Any = True
    while given:
        with source.batch(7) as records:
            given = [record.offset for record in records]
        yield from given


def by_pieces(source: Any) -> Iterator[int]:
    """With a new iterator for each record."""
    while (item := next(iter(source), None)) is not None:
        yield from offsets_in(item)


def by_tasks(source: Any) -> Iterator[int]:
    with asyncio.Runner() as runner:
        items = aiter(source)
        while (item := runner.run(_following(items))) is not None:
            yield from offsets_in(item)


async def _following(items: Any) -> Any:
    return await anext(items, None)


WAYS: dict[str, Callable[[Any], Iterator[int]]] = {
    "records": by_records,
    "pieces": by_pieces,
    "tasks": by_tasks,
    "columns": by_columns,
    "batches": by_batches,
}
EVERY = [
    (kind, way) for kind in READERS for way in WAYS if kind in CURSORS or way not in ("columns", "batches")
]
