"""aiokafka's codec over a plain file: Kafka's batches, offsets patched in, no index."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]

from benchmarks.data import BATCH_RECORDS
from benchmarks.peers.store import APPEND, EXTEND, SCAN, Row, Store


class Aiokafka(Store):
    package = "aiokafka"
    subjects = frozenset({APPEND, EXTEND, SCAN})

    def __init__(self, path: Path) -> None:
        self.path = path / "log"
        self.file = self.path.open("wb", buffering=0)
        self.raw = b""

    def append(self, loaded: Sequence[Row]) -> None:
        write = self.file.write
        for row in loaded:
            write(_encode((row,), self.codec))

    def extend(self, loaded: Sequence[Row]) -> None:
        for at in range(0, len(loaded), BATCH_RECORDS):
            self.file.write(_encode(loaded[at : at + BATCH_RECORDS], self.codec))

    def reopen(self) -> None:
        self.raw = self.path.read_bytes()  # its codec takes only bytes

    def scan(self, stop: int) -> tuple[int, int]:
        records: Any = MemoryRecords(self.raw)
        seen, last = 0, -1
        while seen < stop and (batch := records.next_batch()) is not None:
            if not batch.validate_crc():
                raise ValueError("wrong CRC")
            for record in batch:
                last = record.offset
                record.timestamp  # noqa: B018
                record.key  # noqa: B018
                record.value  # noqa: B018
                seen += 1
                if seen == stop:
                    break
        return seen, last

    def count(self) -> int:
        return self.scan(1 << 62)[0]

    def close(self) -> None:
        self.file.close()


def _encode(rows: Sequence[Row], codec: int) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for i, (_offset, timestamp, key, value) in enumerate(rows):
        builder.append(i, timestamp, key, value, [])
    encoded: bytearray = builder.build()
    struct.pack_into(">q", encoded, 0, rows[0][0])
    return encoded
