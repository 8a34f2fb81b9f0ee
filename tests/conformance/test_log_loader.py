"""LogLoaderTest: opening after a clean stop, and after a crash at any point, to read and to write."""

import contextlib
import random
import struct
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.conformance.writing import (
    SIZE,
    Clock,
    Producer,
    bases,
    drop,
    end,
    entries,
    epochs_on_disk,
    file,
    files,
    follow,
    idempotent,
    offsets,
    opened,
    put,
    rec,
    recs,
)
from tests.helpers import forge
from tests.helpers.forge import ABORT, COMMIT, MAX32, T0, Rec, simple

KINDS = (".log", ".index", ".timeindex", ".txnindex")
MODES = pytest.mark.parametrize("mode", ["r", "a"])


def leftovers(path: Path) -> list[str]:
    found = (path / "topic-0").iterdir()
    return [p.name for p in found if p.suffix in (".cleaned", ".swap", ".deleted")]


# ---- recovery ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("leave", "point"), [("close", 100), ("abandon", 10), ("close", 0), ("abandon", 99)])
def test_log_recovers_to_correct_offset(tmp_path: Path, leave: str, point: int) -> None:
    """100 messages, segments of 7, an entry every 300 bytes, unclean: the same end, entries, and files."""
    config: dict[str, Any] = {"index_interval_bytes": 300, "segment_index_bytes": 4096}
    clock = Clock()
    log = opened(tmp_path, clock, segment_bytes=700, **config)
    put(log, *[rec(b"x" * 30, timestamp=T0 + 10 * i) for i in range(100)])
    before = [entries(s)[0] for s in log.segments]
    getattr(log, leave)()
    reader = kstore.open(log.path, clean=False, recovery_point=point, index_interval_bytes=300)
    log = opened(tmp_path, clock, segment_bytes=700, clean=False, recovery_point=point, **config)
    for each in (reader, log):
        assert each.log_end_offset == 100
        assert [entries(s)[0] for s in each.segments] == before
        assert each.segments[-1].max_timestamp_so_far == (T0 + 990, 99)
        assert each.recovery.recovery_point == point
    assert log.segments[-1].time_index.last_entry == (T0 + 990, 99)
    assert (log.durable_offset, log.flush(), log.durable_offset) == (point, 100, 100)
    log.close()
    log = opened(tmp_path, clock, segment_bytes=700, **config)
    assert (log.recovery.clean, log.log_end_offset, log.durable_offset) == (True, 100, 100)


FIFTY = {"segment_bytes": 200, "index_interval_bytes": 1}


def _fifty(path: Path) -> dict[str, bytes]:
    """50 messages in 200-byte segments, closed; the bytes of their indexes."""
    log = opened(path, **FIFTY)
    put(log, *[rec(timestamp=T0 + 10 * i) for i in range(50)])
    log.close()
    return {p.name: p.read_bytes() for p in (path / "topic-0").glob("*index")}


@pytest.mark.parametrize(("kind", "damage"), [("*.index", None), ("*.timeindex", b"  "), ("*index", b"  ")])
def test_index_rebuild(tmp_path: Path, kind: str, damage: bytes | None) -> None:
    """Indexes deleted, or overwritten with two spaces; unclean: the files are made as they were."""
    before = _fifty(tmp_path)
    damaged = list((tmp_path / "topic-0").glob(kind))
    drop(tmp_path, kind)
    for path in damaged if damage else []:
        path.write_bytes(damage or b"")
    log = opened(tmp_path, clean=False, recovery_point=0, **FIFTY)
    assert log.log_end_offset == 50
    for i in range(50):
        assert log.get(i).offset == i
        assert log.find(timestamp=T0 + 10 * i) == (i, T0 + 10 * i, 0)
    log.close()
    assert {p.name: p.read_bytes() for p in (tmp_path / "topic-0").glob("*index")} == before


def test_clean_start_without_indexes(tmp_path: Path) -> None:
    """Spec 8.2: after a clean stop lost time indexes are made, but empty; lost offset indexes by recovery."""
    before = _fifty(tmp_path)
    drop(tmp_path, "*.timeindex")
    log = opened(tmp_path, clean=True, **FIFTY)
    sizes = {file(tmp_path, ".timeindex", base).stat().st_size for base in bases(log)[:-1]}
    assert (sizes, log.log_end_offset) == ({0}, 50)
    log.close()
    drop(tmp_path, "*.index")
    opened(tmp_path, clean=True, **FIFTY).close()
    assert {p.name: p.read_bytes() for p in (tmp_path / "topic-0").glob("*index")} == before


