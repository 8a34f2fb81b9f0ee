"""LogLoaderTest: opening for writing after a clean stop, and after a crash at any point.

The file is long because it has the tests of one class of Kafka in one place.
"""

import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.conformance import forge
from tests.conformance.forge import ABORT, COMMIT, T0, Rec
from tests.conformance.writing import (
    SIZE,
    Clock,
    Producer,
    bases,
    end,
    entries,
    files,
    follow,
    idempotent,
    offsets,
    opened,
    put,
    rec,
    recs,
)

KINDS = (".log", ".index", ".timeindex", ".txnindex")


def directory(path: Path) -> Path:
    return path / "topic-0"


def file(path: Path, kind: str, base: int = 0) -> Path:
    return path / "topic-0" / f"{forge.stem(base)}{kind}"


def drop(path: Path, pattern: str) -> None:
    for found in directory(path).glob(pattern):
        found.unlink()


# ---- recovery -----------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", ["close", "abandon"])
@pytest.mark.parametrize("point", [100, 10])
def test_log_recovers_to_correct_offset(tmp_path: Path, leave: str, point: int) -> None:
    """100 messages, segments of 7, an entry every 300 bytes, unclean: the same end, entries, and files."""
    config = {"segment_bytes": 700, "index_interval_bytes": 300, "segment_index_bytes": 4096}
    clock = Clock()
    log = opened(tmp_path, clock, **config)
    value = b"x" * 30
    put(log, *[rec(value, timestamp=clock.now + 10 * i) for i in range(100)])
    before = [entries(s)[0] for s in log.segments]
    getattr(log, leave)()
    log = opened(tmp_path, clock, clean=False, recovery_point=point, **config)
    assert log.log_end_offset == 100
    assert [entries(s)[0] for s in log.segments] == before
    assert log.segments[-1].time_index.last_entry == (clock.now + 990, 99)
    assert log.recovery.recovery_point == point
    assert log.durable_offset == point
    log.flush()
    assert log.durable_offset == 100
    log.close()
    log = opened(tmp_path, clock, **config)
    assert (log.recovery.clean, log.log_end_offset, log.durable_offset) == (True, 100, 100)


def _fifty(path: Path, **config: Any) -> tuple[kstore.LogWriter, dict[str, bytes]]:
    """50 messages in 200-byte segments, closed; and the bytes of their indexes."""
    config |= {"segment_bytes": 200, "index_interval_bytes": 1}
    log = opened(path, **config)
    put(log, *[rec(timestamp=T0 + 10 * i) for i in range(50)])
    log.close()
    return config, {p.name: p.read_bytes() for p in directory(path).glob("*index")}


@pytest.mark.parametrize("damage", ["deleted", "two spaces"])
@pytest.mark.parametrize("kind", ["*.index", "*.timeindex", "*index"])
def test_index_rebuild(tmp_path: Path, damage: str, kind: str) -> None:
    """Indexes deleted, or overwritten with two spaces; unclean: the files are made as they were."""
    config, before = _fifty(tmp_path)
    for path in directory(tmp_path).glob(kind):
        path.unlink()
        if damage == "two spaces":
            path.write_bytes(b"  ")
    log = opened(tmp_path, clean=False, recovery_point=0, **config)
    assert log.log_end_offset == 50
    for i in range(50):
        assert log.get(i).offset == i
        assert log.find(timestamp=T0 + 10 * i) == (i, T0 + 10 * i, 0)
    log.close()
    assert {p.name: p.read_bytes() for p in directory(tmp_path).glob("*index")} == before


def test_clean_start_without_time_indexes(tmp_path: Path) -> None:
    """Spec 8.2: after a clean stop lost time indexes are made, but empty; the sealed ones stay so."""
    config, _ = _fifty(tmp_path)
    drop(tmp_path, "*.timeindex")
    log = opened(tmp_path, clean=True, **config)
    assert {
        p.stat().st_size
        for p in directory(tmp_path).glob("*.timeindex")
        if p != file(tmp_path, ".timeindex", 48)
    } == {0}
    assert log.log_end_offset == 50


