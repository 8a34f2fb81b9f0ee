"""`python work.py` does every work in its directory, between two calls of getppid(): this is counted."""

import gc
import os
from collections.abc import Callable, Iterator

import kstore

MOST = 20_000  # records in the logs that are read, and rows of input
T0 = 1_700_000_000_000
VALUES, KEYS = [b"v" * 100] * MOST, [b"k" * 8] * MOST
STAMPS = [T0 + i // 10 for i in range(MOST)]

Work = Iterator[int]  # prepares, gives how many records it is about, works, gives anything, closes


def append() -> Work:
    rows = list(zip(VALUES, KEYS, STAMPS, strict=True))[:5_000]
    with kstore.open("append-0", "a") as log:
        append = log.append
        append(b"v")  # the first makes what all others need
        yield len(rows)
        for value, key, stamp in rows:
            append(value, key, stamp)
        yield 0


def extend() -> Work:
    with kstore.open("extend-0", "a") as log:
        log.extend(VALUES, KEYS, STAMPS)
        yield MOST
        log.extend(VALUES, KEYS, STAMPS)
        yield 0


def iterate() -> Work:
    """The log of extend(), in batches of 16 KiB."""
    log = kstore.open("extend-0")
    list(log.records(0, 1))  # the first imports what all others need
    yield MOST
    for record in log.records(0, MOST):
        record.offset  # noqa: B018
        record.timestamp  # noqa: B018
        record.key  # noqa: B018
        record.value  # noqa: B018
    yield 0


def scan() -> Work:
    """The log of extend() to columns."""
    log = kstore.open("extend-0")
    list(log.scan(["offset"], stop=1))  # the first imports what all others need
    yield MOST
    for _ in log.scan(["offset", "timestamp", "key", "value"], stop=MOST):
        pass
    yield 0


def headers() -> Work:
    """The log of append(), a record a batch."""
    [segment] = kstore.open("append-0").segments
    segment.read_headers()
    yield 5_001
    assert len(segment.read_headers()) == 5_001
    yield 0


def lookup() -> Work:
    [segment] = kstore.open("extend-0").segments
    wanted = [i * 7919 % MOST for i in range(MOST)]
    lookup = segment.offset_index.lookup
    yield MOST
    for offset in wanted:
        lookup(offset)
    yield 0


def get() -> Work:
    log = kstore.open("extend-0")
    wanted = [i * 7919 % MOST for i in range(500)]
    get = log.get
    get(0)
    yield len(wanted)
    for offset in wanted:
        get(offset).value  # noqa: B018
    yield 0


WORKS: tuple[Callable[[], Work], ...] = (append, extend, iterate, scan, headers, lookup, get)  # in this order
NAMES = [work.__name__ for work in WORKS]

if __name__ == "__main__":
    gc.disable()
    for work in WORKS:
        running = work()
        records = next(running)
        os.getppid()
        next(running)
        os.getppid()
        next(running, None)
        print(work.__name__, records)
