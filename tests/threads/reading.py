"""A process that reads a log while another writes it, and checks every record; prints how many it saw.

python reading.py refresh|follow DIRECTORY SECONDS
"""

import hashlib
import sys
import time

import kstore
from kstore import CorruptRecordError, OffsetOutOfRangeError


def check(record: kstore.Record) -> None:
    """A value begins with its own checksum; a torn or mixed-up one does not."""
    value = record.value or b""
    assert value[:16] == hashlib.md5(value[16:]).hexdigest()[:16].encode(), record


def value_of(number: int, size: int) -> bytes:
    """A value that begins with its checksum."""
    body = b"%d:" % number + b"." * size
    return hashlib.md5(body).hexdigest()[:16].encode() + body


def refresh(directory: str, until: float) -> int:
    """Reads what comes, from where it stopped: offsets rise, and only deletion leaves gaps. What is truncated
    and written anew is read anew."""
    log = kstore.open(directory)
    seen, next_offset, faults, refreshed_once = 0, log.log_start_offset, 0, False
    while time.monotonic() < until:
        try:
            if not log.refresh() and refreshed_once:
                time.sleep(0.001)
                continue
            refreshed_once = True
            next_offset = min(max(next_offset, log.log_start_offset), log.log_end_offset)
            for record in log.records(next_offset):
                check(record)
                assert record.offset == next_offset, (record, next_offset)
                next_offset = record.offset + 1
                seen += 1
                faults = 0
        except (OffsetOutOfRangeError, CorruptRecordError, FileNotFoundError):
            # truncated, or deleted, under the reader: another look must show something sound
            faults += 1
            if faults == 50:
                raise
            time.sleep(0.001)
    return seen


def follow(directory: str, until: float) -> int:
    """The same by following."""
    log = kstore.open(directory)
    return follow_on(log, log.log_start_offset, until)


def follow_on(log: kstore.PartitionLog, next_offset: int, until: float) -> int:
    """Follows from an offset on: no record is missing or comes twice, but for those deleted or truncated."""
    seen = 0
    while time.monotonic() < until and not log.is_closed:
        with log.follow(next_offset, timeout=until - time.monotonic()) as records:
            try:
                for record in records:
                    check(record)
                    assert record.offset == next_offset, (record, next_offset)
                    next_offset = record.offset + 1
                    seen += 1
                    if time.monotonic() > until:
                        break
            except OffsetOutOfRangeError as e:
                if e.asked != next_offset or e.first <= next_offset <= e.end:
                    raise
                next_offset = e.first if next_offset < e.first else e.end
                if not isinstance(log, kstore.LogWriter):
                    log = refreshed(log)
                    next_offset = min(max(next_offset, log.log_start_offset), log.log_end_offset)
    return seen


def refreshed(log: kstore.PartitionLog) -> kstore.PartitionLog:
    """The log as it is now, however it changes meanwhile."""
    for _ in range(50):
        try:
            return kstore.open(log.path)
        except FileNotFoundError:
            continue
    raise AssertionError("files vanish whenever one looks")


if __name__ == "__main__":
    work = {"refresh": refresh, "follow": follow}[sys.argv[1]]
    print(work(sys.argv[2], time.monotonic() + float(sys.argv[3])))