def test_clean_start_without_offset_indexes(tmp_path: Path) -> None:
    """Spec 8.2: a segment whose offset index is missing is recovered after a clean stop too."""
    config, before = _fifty(tmp_path)
    drop(tmp_path, "*.index")
    opened(tmp_path, clean=True, **config).close()
    assert {p.name: p.read_bytes() for p in directory(tmp_path).glob("*index")} == before


def test_corrupt_log(tmp_path: Path) -> None:
    """50 to 99 messages, 1 to 1024 random bytes behind the last log and index, unclean: all messages are back."""
    config = {"segment_bytes": 1000, "index_interval_bytes": 1}
    for seed in range(10):
        path = tmp_path / str(seed)
        chance = random.Random(seed)
        count = chance.randrange(50, 100)
        log = opened(path, **config)
        put(log, *[rec(b"%4d" % i) for i in range(count)])
        last = bases(log)[-1]
        log.abandon()
        for kind in (".index", ".log"):
            with file(path, kind, last).open("ab") as f:
                f.write(chance.randbytes(chance.randrange(1, 1025)))
        log = opened(path, recovery_point=0, **config)
        assert [(r.offset, r.value) for r in log] == [(i, b"%4d" % i) for i in range(count)]
        assert put(log, rec()).first_offset == count


def test_log_start_offset_above_the_end(tmp_path: Path) -> None:
    """5 segments, log start 4, garbage in segment 1, unclean: one segment at 4, and rolls go on from there."""
    log = opened(tmp_path, segment_bytes=SIZE)
    put(log, *[rec() for _ in range(5)])
    log.close()
    file(tmp_path, ".log", 1).write_bytes(random.Random(1).randbytes(SIZE))
    with pytest.warns(kstore.DataLossWarning):
        log = opened(tmp_path, segment_bytes=SIZE, clean=False, recovery_point=0, log_start_offset=4)
    assert (bases(log), log.log_start_offset, log.log_end_offset, log.leader_epochs) == ([4], 4, 4, ())
    put(log, *[rec() for _ in range(6)])
    assert (bases(log), files(tmp_path, ".snapshot")) == ([4, 5, 6, 7, 8, 9], [5, 6, 7, 8, 9])
    log.retain()
    assert files(tmp_path, ".snapshot") == [5, 6, 7, 8, 9]
    assert offsets(log) == [4, 5, 6, 7, 8, 9]


def test_log_start_offset_above_the_end_keeps_nothing(tmp_path: Path) -> None:
    """The records in the middle are lost: everything behind a cut goes, the file of it too."""
    log = opened(tmp_path, segment_bytes=SIZE)
    put(log, *[rec() for _ in range(5)])
    log.abandon()
    file(tmp_path, ".log", 2).write_bytes(bytes(10))
    with pytest.warns(kstore.DataLossWarning, match="1 sound batch, offsets 3 to 3"):
        log = opened(tmp_path, segment_bytes=SIZE, recovery_point=0)
    assert (offsets(log), log.log_end_offset, bases(log)) == ([0, 1], 2, [0, 1, 2])
    assert files(tmp_path, ".log") == files(tmp_path, ".index") == [0, 1, 2]
    put(log, rec())
    assert offsets(log) == [0, 1, 2]


def test_empty_active_segment_without_index(tmp_path: Path) -> None:
    """Crash right after a roll: the empty segment has no index; opened, it has one."""
    log = opened(tmp_path)
    put(log, rec())
    log.roll()
    log.abandon()
    assert files(tmp_path, ".index") == [0]
    log = opened(tmp_path)
    assert (bases(log), log.log_end_offset) == ([0, 1], 1)
    assert files(tmp_path, ".index") == [0, 1]
    put(log, rec())
    assert offsets(log) == [0, 1]


def test_recovery_of_a_segment_emptied(tmp_path: Path) -> None:
    """A first segment whose every batch is garbage: it stays, empty, and the log begins anew at its base."""
    log = opened(tmp_path)
    put(log, rec(), rec())
    log.abandon()
    file(tmp_path, ".log").write_bytes(bytes(200))
    log = opened(tmp_path)
    assert (log.log_end_offset, file(tmp_path, ".log").stat().st_size) == (0, 0)
    assert put(log, rec()).first_offset == 0


