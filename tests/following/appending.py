"""A process that writes a log as told: `append N`, `roll`, `retain` or `truncate N`, one a line."""

import sys
from typing import Any

import kstore

OPTIONS: dict[str, Any] = {"internal_segment_bytes": 20_000, "retention_bytes": 1, "file_delete_delay_ms": 0}


def value_of(offset: int) -> bytes:
    """What the record at an offset holds."""
    return b"%08d" % offset + b"." * 100


def obey(log: kstore.LogWriter, line: str) -> None:
    """Does what one line says."""
    what, _, number = line.strip().partition(" ")
    if what == "append":
        for _ in range(int(number)):
            log.append(value_of(log.log_end_offset))
    elif what == "roll":
        log.roll()
    elif what == "retain":
        log.retain()
        log.retain()
    elif what == "delete":
        log.delete_records(int(number))
    elif what == "truncate":
        log.truncate_to(int(number))
    else:
        raise ValueError(line)


if __name__ == "__main__":
    with kstore.open(sys.argv[1], "a", **OPTIONS) as log:
        print(log.log_end_offset, flush=True)
        for line in sys.stdin:
            obey(log, line)
            print(log.log_end_offset, flush=True)