def test_corrupt_log(tmp_path: Path) -> None:
    """50 to 99 messages, 1 to 1024 random bytes after the last log and index, unclean: all are back."""
    for seed in range(10):
        path = tmp_path / str(seed)
        chance = random.Random(seed)
        count, garbage = chance.randrange(50, 100), chance.randrange(1, 1025)
        log = opened(path, segment_bytes=1000, index_interval_bytes=1)
        put(log, *[rec(b"%4d" % i) for i in range(count)])
        last = bases(log)[-1]
        log.abandon()
        for kind in (".index", ".log"):
            with file(path, kind, last).open("ab") as f:
                f.write(chance.randbytes(garbage))
        reader = kstore.open(log.path, recovery_point=0)
        log = opened(path, recovery_point=0, segment_bytes=1000, index_interval_bytes=1)
        for each in (reader, log):
            assert [(r.offset, r.value) for r in each] == [(i, b"%4d" % i) for i in range(count)]
            assert each.recovery.truncated_bytes == garbage
        assert put(log, rec()).first_offset == count


@MODES
@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_log_start_offset_above_the_end(tmp_path: Path, mode: Any) -> None:
    """5 segments, log start 4, garbage in segment 1, unclean: one segment at 4, and rolls continue there."""
    log = opened(tmp_path, segment_bytes=SIZE)
    put(log, *[rec() for _ in range(5)])
    log.close()
    file(tmp_path, ".log", 1).write_bytes(random.Random(1).randbytes(SIZE))
    options: dict[str, Any] = {"internal_segment_bytes": SIZE} if mode == "a" else {}
    with pytest.warns(kstore.DataLossWarning) if mode == "a" else contextlib.nullcontext():
        log = kstore.open(log.path, mode, clean=False, recovery_point=0, log_start_offset=4, **options)
    assert (log.log_start_offset, log.log_end_offset, log.leader_epochs, list(log)) == (4, 4, (), [])
    if mode == "a":
        assert bases(log) == [4]
        put(log, *[rec() for _ in range(6)])
        assert (bases(log), files(tmp_path, ".snapshot")) == ([4, 5, 6, 7, 8, 9], [5, 6, 7, 8, 9])
        log.retain()
        assert files(tmp_path, ".snapshot") == [5, 6, 7, 8, 9]
        assert offsets(log) == [4, 5, 6, 7, 8, 9]


def test_everything_behind_a_cut_goes(tmp_path: Path) -> None:
    """The records in the middle are lost: those behind them go, the file of them too."""
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