def test_recovery_point_bounds_the_work(tmp_path: Path) -> None:
    """Spec 8.3: from the segment that holds the recovery point on; one before it is believed."""
    log = opened(tmp_path, segment_bytes=2 * SIZE)
    put(log, *[rec() for _ in range(8)])
    log.abandon()
    log = opened(tmp_path, segment_bytes=2 * SIZE, recovery_point=5)
    assert log.recovery.recovered_segments == [4, 6]


# ---- files that have no business there ----------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_bogus_index_segments_are_removed(tmp_path: Path, clean: bool) -> None:
    """Index files for base 5 without a log: deleted."""
    log = opened(tmp_path, segment_bytes=5 * SIZE, index_interval_bytes=1)
    put(log, *[rec() for _ in range(3)])
    log.close()
    for kind in KINDS[1:]:
        file(tmp_path, kind, 5).write_bytes(b"")
    log = opened(tmp_path, clean=clean, segment_bytes=5 * SIZE, index_interval_bytes=1)
    assert not any(file(tmp_path, kind, 5).exists() for kind in KINDS)
    put(log, *[rec() for _ in range(10)])
    assert offsets(log) == list(range(13))


def test_open_deletes_obsolete_files(tmp_path: Path) -> None:
    """.deleted files go, another file stays."""
    log = opened(tmp_path)
    put(log, rec())
    log.close()
    for kind in KINDS:
        file(tmp_path, f"{kind}.deleted", 7).write_bytes(b"x")
    (directory(tmp_path) / "notes.txt").write_text("mine")
    opened(tmp_path).close()
    assert list(directory(tmp_path).glob("*.deleted")) == []
    assert (directory(tmp_path) / "notes.txt").read_text() == "mine"


def test_load_producers_after_delete_of_stray_snapshot(tmp_path: Path) -> None:
    """Snapshot 42 in an empty directory: removed. The snapshots 1, 2, 4 and a stray 3: 1, 2, 4."""
    directory(tmp_path).mkdir()
    file(tmp_path, ".snapshot", 42).write_bytes(forge.snapshot([]))
    log = opened(tmp_path)
    assert files(tmp_path, ".snapshot") == []
    put(log, rec())
    log.roll()
    put(log, rec())
    log.roll()
    put(log, rec(), rec())
    log.roll()
    log.close()
    assert files(tmp_path, ".snapshot") == [1, 2, 4]
    file(tmp_path, ".snapshot", 3).write_bytes(forge.snapshot([]))
    opened(tmp_path)
    assert files(tmp_path, ".snapshot") == [1, 2, 4]


# ---- crashes while segments were replaced -------------------------------------------------------


def _replaced(path: Path, *, cleaned: tuple[int, ...] = (), swap: tuple[int, ...] = (), deleted: tuple[int, ...] = (),
              done: tuple[int, ...] = ()) -> kstore.LogWriter:  # fmt: skip
    """Old segments 0, 5, 10 and an active 15; what a compaction to 0 (odd offsets) and 10 has left of its work."""
    old = {base: [recs(1, base=base + i, value=b"old") for i in range(5)] for base in (0, 5, 10)}
    new = {0: [rec(b"new", base=i) for i in (1, 3, 5, 7, 9)], 10: [rec(b"new", base=i) for i in (11, 13, 14)]}
    root = forge.partition(path, {**old, 15: [rec(base=15)]}, interval=1)
    fresh = forge.partition(path / "fresh", new, interval=1)
    for base in (0, 5, 10):
        for kind in KINDS[:3]:
            source = root / f"{forge.stem(base)}{kind}"
            if base in deleted:
                source.rename(f"{source}.deleted")
    for bases_, suffix in ((cleaned, ".cleaned"), (swap, ".swap"), (done, "")):
        for base in bases_:
            for kind in KINDS[:3]:
                name = f"{forge.stem(base)}{kind}"
                (root / f"{name}{suffix}").write_bytes((fresh / name).read_bytes())
    for kind in KINDS[:3]:
        for base in new:
            (fresh / f"{forge.stem(base)}{kind}").unlink()
    return opened(path, clean=False, recovery_point=16, index_interval_bytes=1)


