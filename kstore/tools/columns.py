"""Records as Arrow IPC or as Parquet, written by pyarrow where that is installed."""

import sys
from typing import Any, BinaryIO

from kstore.errors import LibraryError
from kstore.libraries import library
from kstore.log.read.scan import Scan
from kstore.tools.progress import Progress

FORMATS = ("arrow", "parquet")


def write_columns(scan: Scan, form: str, out: BinaryIO) -> int:
    """Writes a scan to a binary file, shows how far it is, and returns how many rows there were."""
    pyarrow = _imported("pyarrow")
    schema = pyarrow.schema(scan)
    written = 0
    with _writer(form, out, schema) as writer, Progress(scan.size, "writing") as progress:
        scan._progress = progress.update  # rows may be far apart
        for batch in scan:
            writer.write_batch(pyarrow.record_batch(batch))
            written += len(batch)
            progress.update(scan.bytes_passed)
    return written


def _writer(form: str, out: BinaryIO, schema: Any) -> Any:
    if form == "arrow":
        return _imported("pyarrow.ipc").new_stream(out, schema)
    return _imported("pyarrow.parquet").ParquetWriter(out, schema, compression="zstd")


def _imported(module: str) -> Any:
    try:
        return library(module)
    except LibraryError as e:
        sys.exit(f"kstore: --format arrow and parquet need pyarrow: {e}")
