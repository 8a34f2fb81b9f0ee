"""A stream of Spark as a reader. Needs pyspark, and no session."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kstore
from kstore.spark import KStoreDataSource, SparkSourceError
from tests.helpers.reader_kinds import Reader, Rows


class OfStream(Reader):
    """Micro-batches of three offsets. Each is one item of `read_on`, and its plan is another before it, so a
    plan may be older than the reading of its tasks."""

    is_cursor = False

    def __init__(self, path: Path, start: str = "earliest") -> None:
        super().__init__()
        self.path = path
        self.planned = 0  # the end of the micro-batch that was planned and not yet read
        self.at: Any = None
        self.go_to(start)

    def go_to(self, place: Any) -> None:
        from pyspark.sql.types import BinaryType, LongType, StructType

        schema = StructType().add("offset", LongType()).add("value", BinaryType())
        options = {
            "path": str(self.path.parent),
            "subscribe": "t",
            "startingOffsets": place if place == "earliest" else json.dumps({"t": {"0": place}}),
            "maxOffsetsPerTrigger": "3",
        }
        self.close()
        self.source = KStoreDataSource(options).streamReader(schema)
        self.at = self.source.initialOffset()

    @property
    def position(self) -> int:
        return int(self.at["t"]["0"])

    def _items(self, by: str) -> Iterator[Rows]:
        while True:
            with self.losses():
                end = self.source.latestOffset(self.at)
                if end == self.at:
                    return
                tasks = self.source.partitions(self.at, end)
            self.planned = end["t"]["0"]
            yield []
            try:
                batches = [batch for task in tasks for batch in self.source.read(task)]
            except SparkSourceError:
                with self.losses():
                    self.source.partitions(self.at, end)
                raise  # a false one: the same micro-batch can be planned again
            self.at, self.planned = end, 0
            yield [
                row
                for batch in batches
                for row in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
            ]

    @contextmanager
    def losses(self) -> Iterator[None]:
        """KSTORE_DATA_LOST of the driver is as the error of other readers."""
        try:
            yield
        except SparkSourceError as e:
            if e.code != "KSTORE_DATA_LOST":
                raise
            named = re.search(r"goes on at offset (\d+)", str(e))
            end = self.position if named is None else min(int(named[1]), self.position)
            start = kstore.open(self.path).log_start_offset
            raise kstore.OffsetOutOfRangeError(self.position, start, end) from e

    def close(self) -> None:
        self._iterators, self.planned = {}, 0