OLD, NEW = [*range(16)], [1, 3, 5, 7, 9, 11, 13, 14, 15]


@pytest.mark.parametrize(
    ("left", "wanted"),
    [
        ({"cleaned": (0, 10)}, OLD),
        ({"cleaned": (0,), "swap": (10,)}, OLD),
        ({"swap": (0, 10)}, NEW),
        ({"swap": (0, 10), "deleted": (5,)}, NEW),
        ({"swap": (0, 10), "deleted": (0, 5, 10)}, NEW),
        ({"swap": (10,), "deleted": (0, 5, 10), "done": (0,)}, NEW),
        ({"deleted": (0, 5, 10), "done": (0, 10)}, NEW),
    ],
)
def test_recover_after_crash_during_replacement(
    tmp_path: Path, left: dict[str, Any], wanted: list[int]
) -> None:
    """.cleaned only, or beside .swap: the old ones stay. All .swap, some final: the new ones, and no leftovers."""
    log = _replaced(tmp_path, **left)
    assert offsets(log) == wanted
    assert [
        p.name for p in directory(tmp_path).iterdir() if p.suffix in (".cleaned", ".swap", ".deleted")
    ] == []
    assert files(tmp_path, ".log") == files(tmp_path, ".index") == bases(log)
    assert put(log, rec()).first_offset == 16
    log.close()
    assert offsets(kstore.open(directory(tmp_path))) == [*wanted, 16]


# ---- transaction indexes ------------------------------------------------------------------------


def _transactions(path: Path) -> tuple[list[Any], dict[int, bytes]]:
    """pid 1 and 2 over several segments, three aborted; the indexes that were written."""
    log = opened(path, segment_bytes=5 * SIZE)
    one, two, three = Producer(1), Producer(2), Producer(3)
    put(log, one.data(5), recs(3), two.data(2), one.data(4), three.data(3), recs(2), one.data(10))
    end(log, one.marker(ABORT))
    put(log, two.data(6), recs(10), three.data(9))
    end(log, three.marker(COMMIT))
    put(log, two.data(7))
    end(log, two.marker(ABORT))
    put(log, recs(10), three.data(4))
    end(log, three.marker(ABORT))
    aborted = log.aborted_transactions(0, log.log_end_offset)
    assert [t.producer_id for t in aborted] == [1, 2, 3]
    log.flush()
    log.abandon()
    return aborted, {b: file(path, ".txnindex", b).read_bytes() for b in files(path, ".txnindex")}


@pytest.mark.parametrize("lost", ["", "*.snapshot", "*.txnindex"])
def test_full_transaction_index_recovery(tmp_path: Path, lost: str) -> None:
    """Every index garbled, recovery point 0: all are made again; without snapshots too."""
    aborted, before = _transactions(tmp_path)
    for base in before:
        file(tmp_path, ".txnindex", base).write_bytes(b"x" * 34)
    if lost:
        drop(tmp_path, lost)
    log = opened(tmp_path, segment_bytes=5 * SIZE, recovery_point=0)
    assert log.aborted_transactions(0, log.log_end_offset) == aborted
    assert {
        b: file(tmp_path, ".txnindex", b).read_bytes()
        for b in files(tmp_path, ".txnindex")
        if file(tmp_path, ".txnindex", b).stat().st_size
    } == before


@pytest.mark.parametrize("snapshots", [True, False])
def test_recover_only_last_segment(tmp_path: Path, snapshots: bool) -> None:
    """Recovery point in the last segment: only its index is made again, and right, without snapshots too."""
    aborted, before = _transactions(tmp_path)
    last = max(files(tmp_path, ".log"))
    assert last in before
    file(tmp_path, ".txnindex", last).unlink()
    stamps = {b: file(tmp_path, ".txnindex", b).stat().st_mtime_ns for b in before if b != last}
    if not snapshots:
        drop(tmp_path, "*.snapshot")
    log = opened(tmp_path, segment_bytes=5 * SIZE, recovery_point=last)
    assert log.recovery.recovered_segments == [last]
    assert log.aborted_transactions(0, log.log_end_offset) == aborted
    assert file(tmp_path, ".txnindex", last).read_bytes() == before[last]
    assert {b: file(tmp_path, ".txnindex", b).stat().st_mtime_ns for b in stamps} == stamps