def test_log_recovers_for_leader_epoch(tmp_path: Path) -> None:
    """Epochs (1,0), (2,1), (3,3) that the file has lost come back in recovery."""
    log = opened(tmp_path)
    follow(log, rec(epoch=1), rec(base=1, epoch=2))
    follow(log, rec(base=3, epoch=3))
    log.abandon()
    (tmp_path / "topic-0" / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    log = opened(tmp_path, clean=False)
    assert log.leader_epochs == ((1, 0), (2, 1), (3, 3))
    assert epochs_on_disk(tmp_path) == [(1, 0), (2, 1), (3, 3)]


@MODES
@pytest.mark.parametrize("clean", [True, False])
def test_log_start_offset_of_an_empty_directory(tmp_path: Path, clean: bool, mode: Any) -> None:
    """Log start 500 on an empty directory: start and end are 500. A `-delete` directory without files: 0."""
    path = forge.partition(tmp_path, {})
    log = kstore.open(path, mode, clean=clean, log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset, list(log)) == (500, 500, [])
    assert (log.read(500).size, log.find(timestamp="earliest")) == (0, (500, -1, None))
    if mode == "a":
        assert (bases(log), put(log, rec()).first_offset) == ([500], 500)
    log = kstore.open(forge.partition(tmp_path, {}, name=f"foo-1.{'0' * 32}-delete"), mode)
    assert (log.topic_partition, log.log_start_offset, log.log_end_offset) == (("foo", 1), 0, 0)


# ---- files that have no business there -----------------------------------------------------------


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
    log = opened(tmp_path, segment_bytes=SIZE, retention_ms=999)
    put(log, *[rec(timestamp=T0 - 1000)] * 3)
    log.retain()
    assert len(leftovers(tmp_path)) >= 9
    log.abandon()
    (tmp_path / "topic-0" / "notes.txt").write_text("mine")
    log = opened(tmp_path)
    assert leftovers(tmp_path) == []
    assert (tmp_path / "topic-0" / "notes.txt").read_text() == "mine"
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_load_producers_after_delete_of_stray_snapshot(tmp_path: Path) -> None:
    """Snapshot 42 in an empty directory, and 3 beside 1, 2, 4, are removed by a writer, not by a reader."""
    (tmp_path / "topic-0").mkdir()
    file(tmp_path, ".snapshot", 42).write_bytes(forge.snapshot([]))
    log = opened(tmp_path)
    assert files(tmp_path, ".snapshot") == []
    for count in (1, 1, 2):
        put(log, *[rec()] * count)
        log.roll()
    log.close()
    assert files(tmp_path, ".snapshot") == [1, 2, 4]
    file(tmp_path, ".snapshot", 3).write_bytes(forge.snapshot([]))
    assert kstore.open(log.path).producers() == {}
    assert files(tmp_path, ".snapshot") == [1, 2, 3, 4]
    opened(tmp_path)
    assert files(tmp_path, ".snapshot") == [1, 2, 4]


# ---- crashes while segments were replaced --------------------------------------------------------


def _replaced(
    path: Path,
    *,
    cleaned: tuple[int, ...] = (),
    swap: tuple[int, ...] = (),
    deleted: tuple[int, ...] = (),
    done: tuple[int, ...] = (),
) -> kstore.LogWriter:
    """Old segments 0, 5, 10 and an active 15; the leftovers of a compaction to 0 (odd offsets) and 10."""
    old = {base: [rec(b"old", base=base + i) for i in range(5)] for base in (0, 5, 10)}
    new = {0: [rec(b"new", base=i) for i in (1, 3, 5, 7, 9)], 10: [rec(b"new", base=i) for i in (11, 13, 14)]}
    root = forge.partition(path, {**old, 15: [rec(base=15)]}, interval=1)
    fresh = forge.partition(path / "fresh", new, interval=1, name="fresh")
    for base in deleted:
        for kind in KINDS[:3]:
            file(path, kind, base).rename(file(path, f"{kind}.deleted", base))
    for some, suffix in ((cleaned, ".cleaned"), (swap, ".swap"), (done, "")):
        for base in some:
            for kind in KINDS[:3]:
                name = f"{forge.stem(base)}{kind}"
                (root / f"{name}{suffix}").write_bytes((fresh / name).read_bytes())
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
    tmp_path: Path, left: dict[str, tuple[int, ...]], wanted: list[int]
) -> None:
    """.cleaned only, or beside .swap: the old ones stay. All .swap, some final: the new ones."""
    log = _replaced(tmp_path, **left)
    assert offsets(log) == wanted
    assert leftovers(tmp_path) == []
    assert files(tmp_path, ".log") == files(tmp_path, ".index") == bases(log)
    assert put(log, rec()).first_offset == 16
    log.close()
    assert offsets(kstore.open(log.path)) == [*wanted, 16]


# ---- transaction indexes -------------------------------------------------------------------------


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
    found = {base: file(tmp_path, ".txnindex", base).read_bytes() for base in files(tmp_path, ".txnindex")}
    assert {base: data for base, data in found.items() if data} == before


