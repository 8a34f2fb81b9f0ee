"""Run as `python -m tests.fuzz.codecs SEED SECONDS`: payloads of every codec with damage under a checksum that agrees.

A batch is decompressed, or an error of kstore says what is wrong with it: the same, whichever way it is read. What goes
wrong otherwise is written to a file.
"""

import struct
import sys
from collections.abc import Iterator

import kstore
from kstore.engine.record.hashes import crc32c
from kstore.errors import KstoreError
from tests.fuzz.driver import Case, drive
from tests.fuzz.mutations import changed
from tests.hostile.material import smallest_batches

LIMIT = 1 << 20  # bytes that a batch may unpack to


def with_checksum(data: bytes) -> bytes:
    """A batch of magic 2 with the size and the checksum that it should have."""
    body = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
    return body[:17] + struct.pack(">I", crc32c(body[21:])) + body[21:]


def outcome(data: bytes, directory: Case, way: str) -> object:
    """The records of a log with this batch alone, or the class of the error."""
    try:
        with kstore.open(directory.log_of(data), max_decompressed_bytes=LIMIT, recover=False) as log:
            if way == "records":
                return [(r.offset, r.timestamp, r.key, r.value) for r in log.records(control=True)]
            return sum(len(rows) for rows in log.scan())
    except KstoreError as e:
        return type(e)


def cases() -> Iterator[bytes]:
    for batch in smallest_batches():
        if batch.magic == 2 and not batch.is_control:
            yield batch.data


def try_one(case: Case) -> None:
    seeds = case.seeds
    data = case.chance.choice(seeds)
    head, payload = data[:61], data[61:]
    if case.chance.random() < 0.2:
        head = head[:57] + struct.pack(">i", case.chance.choice((-1, 0, 1, 7, 2**31 - 1)))
    if case.chance.random() < 0.2:  # another codec than it has
        head = head[:22] + bytes([head[22] & 0xF8 | case.chance.randrange(8)]) + head[23:]
    made = with_checksum(head + changed(payload, case.chance, case.chance.choice(seeds)[61:]))
    case.keep(made)
    records, rows = outcome(made, case, "records"), outcome(made, case, "scan")
    if isinstance(records, list):
        assert len(records) == rows, (records, rows)
    else:
        assert records == rows


if __name__ == "__main__":
    sys.exit(drive("codecs", list(cases()), try_one, sys.argv[1:]))
