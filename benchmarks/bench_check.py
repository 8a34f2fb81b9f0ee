"""kstore.check: every byte and every record of a log and of a store, against recovery of the same bytes."""

from functools import partial
from pathlib import Path

import kstore
from benchmarks.data import Data
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from kstore.checking.check import check_paths
from kstore.log.recovery.loader import load

BYTES = 1 << 30
_VALUES = [b"%0100d" % number for number in range(10_000)]


def written(path: Path, size: int) -> int:
    """Write a log of about this size, in segments of 64 MiB and batches of 16 KiB. Its bytes."""
    with kstore.open(path, "a", segment_bytes=64 << 20) as log:
        while sum(segment.size for segment in log.segments) < size:
            log.extend(_VALUES)
        return sum(segment.size for segment in log.segments)


def bench_check_log(race: Race, data: Data) -> None:
    """1 GiB in the page cache. check: kstore.check, which decodes each record. recovery: the walk of an opening
    after an unclean stop, which does not."""
    path = data.work / "check" / "log-0"
    size = written(path, BYTES)

    def check() -> tuple[int, int]:
        report = kstore.check(path)
        assert report.findings == ()
        return report.bytes, report.bytes

    def recover() -> tuple[int, int]:
        loaded = load(path, clean=False, recovery_point=0, mode="dry")
        return size, sum(segment.size for segment in loaded.segments)

    race(
        "check a log",
        "byte",
        InProcess("check", lambda *_: None, lambda _: check()),
        InProcess("recovery", lambda *_: None, lambda _: recover()),
        goals=(Goal("recovery", speed=0.85),),
        rounds=min(race.rounds, 7),
    )


def bench_check_store(race: Race, data: Data) -> None:
    """A store of 16 partitions of 64 MiB, in the page cache, by one thread and by two."""
    store = data.work / "check-store"
    store.mkdir()
    size = sum(written(store / f"orders-{number}", 64 << 20) for number in range(16))

    def check(threads: int, _: object) -> tuple[int, int]:
        report = check_paths([str(store)], threads=threads)
        assert report.bytes == size
        return size, size

    race(
        "check a store",
        "byte",
        InProcess("two threads", lambda *_: None, partial(check, 2)),
        InProcess("one thread", lambda *_: None, partial(check, 1)),
        goals=(Goal("one thread", speed=1.6),),
        rounds=min(race.rounds, 7),
    )
