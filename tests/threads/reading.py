"""A process that reads a log while another writes it, and checks every record; prints how many it saw."""

import hashlib
import sys
import time

import kstore
from kstore.errors import OffsetOutOfRangeError


def check(record: kstore.Record) -> None:
    """Values tell their own checksum; a torn or mixed-up one does not."""
    value = record.value or b""
    assert value[:16] == hashlib.md5(value[16:]).hexdigest()[:16].encode(), record


def value_of(number: int, size: int) -> bytes:
    """A value that tells its checksum."""
    body = b"%d:" % number + b"." * size
    return hashlib.md5(body).hexdigest()[:16].encode() + body


def follow(directory: str, until: float) -> int:
    """Reads what comes, from where it stopped: offsets rise, and only deletion leaves gaps."""
    log = kstore.open(directory)
    seen, next_offset = 0, log.log_start_offset
    while time.monotonic() < until:
        if log.refresh():
            next_offset = max(next_offset, log.log_start_offset)
            try:
                for record in log.records(next_offset):
                    check(record)
                    assert record.offset == next_offset
                    next_offset = record.offset + 1
                    seen += 1
            except OffsetOutOfRangeError:
                continue
        else:
            time.sleep(0.001)
    return seen


if __name__ == "__main__":
    print(follow(sys.argv[1], time.monotonic() + float(sys.argv[2])))
