"""Records as a table of Arrow or Parquet, which pyarrow writes."""

import sys
from typing import Any, BinaryIO, Self

from kstore.errors import LibraryError
from kstore.libraries import library
from kstore.log.read.scan import Scan
from kstore.tools.progress import Progress

_TIMES = ("timestamp", "base_timestamp", "max_timestamp")


class ArrowTable:
    """A table that is written to a binary file, in the form "arrow" or "parquet". Its columns are those of
    the first scan, after topic and partition with `has_places`. Timestamps are timestamp[ms, UTC]; -1 is
    null."""

    def __init__(self, scan: Scan, form: str, out: BinaryIO, *, has_places: bool) -> None:
        self._pyarrow = pyarrow = _imported("pyarrow")
        self._has_places = has_places
        time = pyarrow.timestamp("ms", tz="UTC")
        fields = [("topic", pyarrow.string()), ("partition", pyarrow.int32())] if has_places else []
        fields += [
            field.with_type(time).with_nullable(True) if field.name in _TIMES else field
            for field in pyarrow.schema(scan)
        ]
        self._schema = pyarrow.schema(fields)
        if form == "arrow":
            self._writer = _imported("pyarrow.ipc").new_stream(out, self._schema)
        else:
            parquet = _imported("pyarrow.parquet")
            self._writer = parquet.ParquetWriter(out, self._schema, compression="zstd")

    def write(self, scan: Scan, topic: str | None, partition: int | None) -> None:
        """Write the rows of a scan, with a progress bar."""
        with Progress(scan.size, "writing") as progress:
            scan.progress = progress.update  # selected rows may be far apart
            for batch in scan:
                rows = self._pyarrow.record_batch(batch)
                columns = [self._column(name, rows.column(name)) for name in rows.schema.names]
                if self._has_places:
                    repeat = self._pyarrow.repeat
                    number = self._pyarrow.scalar(partition, self._pyarrow.int32())
                    columns = [repeat(topic, len(rows)), repeat(number, len(rows)), *columns]
                self._writer.write_batch(self._pyarrow.record_batch(columns, schema=self._schema))
                progress.update(scan.bytes_passed)

    def _column(self, name: str, values: Any) -> Any:
        if name not in _TIMES:
            return values
        compute = _imported("pyarrow.compute")
        known = compute.if_else(compute.equal(values, -1), None, values)
        return known.cast(self._schema.field(name).type)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()


def _imported(module: str) -> Any:
    try:
        return library(module)
    except LibraryError as e:
        sys.exit(f"kstore: --format arrow and parquet need pyarrow: {e}")
