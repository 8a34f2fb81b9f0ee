"""A scan of a topic: the scans of its partitions, one after the other, with the number of the partition as a
column."""

from __future__ import annotations

from kstore.engine.columns.array import ConstantColumn
from kstore.errors import LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.read.arrow_stream import ArrowStream
from kstore.log.read.scan import COLUMNS, checked_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import NoReturn

    from kstore.engine.columns.array import ColumnBatch
    from kstore.engine.scan.batch_reader import Skipped
    from kstore.log.read.scan import Scan
    from kstore.store.topic_catalog import TopicCatalog

PARTITION = "partition"


def numbers_to_scan(catalog: TopicCatalog, topic: str, partitions: Iterable[int] | None) -> tuple[int, ...]:
    """The numbers of the partitions that a scan of a topic reads; None for all of them. TypeError,
    ValueError, LogNotFoundError, LogFailedError."""
    found = catalog.topic(topic)
    if partitions is None:
        catalog.require_all(found, "read as a whole")
    numbers = found.numbers if partitions is None else found.chosen(partitions)
    if not numbers:
        raise LogNotFoundError(f"no partition of topic {topic} is to be read")
    return numbers


class StoreScan(ArrowStream):
    """Records of a topic as Arrow columns: an iterable of ColumnBatch objects, and an Arrow stream.
    store.scan() makes one.

    pyarrow.table(scan), Polars and DuckDB take it. Partition follows upon partition; within one,
    records are in order of their offsets. Each iteration or export opens the logs again, one after the other,
    and shows each as it is then. `skipped` lists what the last iteration left out because of on_error="skip".
    """

    def __init__(
        self,
        topic: str,
        columns: Iterable[str] | None,
        numbers: Sequence[int],
        scan_of: Callable[[int, tuple[str, ...]], Scan],
    ) -> None:
        self._topic = topic
        names = (PARTITION, *COLUMNS) if columns is None else checked_columns(columns)
        if names.count(PARTITION) > 1:
            raise ValueError("a column is named twice")
        rest = tuple(name for name in names if name != PARTITION)
        self._names = names
        self._numbers = tuple(numbers)
        self._rest = rest
        self._open_scan = scan_of
        self._skipped: list[Skipped] = []
        schema = scan_of(self._numbers[0], rest).schema  # which also checks the options
        self._column = (
            ConstantColumn(PARTITION, names.index(PARTITION), schema) if PARTITION in names else None
        )
        self._schema = schema if self._column is None else self._column.with_it

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self._names

    @property
    def skipped(self) -> list[Skipped]:
        """What the last iteration with on_error="skip" has left out, of the partitions that it is through
        with."""
        return list(self._skipped)

    def __iter__(self) -> Iterator[ColumnBatch]:
        self._skipped = skipped = []
        for number in self._numbers:
            scan = self._open_scan(number, self._rest)
            for batch in scan:
                yield batch if self._column is None else self._column.put(batch, number)
            skipped += scan.skipped

    def __reduce__(self) -> NoReturn:
        raise TypeError("a scan of a store cannot be pickled: give the other process the path of the store")

    def __repr__(self) -> str:
        numbers = ", ".join(map(str, self._numbers))
        return f"<StoreScan of {self._topic}: partitions {numbers}, columns {', '.join(self._names)}>"