def test_recover_partial_transaction_index(tmp_path: Path) -> None:
    """Recovery point in the middle: indexes below it are believed, those above made again."""
    aborted, before = _transactions(tmp_path)
    point = files(tmp_path, ".log")[-3]
    assert sum(base >= point for base in before) == 2
    for base in before:
        if base >= point:
            file(tmp_path, ".txnindex", base).write_bytes(b"")
    log = opened(tmp_path, segment_bytes=5 * SIZE, recovery_point=point)
    assert log.aborted_transactions(0, log.log_end_offset) == aborted
    assert {b: file(tmp_path, ".txnindex", b).read_bytes() for b in before} == before


# ---- producers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", ["close", "abandon"])
def test_producers_survive_delete_records_mid_segment(tmp_path: Path, leave: str) -> None:
    """DeleteRecords in the middle of a segment: both producers are still known after reloading."""
    log = opened(tmp_path)
    put(log, idempotent(1, 0), idempotent(2, 0))
    log.delete_records(1)
    assert sorted(log.producers()) == [1, 2]
    log.close() if leave == "close" else log.abandon()
    log = opened(tmp_path)
    assert log.log_start_offset == 1
    assert sorted(log.producers()) == [1, 2]


def test_producers_after_delete_records_on_segment_boundary(tmp_path: Path) -> None:
    """DeleteRecords on a segment's boundary, files deleted: only the producers still in the log after reloading."""
    log = opened(tmp_path, file_delete_delay_ms=0)
    put(log, idempotent(1, 0))
    log.roll()
    put(log, idempotent(2, 0))
    log.delete_records(1)
    log.retain()
    assert (bases(log), sorted(log.producers())) == ([1], [1, 2])
    log.abandon()
    log = opened(tmp_path)
    assert sorted(log.producers()) == [2]


