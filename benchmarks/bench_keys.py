"""Finding records by key, and making the files for it: KSTORE_BENCH_KEYS_MIB, 128, and 1024 with --all."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from benchmarks.data import Data, link_dirty, make_dirty, targets
from benchmarks.interleave import Goal, Race
from benchmarks.peers import SELF_CHECKED, InProcess, Missing
from benchmarks.peers.store import fresh, remove

COUNT = 4_000  # lookups a turn
APPENDED = 50_000  # records
TOGETHER = 138  # records of an extend(): a batch of 16 KiB, as those of the log


def _size(pytestconfig: pytest.Config) -> int:
    return int(os.environ.get("KSTORE_BENCH_KEYS_MIB", "1024" if pytestconfig.getoption("all") else "128"))


def _linked(data: Data, mib: int) -> tuple[Path, kstore.LogWriter]:
    path = data.work / "kstore" / "keys-0"
    link_dirty(make_dirty(data, mib), path)
    return path, kstore.open(path, "a", clean=True)


def bench_last(race: Race, data: Data, pytestconfig: pytest.Config) -> None:
    """The last record of a random key, of a thousand keys for each MiB, in four sealed segments with .keys
    files; cached. get: log.get() of the same records by their offsets. rocksdict: a table from key to value,
    without syncs."""
    path, log = _linked(data, _size(pytestconfig))
    log.make_key_files()
    end = log.log_end_offset

    def keys(*args: int) -> list[bytes]:
        return [log.get(offset).key or b"" for offset in targets(*args).tolist()]

    def last(wanted: list[bytes]) -> tuple[int, int]:
        find = log.last
        total = 0
        for key in wanted:
            record = find(key)
            assert record is not None
            total += record.offset
        return len(wanted), total

    def offsets(*args: int) -> list[int]:
        records = [log.last(key) for key in keys(*args)]
        return [record.offset for record in records if record is not None]

    def get(wanted: list[int]) -> tuple[int, int]:
        find = log.get
        total = 0
        for offset in wanted:
            total += find(offset).offset
        return len(wanted), total

    rivals, close = _rocks(data, log, keys)
    race(
        "last_of_key",
        "record",
        InProcess("kstore", keys, last),
        InProcess("get", offsets, get),
        *rivals,
        goals=(
            Goal("get", time=1.3),
            *(Goal(rival.name, time=1.0) for rival in rivals if isinstance(rival, InProcess)),
        ),
        arguments=lambda turn: (turn * COUNT + COUNT, COUNT, end),
    )
    close()
    log.close()
    shutil.rmtree(path.parent)


def _rocks(
    data: Data, log: kstore.PartitionLog, keys: Callable[..., list[bytes]]
) -> tuple[list[InProcess[Any] | Missing], Callable[[], None]]:
    """The same keys and values in a table of rocksdict."""
    try:
        from rocksdict import Options, Rdict, WriteOptions  # type: ignore[import-not-found,unused-ignore]
    except ImportError as e:
        return [Missing("rocksdict", str(e))], lambda: None
    work = data.work / "keyed"
    db = Rdict(str(fresh(work, "rocksdict")), Options(raw_mode=True))
    unsynced = WriteOptions()
    unsynced.sync = False
    db.set_write_options(unsynced)
    for record in log:
        db[record.key] = record.value
    db.flush()
    db.compact_range(None, None)

    def get(wanted: list[bytes]) -> tuple[int, int]:
        for key in wanted:
            assert db[key]
        return len(wanted), SELF_CHECKED

    def close() -> None:
        db.close()
        remove(work, "rocksdict")

    return [InProcess("rocksdict", keys, get)], close


def bench_make_key_files(race: Race, data: Data, pytestconfig: pytest.Config) -> None:
    """The .keys files of four sealed segments, cached, synced; for each record of the log. append, extend:
    what it took to write such records, one a call, and in batches of 16 KiB from lists, without syncs."""
    mib = _size(pytestconfig)
    path, first = _linked(data, mib)
    sealed = sum(segment.size for segment in first.segments[:-1])
    end = first.segments[-1].base_offset
    rows = [(r.value, r.key) for r in first.records(0, APPENDED)]
    distinct = sum(each.keys for each in first.make_key_files())
    taken = sum(file.stat().st_size for file in path.glob("*.keys"))
    assert taken <= 16 * distinct, (taken, distinct, sealed)
    first.close()

    def prepare(*args: int) -> kstore.LogWriter:
        log = _linked(data, mib)[1]
        # the links have changed the times of the files: making would wait for these to be over
        time.sleep(0.03)
        return log

    def make(log: kstore.LogWriter) -> tuple[int, int]:
        assert all(each.made for each in log.make_key_files())
        return end, SELF_CHECKED

    def clear(log: kstore.LogWriter) -> None:
        log.close()
        shutil.rmtree(path.parent)

    written = data.work / "kstore" / "written-0"

    def empty(*args: int) -> kstore.LogWriter:
        shutil.rmtree(written, ignore_errors=True)
        return kstore.open(written, "a")

    def append(log: kstore.LogWriter) -> tuple[int, int]:
        for value, key in rows:
            log.append(value, key)
        return len(rows), SELF_CHECKED

    values, keys = [row[0] for row in rows], [row[1] for row in rows]

    def extend(log: kstore.LogWriter) -> tuple[int, int]:
        for at in range(0, len(rows), TOGETHER):
            log.extend(values[at : at + TOGETHER], keys[at : at + TOGETHER])
        return len(rows), SELF_CHECKED

    race(
        "make_key_files",
        "record",
        InProcess("kstore", prepare, make, clear=clear),
        InProcess("append", empty, append, clear=kstore.LogWriter.close),
        InProcess("extend", empty, extend, clear=kstore.LogWriter.close),
        goals=(Goal("append", time=0.15),),
        rounds=min(race.rounds, 5),
    )