@pytest.mark.parametrize("snapshots", [True, False])
@pytest.mark.parametrize("spoiled", [1, 2])
def test_recover_last_segments(tmp_path: Path, snapshots: bool, spoiled: int) -> None:
    """test_recover_only_last_segment, test_recover_partial_transaction_index: indexes below the recovery
    point are kept, those above made again, without snapshots too."""
    aborted, before = _transactions(tmp_path)
    point = sorted(before)[-spoiled]
    stamps = {b: file(tmp_path, ".txnindex", b).stat().st_mtime_ns for b in before if b < point}
    for base in before:
        if base >= point:
            file(tmp_path, ".txnindex", base).write_bytes(b"")
    if not snapshots:
        drop(tmp_path, "*.snapshot")
    log = opened(tmp_path, segment_bytes=5 * SIZE, recovery_point=point)
    assert log.recovery.recovered_segments == [base for base in bases(log) if base >= point]
    assert log.aborted_transactions(0, log.log_end_offset) == aborted
    assert {b: file(tmp_path, ".txnindex", b).read_bytes() for b in before} == before
    assert {b: file(tmp_path, ".txnindex", b).stat().st_mtime_ns for b in stamps} == stamps


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_corrupt_transaction_index_is_recovered(tmp_path: Path) -> None:
    """Spec 8.2, 8.4: after a clean stop too its segment is recovered, and cut where a batch is corrupt."""
    wrong = {0: [(1, -20, -10, -5)]}
    producer = Producer(1)
    batches = [producer.data(10), producer.marker(ABORT, 10)]
    path = forge.partition(tmp_path / "txn", {0: batches}, aborted=wrong)
    assert kstore.open(path, clean=True).aborted_transactions(0, 11) == [(1, 0, 10, 11, 0)]
    batches = [simple(i) for i in range(4)]
    batches[2] = batches[2][:-1] + b"!"
    log = kstore.open(forge.partition(tmp_path, {0: batches}, aborted=wrong), clean=True)
    assert (log.log_end_offset, offsets(log)) == (2, [0, 1])


# ---- producers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", ["close", "abandon"])
def test_producers_survive_delete_records_mid_segment(tmp_path: Path, leave: str) -> None:
    """DeleteRecords in the middle of a segment: both producers are still known after reloading."""
    log = opened(tmp_path)
    put(log, idempotent(1, 0), idempotent(2, 0))
    log.delete_records(1)
    assert sorted(log.producers()) == [1, 2]
    getattr(log, leave)()
    log = opened(tmp_path)
    assert (log.log_start_offset, sorted(log.producers())) == (1, [1, 2])


def test_producers_after_delete_records_on_segment_boundary(tmp_path: Path) -> None:
    """DeleteRecords on a segment's boundary: only producers still in the log are reloaded."""
    log = opened(tmp_path, file_delete_delay_ms=0)
    put(log, idempotent(1, 0))
    log.roll()
    put(log, idempotent(2, 0))
    log.delete_records(1)
    log.retain()
    assert (bases(log), sorted(log.producers())) == ([1], [1, 2])
    log.abandon()
    assert sorted(opened(tmp_path).producers()) == [2]


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


@pytest.mark.parametrize(("clean", "point", "all_"), [(True, 101, 0), (False, 101, 0), (False, 0, 1)])
def test_recover_after_upgrade_without_snapshots(tmp_path: Path, clean: bool, point: int, all_: int) -> None:
    """101 records in 640-byte segments, all snapshots deleted: the last ones are made again, or all."""
    log = opened(tmp_path, segment_bytes=640)
    put(log, *[rec()] * 101)
    known = bases(log)
    log.close()
    drop(tmp_path, "*.snapshot")
    opened(tmp_path, segment_bytes=640, clean=clean, recovery_point=point)
    assert files(tmp_path, ".snapshot") == [*(known[1:] if all_ else known[-2:]), 101]


# ---- offsets far apart ---------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize(("index", "clean"), [(True, False), (False, False), (False, True)])
def test_segments_with_overflow_are_split(tmp_path: Path, index: bool, clean: bool, mode: Any) -> None:
    """UnifiedLogTest: the middle one of three segments spans too much: four segments, the same records.

    Spec 8.2: a segment without an index is recovered, and split, after a clean shutdown too."""
    far = MAX32 + 11
    middle = [simple(base) for base in (10, 11, far + 10, far + 12)]
    segments = {0: [simple(0), simple(1)], 10: middle, far + 20: [simple(far + 20)]}
    path = forge.partition(tmp_path, segments, index=False)
    for base in segments if index else ():
        file(tmp_path, ".index", base).touch()
        file(tmp_path, ".timeindex", base).touch()
    log = kstore.open(path, mode, clean=clean, recovery_point=0)
    wanted = [0, 1, 10, 11, far + 10, far + 12, far + 20]
    assert (offsets(log), bases(log)) == (wanted, [0, 10, far + 10, far + 20])
    for offset in wanted:
        assert log.get(offset).offset == offset
        assert offsets(log.read(offset, 1)) == [offset]
    if mode == "a":
        assert files(tmp_path, ".log") == bases(log)
        put(log, rec())
        log.close()
        assert offsets(kstore.open(path)) == [*wanted, far + 21]


