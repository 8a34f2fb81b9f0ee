"""Run as `python -m tests.fuzz.arguments SEED SECONDS`: arguments of any kind to every public method.

A method takes them, or says that they are wrong: TypeError, ValueError, OSError or an error of kstore. The
log goes on.
"""

import datetime
import inspect
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kstore
from tests.fuzz.driver import Case, drive

ALLOWED = (TypeError, ValueError, OverflowError, OSError, kstore.KstoreError, RecursionError, LookupError)
LEFT_OUT = ("close", "abandon", "follow", "send", "send_async", "appender")  # what waits, or ends the log
INSIDE = (
    "limit_to",
    "use_indexes",
    "set_max_timestamp",
    "rebuild",
    "remember_file",
)  # of a segment: for the code that makes it
BIG = (2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30)


class Odd:
    """Says that it is a number, a sequence and bytes, and lies."""

    def __index__(self) -> int:
        return 3

    def __len__(self) -> int:
        return 5

    def __getitem__(self, at: int) -> bytes:
        if at > 1:
            raise IndexError
        return b"x"


def value(case: Case, depth: int = 2) -> Any:
    """An argument."""
    chance = case.chance
    make: list[Callable[[], Any]] = [
        lambda: None,
        lambda: chance.choice((True, False)),
        lambda: chance.randint(-3, 60),
        lambda: chance.choice((1, -1)) * chance.choice(BIG),
        lambda: chance.choice((0.5, float("nan"), float("inf"), 1e300)),
        lambda: chance.randbytes(chance.choice((0, 1, 5, 300))),
        lambda: chance.choice(
            ("", "key", "offset", "raise", "skip", "read_committed", "max", "\ud800", "x" * 300)
        ),
        lambda: bytearray(chance.randbytes(4)),
        lambda: memoryview(chance.randbytes(12))[:: chance.choice((1, 2, -1))],
        lambda: datetime.datetime.fromtimestamp(1_700_000_000, chance.choice((None, datetime.UTC))),
        lambda: np.arange(
            chance.randrange(5), dtype=chance.choice(("i8", "u8", "i4", "f8", "M8[ms]", "S3", "O"))
        ),
        lambda: case.chance.choice(case.seeds),
        lambda: kstore.encode_batch([(1_711_530_458_631, b"k", b"v", None)]),
        lambda: Odd(),
        lambda: object(),
    ]
    if depth:
        some = range(chance.randrange(4))
        make += [
            lambda: [value(case, depth - 1) for _ in some],
            lambda: tuple(value(case, depth - 1) for _ in some),
            lambda: {chance.choice(("a", "b", 1)): value(case, depth - 1) for _ in some},
            lambda: iter([value(case, depth - 1) for _ in some]),
            lambda: [chance.randbytes(3) for _ in some],
        ]
    return chance.choice(make)()


def call(case: Case, thing: Any) -> None:
    """Calls a method of it by chance."""
    names = [name for name in dir(thing) if not name.startswith("_") and name not in (*LEFT_OUT, *INSIDE)]
    name = case.chance.choice(names)
    case.keep(f"{type(thing).__name__}.{name}".encode())
    try:
        method = getattr(thing, name)
        if not callable(method):
            return
        given: list[Any] = [value(case) for _ in range(case.chance.choice((0, 1, 1, 2, 3)))]
        options = {}
        try:
            known = inspect.signature(method).parameters
        except (TypeError, ValueError):
            known = {}
        for option in known:
            if case.chance.random() < 0.3:
                options[option] = value(case)
        found = method(*given, **options)
        if hasattr(found, "__next__"):
            for _ in zip(range(5), found, strict=False):
                pass
        elif isinstance(found, kstore.Slice):
            bytes(found)
    except ALLOWED:
        pass


def try_one(case: Case) -> None:
    root = case.scratch / "t-0"
    shutil.rmtree(root, ignore_errors=True)
    log = kstore.open(
        root, "a", internal_segment_bytes=1000, segment_index_bytes=256, index_interval_bytes=100
    )
    values: list[bytes | None] = []
    for number in range(20):
        log.append(b"%d" % number, b"key", headers={"h": b"v"})
    for _ in range(60):
        call(case, case.chance.choice((log, log, log, log.segments[0])))
    values = [record.value for record in log.records()]
    try:
        assert log.append(b"last") == log.log_end_offset - 1
    except kstore.kstore.KstoreError:  # it says that it cannot go on, or no offset is left
        log.abandon()
        return
    log.close()
    with kstore.open(root) as again:
        assert [record.value for record in again.records()] == [*values, b"last"]


def texts() -> list[bytes]:
    """Bytes that are none of kstore's."""
    return [Path(__file__).read_bytes()[:100]]


if __name__ == "__main__":
    sys.exit(drive("arguments", texts(), try_one, sys.argv[1:]))