def test_load_from_corrupt_snapshot(tmp_path: Path) -> None:
    """ProducerStateManagerTest: a corrupt snapshot is deleted, and the older one serves."""
    for at, spoil in enumerate((lambda b: b"", lambda b: b[: len(b) // 2], lambda b: bytes(37) + b[37:])):
        path = tmp_path / str(at)
        log = opened(path)
        put(log, idempotent(1, 0))
        log.roll()
        put(log, idempotent(1, 1))
        log.close()
        newest = file(path, ".snapshot", 2)
        newest.write_bytes(spoil(newest.read_bytes()))
        log = opened(path)
        assert log.producers()[1].batches[-1].last_sequence == 1
        put(log, idempotent(1, 2))


def test_snapshot_holds_the_last_batch(tmp_path: Path) -> None:
    """Spec 3.5, 6.7: what a roll writes; the sequence goes on after reopening."""
    log = opened(tmp_path)
    put(log, idempotent(42, 0, 2, epoch=1))
    log.roll()
    wanted = (42, 1, 1, 1, 1, T0, -1, -1)
    assert struct.unpack_from(">qhiqiqiq", file(tmp_path, ".snapshot", 2).read_bytes(), 10) == wanted
    log.close()
    log = opened(tmp_path)
    assert put(log, idempotent(42, 0, 2, epoch=1)).duplicate
    put(log, idempotent(42, 2, epoch=1))


@pytest.mark.parametrize("clean", [True, False])
def test_segments_with_overflow_are_split(tmp_path: Path, clean: bool) -> None:
    """UnifiedLogTest: the middle one of three segments spans too much: four segments, on disk, the same records."""
    far = forge.MAX32 + 11
    segments = {
        0: [rec(base=0), rec(base=1)],
        10: [rec(base=10), rec(base=11), rec(base=far + 10), rec(base=far + 12)],
        far + 20: [rec(base=far + 20)],
    }
    forge.partition(tmp_path, segments, index=False)
    log = opened(tmp_path, clean=clean, recovery_point=0)
    wanted = [0, 1, 10, 11, far + 10, far + 12, far + 20]
    assert (offsets(log), bases(log)) == (wanted, [0, 10, far + 10, far + 20])
    assert files(tmp_path, ".log") == bases(log)
    put(log, rec())
    log.close()
    assert offsets(kstore.open(directory(tmp_path))) == [*wanted, far + 21]


def test_degenerate_segment_split(tmp_path: Path) -> None:
    """A segment whose only batches are above MAX32: one segment with their base."""
    far = forge.MAX32 + 1
    forge.partition(tmp_path, {0: [rec(base=far), rec(base=far + 1)]}, index=False)
    log = opened(tmp_path, clean=False)
    assert (offsets(log), bases(log), files(tmp_path, ".log")) == ([far, far + 1], [far], [far])


def test_delete_directory_without_files(tmp_path: Path) -> None:
    """A `-delete` directory without files loads with one segment."""
    log = kstore.open(tmp_path / f"foo-1.{'0' * 32}-delete", "a", clock=Clock())
    assert (bases(log), log.log_end_offset) == ([0], 0)


def test_follower_offsets_above_the_base(tmp_path: Path) -> None:
    """A segment that begins with an offset far above its base opens with that offset, cleanly and not."""
    log = opened(tmp_path)
    follow(log, rec(base=1000))
    log.close()
    for clean in (True, False):
        log = opened(tmp_path, clean=clean)
        assert (log.log_end_offset, offsets(log)[0]) == (1001, 1000)
        log.close()


def test_truncation_gap_is_lost_at_restart(tmp_path: Path) -> None:
    """Spec 8.9: truncated into the middle of a batch, then restarted: the end is that of the batch before."""
    log = opened(tmp_path)
    put(log, forge.batch(Rec(), Rec()), forge.batch(Rec(), Rec(), Rec()))
    log.truncate_to(3)
    assert log.log_end_offset == 3
    log.abandon()
    assert opened(tmp_path).log_end_offset == 2


@pytest.mark.parametrize("ended", ["flush", "close"])
def test_truncation_gap_is_kept_by_flush_and_close(tmp_path: Path, ended: str) -> None:
    """Beyond Kafka: the next offset that was promised is the next offset of a later opening too, torn tail or not."""
    log = opened(tmp_path)
    put(log, forge.batch(Rec(), Rec()), forge.batch(Rec(), Rec(), Rec()))
    log.truncate_to(3)
    getattr(log, ended)()
    if ended == "flush":
        assert log.durable_offset == 3
        put(log, rec(b"unflushed"))
        log.abandon()
        torn = file(tmp_path, ".log", 3)
        os.truncate(torn, torn.stat().st_size - 1)
    log = opened(tmp_path)
    assert (log.log_end_offset, log.recovery.losses) == (3, [])
    assert put(log, rec()).first_offset == 3
    assert offsets(log) == [0, 1, 3]


@pytest.mark.parametrize("ended", ["close", "abandon"])
@pytest.mark.parametrize("then", ["flush", "roll", "append"])
def test_a_truncation_gap_is_not_missing(tmp_path: Path, ended: str, then: str) -> None:
    """Beyond Kafka: an empty segment lies before it, however large the batch was that went."""
    log = opened(tmp_path, internal_segment_bytes=320)
    put(log, forge.batch(Rec(), Rec(), Rec()), forge.batch(*[Rec()] * 14))
    log.truncate_to(14)
    if then != "append":
        getattr(log, then)()
    put(log, rec(b"-" * 200))  # there is no room for it in the first segment
    assert [segment.base_offset for segment in log.segments] == [0, 3, 14]
    getattr(log, ended)()
    for _ in range(2):
        with kstore.open(log.path) as reader:
            assert offsets(reader) == [0, 1, 2, 14]
            assert not reader.recovery.findings
        log = opened(tmp_path)
        assert (log.recovery.findings, log.log_end_offset) == ([], 15)
        log.close()
