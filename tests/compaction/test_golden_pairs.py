"""What Kafka's cleaner made of a log, made by kstore's: the same files, batches, horizons and indexes."""

import os
import shutil
from pathlib import Path

import pytest

import kstore
from tests.compaction.stages import check_same, cleaning, names, stage, unpacked
from tests.golden.batches import shape
from tests.golden.replay import Replay
from tests.helpers.files import contents

# before, after, the time of the cleaning, Kafka's figures: first dirty, first uncleanable, records, bytes
PAIRS = [
    ("compact_1_dirty", "compact_2_cleaned", 1701111941954, (0, 797, 797, 60, 63806)),
    ("compact_3_grown", "compact_4_tombstones_gone", 1701112980330, (797, 1112, 375, 70, 30635)),
    ("compact_txn_1_dirty", "compact_txn_2_cleaned", 1703032239171, (0, 227, 227, 75, 23423)),
]


@pytest.mark.parametrize(("before", "after", "now", "figures"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_pair(before: str, after: str, now: int, figures: tuple[int, ...], tmp_path: Path) -> None:
    ours = unpacked(stage(before), tmp_path / "ours")
    theirs = unpacked(stage(after), tmp_path / "theirs")
    config = cleaning(stage(after).open()["config"])
    with kstore.open(ours, "a", config=config, clock=lambda: now, clean=True) as log:
        told = log.compact(dry_run=True)
        kept = contents(ours)
        assert told.dry_run
        assert contents(ours) == kept
        done = log.compact()
        assert done == told._replace(dry_run=False)
        found = (
            done.first_dirty_offset,
            done.end_offset,
            sum(s.records_before for s in done.segments),
            sum(s.records_after for s in done.segments),
            sum(s.bytes_before for s in done.segments),
        )
        assert found == figures
        assert done.first_uncleanable_offset == done.end_offset
    check_same(ours, theirs, config.index_interval_bytes)


def test_old_formats(tmp_path: Path) -> None:
    """Two cleanings; the second one uses the times of the files, which the story sets."""
    before, after = stage("compact_magic1_1_dirty"), stage("compact_magic1_2_cleaned")
    whole = unpacked(before, tmp_path / "whole")
    theirs = unpacked(after, tmp_path / "theirs")
    config = cleaning(after.open()["config"])
    ours = tmp_path / "ours" / before.partition
    ours.mkdir(parents=True)
    (ours.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    first_part = [
        path for path in whole.iterdir() if path.name[:20].isdecimal() and int(path.name[:20]) < 203
    ]
    for path in [*first_part, whole / "leader-epoch-checkpoint", whole / "partition.metadata"]:
        shutil.copy2(path, ours)

    def clean(now: int, times: dict[str, int]) -> kstore.Compaction:
        for log in ours.glob("*.log"):
            ms = times.get(log.name, times[""])
            os.utime(log, ns=(ms * 10**6, ms * 10**6))
        with kstore.open(ours, "a", config=config, clock=lambda: now, clean=True) as log:
            return log.compact()

    done = clean(1700091973326, {"": 1700091973326})
    assert (done.first_dirty_offset, done.end_offset, done.records_removed) == (0, 151, 151 - 37)
    for path in whole.iterdir():
        if path.name[:20].isdecimal() and int(path.name[:20]) >= 203:
            shutil.copy2(path, ours)
    done = clean(1700092303667, {"": 1700092303667, "00000000000000000000.log": 1700092003667})
    assert (done.first_dirty_offset, done.end_offset, done.records_removed) == (151, 407, 293 - 40)
    assert names(ours) == names(theirs)
    mine, kafkas = kstore.open(ours, clean=True), kstore.open(theirs, clean=True)
    for a, b in zip(mine.batches(), kafkas.batches(), strict=True):
        # between the cleanings the clock of the other story was set forward
        assert shape(a, 320_000 if a.base_offset >= 203 else 0) == shape(b)
    for one, other in zip(mine.segments, kafkas.segments, strict=True):
        assert [e.offset for e in one.offset_index] == [e.offset for e in other.offset_index]


def test_three_cleanings_of_transactions(tmp_path: Path) -> None:
    """Aborted data is removed, then markers get a horizon, then they are removed: byte for byte."""
    last = stage("compact_txn_4_markers_gone")
    theirs = unpacked(last, tmp_path / "theirs")
    ours = tmp_path / "ours" / last.partition
    ours.parent.mkdir()
    (ours.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    replay = Replay(ours, {})
    for operation in last.lines("ops.jsonl"):
        result = replay.run(operation)
        if operation["op"] == "clean":
            assert result is not None
            expected = operation["result"]
            assert result == {key: expected[key] for key in result}
    assert replay.exact
    for path in theirs.iterdir():
        assert (ours / path.name).read_bytes() == path.read_bytes(), path.name
    check_same(ours, theirs, 512)
