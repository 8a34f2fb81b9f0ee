"""The stores of peers/, filled with the first records of the segment that kstore reads, and kept for all
subjects."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import kstore
from benchmarks.data import ROWS, Columns, Data
from benchmarks.peers import InProcess, Missing
from benchmarks.peers.store import FIND, NAMES, Row, Store, fresh, remove, that_do

MANY = 7 * ROWS  # records in a store at most: about a million


def rows_of(columns: Columns, count: int) -> list[Row]:
    """The same records as kstore is given, as rows."""
    keys, values = map(bytes, columns.keys[:count]), map(bytes, columns.values[:count])
    return list(zip(range(count), columns.timestamps(0, count).tolist(), keys, values, strict=True))


class Stored:
    """The stores, each filled when it is first asked for. `stop`: records in each."""

    def __init__(self, data: Data) -> None:
        self.stop = min(MANY, data.batched.end_offset)
        self._data = data
        self._open: dict[str, Store] = {}

    def contestants(
        self,
        subject: str,
        prepare: Callable[..., Any],
        work: Callable[[Store, Any], tuple[int, int]],
    ) -> Iterator[InProcess[Any] | Missing]:
        for name, kind in that_do(subject):
            if isinstance(kind, Missing):
                yield kind
            else:
                yield InProcess(name, prepare, partial(work, self._filled(name, kind)))

    def _filled(self, name: str, kind: type[Store]) -> Store:
        if name not in self._open:
            log = kstore.open(self._data.batched.path)
            rows = [(r.offset, r.timestamp, r.key or b"", r.value or b"") for r in log.records(0, self.stop)]
            store = kind(fresh(self._data.work / "stored", name))
            store.extend(kind.load(rows))
            store.reopen()
            if FIND in kind.subjects:
                store.index_times(rows)
                store.reopen()
            if store.count() != self.stop:
                raise AssertionError(f"{name} holds {store.count()} rows, not {self.stop}")
            self._open[name] = store
        return self._open[name]

    def close(self) -> None:
        for store in self._open.values():
            store.close()
        for name in NAMES:
            remove(self._data.work / "stored", name)
