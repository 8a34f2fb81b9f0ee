"""Where the bytes of a partition are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from kstore.arguments import instance, integer
from kstore.engine.record.batch_builder import CODECS, encode_batch
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.partition import PartitionLog

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kstore.engine.columns.array import ArrayData
    from kstore.engine.record.batch import RecordBatch

_HEADER, _OLD_HEADER = 61, 12  # bytes before the records of a batch; of a message of magic 0 and 1


class CodecSize(NamedTuple):
    """The size of the sampled batches with another codec: `sample_bytes` now, `bytes` with it, and what the
    `log_bytes` of all batches would be, by the ratio of both."""

    codec: str
    sample_batches: int
    sample_bytes: int
    bytes: int
    log_bytes: int


class Sizes(NamedTuple):
    """Where the bytes of a partition are. The fields from `values` to `other_files` add up to `total`, the
    size of all files.

    Of uncompressed batches: `values`, `keys`, `headers` (names and values) and `record_overhead` (lengths,
    offsets and timestamps of records). `compressed_records`: records of compressed batches, which have
    `decompressed_values`, `decompressed_keys` and `decompressed_headers`. `batch_headers`: the 61 bytes of
    each batch. `control_batches`: markers of transactions. `unread`: bytes of .log files that are in no sound
    batch. `indexes`: .index, .timeindex and .txnindex files. `other_files`: all others. `codecs`: what other
    codecs would make of a sample of the batches.
    """

    path: str
    batch_count: int
    record_count: int
    values: int
    keys: int
    headers: int
    record_overhead: int
    compressed_records: int
    batch_headers: int
    control_batches: int
    unread: int
    indexes: int
    other_files: int
    total: int
    decompressed_values: int
    decompressed_keys: int
    decompressed_headers: int
    codecs: tuple[CodecSize, ...]


def sizes(log: PartitionLog, *, sample: int = 32) -> Sizes:
    """Measure where the bytes of a partition are, by reading all of its batches.

    sample: how many batches, spread over the log, are compressed with each codec. 0: none. Damaged batches
    are left out, and counted as unread. OSError.
    """
    instance("log", log, PartitionLog)
    sample = integer("sample", sample)
    whole = log.from_file_start()
    content, record_count, damaged = _content_of(whole)
    files = _sizes_of_files(log.path)
    logs = {segment.path for segment in log.segments}
    plain_records = compressed_records = batch_headers = control_batches = 0
    batch_count = batch_bytes = 0
    samples = _Sample(sample)
    for batch in whole.batches(on_error="skip"):
        if (batch.file, batch.position) in damaged:
            continue
        batch_count += 1
        batch_bytes += batch.size
        if batch.is_control:
            control_batches += batch.size
            continue
        header = _HEADER if batch.magic == 2 else _OLD_HEADER
        batch_headers += header
        if batch.attributes & 7:
            compressed_records += batch.size - header
        else:
            plain_records += batch.size - header
        samples.add(batch)
    plain, packed = content.tolist()
    indexes = sum(size for path, size in files.items() if path.endswith(layout.INDEX_KINDS))
    in_logs = sum(size for path, size in files.items() if path in logs)
    total = sum(files.values())
    return Sizes(
        log.path,
        batch_count,
        record_count,
        plain[0],
        plain[1],
        plain[2],
        plain_records - sum(plain),
        compressed_records,
        batch_headers,
        control_batches,
        in_logs - batch_bytes,
        indexes,
        total - in_logs - indexes,
        total,
        packed[0],
        packed[1],
        packed[2],
        tuple(_with_codecs(samples.batches, batch_bytes)),
    )


def _content_of(log: PartitionLog) -> tuple[Any, int, set[tuple[str, int]]]:
    """Bytes of values, keys and headers, in a row for uncompressed batches and one for others; the number of
    records; the places of damaged batches, which were left out."""
    content, count = np.zeros((2, 3), np.int64), 0
    scan = log.scan(["value", "key", "headers", "codec"], on_error="skip")
    for rows in scan:
        count += len(rows)
        packed = rows.column("codec").values != 0
        lists = rows.column("headers")
        names, texts = lists.children[0].children
        in_headers = _lengths(names, lists.offsets) + _lengths(texts, lists.offsets)
        columns = (_lengths(rows.column("value")), _lengths(rows.column("key")), in_headers)
        for at, lengths in enumerate(columns):
            content[0, at] += lengths[~packed].sum()
            content[1, at] += lengths[packed].sum()
    return content, count, {(skipped.file, skipped.position) for skipped in scan.skipped}


def _lengths(column: ArrayData, bounds: Any = None) -> Any:
    """The bytes of each row, or of each run of rows between `bounds`."""
    ends = np.asarray(column.offsets, np.int64)
    return np.diff(ends if bounds is None else ends[np.asarray(bounds)])


def _sizes_of_files(path: str) -> dict[str, int]:
    """The sizes of all files in a directory, or of the one file, by path. OSError."""
    if not os.path.isdir(path):
        return {path: os.path.getsize(path)}
    return {str(file): file.lstat().st_size for file in Path(path).rglob("*") if not file.is_dir()}


class _Sample:
    """Batches at equal distances in a sequence of unknown length, from `least` to twice as many."""

    def __init__(self, least: int) -> None:
        self.batches: list[RecordBatch] = []
        self._least = least
        self._step = 1
        self._seen = 0

    def add(self, batch: RecordBatch) -> None:
        if self._seen % self._step == 0 and self._least and batch.records_count > 0:
            self.batches.append(batch)
            if len(self.batches) > 2 * self._least:
                self.batches = self.batches[::2]
                self._step *= 2
        self._seen += 1


def _with_codecs(batches: Iterable[RecordBatch], log_bytes: int) -> list[CodecSize]:
    """The sizes of batches with each codec."""
    sums, now, count = dict.fromkeys(CODECS, 0), 0, 0
    for batch in batches:
        records, error = batch.sound_records()
        if error is not None or not records:
            continue
        rows = [(record.timestamp, record.key, record.value, record.headers) for record in records]
        deltas = [record.offset - batch.base_offset for record in records]
        now += batch.size
        count += 1
        for codec in CODECS:
            sums[codec] += len(encode_batch(rows, codec=codec, offset_deltas=deltas))
    return [
        CodecSize(codec, count, now, size, round(log_bytes * size / now))
        for codec, size in sums.items()
        if now
    ]
