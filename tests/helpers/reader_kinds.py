"""Readers of partition t-0 of every kind, behind one face."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Self

import kstore
from tests.helpers import readers

Rows = list[tuple[int, Any]]
TP = kstore.TopicPartition("t", 0)


class Reader:
    """A reader that starts at the beginning of the log, or where its group has committed."""

    is_cursor = True
    planned = 0  # below this offset it will read what it knows of already
    source: Any

    def __init__(self) -> None:
        self._iterators: dict[str, Iterator[Rows]] = {}

    @property
    def position(self) -> int:
        """The offset of the next record."""
        raise NotImplementedError

    def go_to(self, place: Any) -> None:
        """Moves the position: by seek(), or as a new follower of the same log."""
        raise NotImplementedError

    def _items(self, by: str) -> Iterator[Rows]:
        """One record at a time, or by columns three: what moves the position at once."""
        return ([(record.offset, record.value)] for record in self.source)

    def read(self, into: Rows, count: int | None = None, by: str = "records") -> bool:
        """Appends offsets and values of `count` items, or of all, to a list. Whether there were so many."""
        self._iterators = {}
        return self.read_on(into, count, by)

    def read_on(self, into: Rows, count: int | None = None, by: str = "records") -> bool:
        """Reads with the iterator of the call before, which may have read ahead."""
        items = self._iterators.pop(by, None) or self._items(by)
        taken = 0
        for rows in islice(items, count):
            into.extend(rows)
            taken += 1
        if taken == count:  # else it has ended
            self._iterators[by] = items
        return taken == count

    def take(self, count: int | None = None, by: str = "records") -> list[int]:
        """The offsets of up to `count` records."""
        found: Rows = []
        self.read(found, count, by)
        return [offset for offset, _ in found]

    def close(self) -> None:
        self._iterators = {}
        self.source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class OfFollower(Reader):
    is_cursor = False

    def __init__(self, log: kstore.PartitionLog, start: int | None = None) -> None:
        super().__init__()
        self.log = log
        self.source = log.follow(log.log_start_offset if start is None else start, timeout=0)

    @property
    def position(self) -> int:
        return int(self.source.offset)

    def go_to(self, place: Any) -> None:
        self.close()
        self.log.refresh()
        if place == "earliest":
            place = self.log.log_start_offset
        self.source = self.log.follow(place, timeout=0)


class OfStoreFollower(Reader):
    is_cursor = False

    def __init__(self, store: kstore.LogStore) -> None:
        super().__init__()
        self.store = store
        self.source = store.follow(["t"], start="earliest", timeout=0)

    @property
    def position(self) -> int:
        found = self.source.positions().get(TP)
        return 0 if found is None else int(found.offset)

    def go_to(self, place: Any) -> None:
        self.close()
        self.source = self.store.follow(["t"], place if place == "earliest" else {TP: place}, timeout=0)


class OfCursor(Reader):
    def __init__(self, cursor: kstore.Cursor) -> None:
        super().__init__()
        self.source = cursor

    @property
    def position(self) -> int:
        return int(self.source.position)

    def go_to(self, place: Any) -> None:
        self.source.seek(place)

    def _items(self, by: str) -> Iterator[Rows]:
        if by == "records":
            return super()._items(by)
        return (batch.rows() for batch in self.source.scan(["offset", "value"], batch_rows=3))


class OfStoreCursor(Reader):
    def __init__(self, cursor: kstore.StoreCursor) -> None:
        super().__init__()
        self.source = cursor

    @property
    def position(self) -> int:
        return int(self.source.positions().get(TP, 0))

    def go_to(self, place: Any) -> None:
        self.source.seek(place, "t", 0)

    def _items(self, by: str) -> Iterator[Rows]:
        if by == "records":
            return super()._items(by)
        return (part.batch.rows() for part in self.source.scan(["offset", "value"], batch_rows=3))


OF = {"cursor": OfCursor, "store cursor": OfStoreCursor}
Make = Callable[[Path, str], Reader]
CURSORS: dict[str, Make] = {
    kind: lambda path, group, kind=kind, make=make: OF[kind.removeprefix("following ")](make(path, group))
    for kind, make in readers.CURSORS.items()
}
FOLLOWERS: dict[str, Make] = {
    "follower": lambda path, group: OfFollower(kstore.open(path)),
    "store follower": lambda path, group: OfStoreFollower(kstore.LogStore(path.parent)),
}
KINDS: dict[str, Make] = {**CURSORS, **FOLLOWERS}