@MODES
def test_degenerate_segment_split(tmp_path: Path, mode: Any) -> None:
    """A segment whose only batches are above MAX32: one segment with their base."""
    far = MAX32 + 1
    path = forge.partition(tmp_path, {0: [simple(far), simple(far + 1)]}, index=False)
    log = kstore.open(path, mode, clean=False)
    assert (offsets(log), bases(log), log.log_end_offset) == ([far, far + 1], [far], far + 2)
    assert mode == "r" or files(tmp_path, ".log") == [far]


def test_follower_offsets_above_the_base(tmp_path: Path) -> None:
    """A segment that begins with an offset far above its base opens with that offset, cleanly and not."""
    log = opened(tmp_path)
    follow(log, rec(base=1000))
    log.close()
    for clean in (True, False):
        log = opened(tmp_path, clean=clean)
        assert (log.log_end_offset, offsets(log)[0]) == (1001, 1000)
        log.close()


@pytest.mark.parametrize(("last", "expected"), [(MAX32, [0]), (MAX32 + 1, [0, MAX32 + 1])])
def test_offsets_too_far_apart_roll(tmp_path: Path, last: int, expected: list[int]) -> None:
    """A follower's offsets 0, then above MAX32: a new segment, with its snapshot."""
    log = opened(tmp_path)
    follow(log, rec())
    follow(log, rec(base=last))
    assert bases(log) == expected
    assert files(tmp_path, ".snapshot") == expected[1:]
    assert offsets(log) == [0, last]


def test_over_compacted_log_recovery_multi_record_v1(tmp_path: Path) -> None:
    """Wrappers of magic 1 tell no first offset: bases 3 (last one less MAX32) and MAX32+4 (the end)."""
    log = opened(tmp_path)
    wanted = [[0], [MAX32 + 2, MAX32 + 3], [MAX32 + 20, MAX32 + 21, MAX32 + 22]]
    for some in wanted:
        inner = [forge.message(offset - some[0], b"v") for offset in some]
        follow(log, forge.wrapper(some[-1], inner))
    assert bases(log) == files(tmp_path, ".log") == [0, 3, MAX32 + 4]
    assert files(tmp_path, ".snapshot") == [3, MAX32 + 4]
    assert offsets(log) == [offset for some in wanted for offset in some]


# ---- truncated into the middle of a batch --------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("ended", ["close", "abandon"])
def test_truncation_keeps_the_first_records_of_a_batch(tmp_path: Path, ended: str, codec: str) -> None:
    """Beyond Kafka: the log ends at the offset after each opening, a crash included."""
    log = opened(tmp_path)
    put(log, recs(2), forge.batch(*[Rec()] * 14, codec=codec))
    log.truncate_to(11)
    assert offsets(log) == list(range(11))
    getattr(log, ended)()
    for _ in range(2):
        with kstore.open(log.path) as reader:
            assert offsets(reader) == list(range(11))
        log = opened(tmp_path)
        assert (log.recovery.findings, log.log_end_offset) == ([], 11)
        assert {batch.codec for batch in log.batches(2)} == {codec}
        log.close()


def test_truncation_behind_a_hole_leaves_an_empty_batch(tmp_path: Path) -> None:
    """Compaction has removed the records before the offset."""
    log = opened(tmp_path, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
    put(log, *[rec(b"v", key=b"k")] * 10)
    log.roll()
    put(log, rec(b"v", key=b"k"))
    log.roll()
    log.compact()
    assert offsets(log) == [10]
    log.truncate_to(6)
    log.abandon()
    log = opened(tmp_path)
    assert (offsets(log), log.log_end_offset, log.recovery.losses) == ([], 6, [])
    assert put(log, rec(key=b"k")).first_offset == 6
