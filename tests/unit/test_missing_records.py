"""Opening reports records that are missing before, between and behind segments, and no other gap."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.files import contents, flip
from tests.helpers.markers import end_transaction, transactional
from tests.unit.logs import filled as ten

COMPACTED = "cleaner-offset-checkpoint"


def filled(path: Path, *, count: int = 40, batch: int = 1, **options: Any) -> list[Path]:
    """Segments of about eight records."""
    with kstore.open(path, "a", internal_segment_bytes=1000, **options) as log:
        for at in range(0, count, batch):
            log.extend([b"%03d" % i * 15 for i in range(at, at + batch)], [b"k"] * batch)
    return sorted(path.glob("*.log"))


def clean(path: Path, mode: str = "r") -> list[str]:
    with kstore.open(path, mode) as log:
        return [finding.kind for finding in log.recovery.findings]


def told(path: Path, mode: str) -> tuple[list[kstore.Record], str]:
    """The records, and the text of the one finding; a warning says the same."""
    opened = []

    def read() -> list[kstore.Record]:
        opened.append(kstore.open(path, mode))
        return list(opened[0])

    with pytest.warns(kstore.DataLossWarning) as warned:
        records = read()
    with opened[0] as log:
        (finding,) = (f for f in log.recovery.findings if f.kind == "gap")
        assert finding.text in str(warned[0].message)
        return records, finding.text


@pytest.mark.parametrize("damage", ["emptied", "cut", "no log", "no file"])
@pytest.mark.parametrize(("mode", "unclean"), [("r", False), ("a", True)])
def test_a_middle_segment_without_its_records(tmp_path: Path, mode: str, damage: str, unclean: bool) -> None:
    path = tmp_path / "t-0"
    logs = filled(path)
    segments = kstore.open(path).segments
    gone = list(range(segments[1].base_offset, segments[2].base_offset))
    if damage == "emptied":
        os.truncate(logs[1], 0)
    elif damage == "cut":
        position = int(segments[1].read_headers()["position"][-3])
        os.truncate(logs[1], position)
        gone = gone[-3:]
    else:
        for file in path.glob(f"{logs[1].stem}.*") if damage == "no file" else [logs[1]]:
            file.unlink()
    if unclean:
        (path / ".kafka_cleanshutdown").unlink()
    records, text = told(path, mode)
    assert [r.offset for r in records] == [o for o in range(40) if o not in gone]
    assert f"offsets {gone[0]} to {gone[-1]} " in text
    assert not list(path.glob("*.cut"))


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize("how", ["an index is left", "the checkpoint tells"])
def test_a_first_segment_without_its_log(tmp_path: Path, mode: str, how: str) -> None:
    """If a broker was the last to write there, it may be a topic with remote storage: that is no loss."""
    path = tmp_path / "t-0"
    logs = filled(path)
    first = 0
    if how == "the checkpoint tells":
        first = 3
        with kstore.open(path, "a") as log:
            log.delete_records(first)
    second = kstore.open(path).segments[1].base_offset
    for file in path.glob(f"{logs[0].stem}.*") if first else [logs[0]]:
        file.unlink()
    if first:
        marker = path / ".kafka_cleanshutdown"
        own = marker.read_bytes()
        marker.write_text('{"version":0,"brokerEpoch":5}')
        log = kstore.open(path)
        assert len(list(log)) == 40 - second  # and nothing is warned of
        assert [finding.kind for finding in log.recovery.findings] == ["gap"]
        marker.write_bytes(own)
    records, text = told(path, mode)
    assert [r.offset for r in records] == list(range(second, 40))
    assert f"offsets {first} to {second - 1} are in no segment" in text
    if mode == "a":
        assert clean(path) == []  # it is told once


def test_what_retention_deleted_is_not_missed(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    filled(path)
    with kstore.open(path, "a", retention_ms=-1) as log:
        log.delete_records(10)
        assert any(decision.delete for decision in log.retain())
        copy = shutil.copytree(path, tmp_path / "copy" / "t-0")
    for directory in (path, copy):
        for mode in ("r", "a", "r"):
            assert "gap" not in clean(directory, mode)


@pytest.mark.parametrize("which", ["last", "all"])
def test_segments_of_a_clean_log_are_gone_at_its_end(tmp_path: Path, which: str) -> None:
    ten(tmp_path / "t-0").close()
    files = sorted((tmp_path / "t-0").glob("*.log"))
    for file in files if which == "all" else files[-1:]:
        file.unlink()
    assert "had been flushed" in str(kstore.open(tmp_path / "t-0").recovery.losses)
    with pytest.warns(kstore.DataLossWarning, match=r"to 9 had been flushed, and are lost"):
        kstore.open(tmp_path / "t-0", "a").close()


@pytest.mark.parametrize(
    "known_by", ["its line", "another partition", "options", "its topic", "its name", "nothing"]
)
def test_a_compacted_log_has_gaps(tmp_path: Path, known_by: str) -> None:
    path = tmp_path / ("__consumer_offsets-0" if known_by == "its name" else "t-0")
    compact: Any = {"cleanup_policy": "compact"}
    if known_by == "its topic":
        with kstore.LogStore(tmp_path, mode="a") as store:
            store.create_topic("t", **compact)
    logs = filled(path, **(compact if known_by == "options" else {}))
    for file in path.glob(f"{logs[1].stem}.*"):
        file.unlink()
    if known_by == "another partition":
        (tmp_path / "meta.properties").touch()
    lines = {"its line": "0\n1\nt 0 9\n", "another partition": "0\n1\nt 7 5\n"}
    (tmp_path / COMPACTED).write_text(lines.get(known_by, "0\n0\n"))
    assert clean(path) == (["gap"] if known_by == "nothing" else [])
    with pytest.warns(kstore.DataLossWarning) if known_by == "nothing" else contextlib.nullcontext():
        assert len(list(kstore.open(path))) == 32


def test_gaps_within_segments_are_those_of_a_compacted_log(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=500) as log:
        for offset in (0, 1, 3, 5, 6, 7, 30, 31, 32, 33, 34):
            batch = kstore.encode_batch([(1, None, b"x" * 80, None)], base_offset=offset)
            log.append_batches(batch, keep_offsets=True)
        assert len(log.segments) > 2
    assert clean(tmp_path / "t-0") == clean(tmp_path / "t-0", "a") == []


def test_a_segment_that_compaction_emptied_is_no_gap(tmp_path: Path) -> None:
    """Nor is it in a copy, which lacks the checkpoint of the log directory that has the compacted offset."""
    compact: Any = {
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": 0,
        "internal_segment_bytes": 250,
    }
    kstore.LogStore(tmp_path / "store", mode="a", background=False).close()
    path = tmp_path / "store" / "t-0"
    with kstore.open(path, "a", **compact) as log:
        for _ in range(5):
            log.append(b"x" * 50, b"a")
        log.roll()
        log.compact()
        assert log.segments[0].size == 0
    copy = shutil.copytree(path, tmp_path / "t-0")
    for mode in ("r", "a", "r"):
        assert "gap" not in clean(copy, mode)
    for kind in ("log", "index", "timeindex"):  # as Kafka's cleaner leaves one without records
        (path / f"{0:020}.{kind}").write_bytes(b"")
    assert "gap" not in clean(path)


@pytest.mark.parametrize(("count", "is_sure"), [(100, True), (3, False)])
def test_many_files_are_gone(tmp_path: Path, count: int, is_sure: bool) -> None:
    """Several gaps are a loss, unless segments have hardly any records: a follower may leave records out."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for _ in range(10):
            log.extend([b"v"] * count)
            log.roll()
    for number in (2, 4, 6):
        for file in (tmp_path / "t-0").glob(f"{number * count:020}.*"):
            file.unlink()
    for mode in ("r", "a"):
        with pytest.warns(kstore.DataLossWarning) if is_sure else contextlib.nullcontext():
            log = kstore.open(tmp_path / "t-0", mode)
            assert len(list(log)) == 7 * count
        with log:
            assert [finding.kind for finding in log.recovery.findings] == ["gap"] * 3
            assert len(log.recovery.missing) == (3 if is_sure else 0)


@pytest.mark.parametrize("mode", ["r", "a"])
def test_bytes_between_two_segments_are_told(tmp_path: Path, mode: str) -> None:
    logs = filled(tmp_path / "t-0")
    with logs[1].open("ab") as file:
        file.write(bytes(100))
    with kstore.open(tmp_path / "t-0", mode) as log:
        (finding,) = log.recovery.findings
        assert (finding.kind, finding.file, finding.size) == ("gap", str(logs[1]), 100)


def aborted(log: kstore.LogWriter, sequence: int) -> None:
    log.append_batches(transactional((1, None, b"v", None), sequence=sequence))
    end_transaction(log, "ABORT", 1)


def test_aborted_transactions_behind_the_end_are_forgotten(tmp_path: Path) -> None:
    """Otherwise the next marker there is refused: its last offset is not above that of the old one."""
    path = tmp_path / "t-0"
    log = kstore.open(path, "a")
    for at in range(3):
        aborted(log, at)
    end = log.log_end_offset
    log.close()
    file = path / f"{0:020d}.log"
    os.truncate(file, int(kstore.open(path).segments[0].read_headers()["position"][-2]))
    with pytest.warns(kstore.DataLossWarning, match=r"to 5 had been flushed"):
        log = kstore.open(path, "a")
    with log:
        assert "broken_index" in [finding.kind for finding in log.recovery.findings]
        aborted(log, 2)
        assert log.log_end_offset == end
        assert list(log.records(isolation="read_committed")) == []
    assert (path / f"{0:020d}.txnindex").stat().st_size == 3 * 34
    assert clean(path) == []


@pytest.mark.parametrize("by_broker", [True, False])
@pytest.mark.parametrize("cut", [True, False])
def test_a_broker_stores_an_end_behind_its_last_batch(tmp_path: Path, by_broker: bool, cut: bool) -> None:
    """After truncation inside a batch nothing was there (spec 8.9)."""
    path = tmp_path / "logs" / "t-0"
    path.parent.mkdir()
    (path.parent / "meta.properties").write_text("version=1\n")
    with kstore.open(path, "a", index_interval_bytes=0) as log:
        for _ in range(5):
            log.extend([b"x"] * 10)
        if not cut:
            log.truncate_to(40)  # as a broker does that truncates to 45
    if cut:
        os.truncate(path / f"{0:020d}.log", int(kstore.open(path).segments[0].read_headers()["position"][-1]))
    epoch = 12 if by_broker else -1
    (path.parent / ".kafka_cleanshutdown").write_text(f'{{"version":0,"brokerEpoch":{epoch}}}')
    (path.parent / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 45\n")
    shutil.copytree(path.parent, tmp_path / "copy")
    assert clean(path) == ["checkpoint"]
    if by_broker:
        assert clean(tmp_path / "copy" / "t-0", "a") == ["checkpoint"]
    else:
        with pytest.warns(kstore.DataLossWarning, match=r"copy/t-0: .*offsets 40 to 44 had been flushed"):
            list(kstore.open(tmp_path / "copy" / "t-0"))
        with pytest.warns(kstore.DataLossWarning, match=r"copy/t-0: .*offsets 40 to 44 had been flushed"):
            clean(tmp_path / "copy" / "t-0", "a")


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_a_plan_is_shown_and_then_carried_out(tmp_path: Path) -> None:
    filled(tmp_path / "t-0")
    path = tmp_path / "t-0"
    log = kstore.open(path, "a", internal_segment_bytes=1000)
    for _ in range(30):
        log.append(b"y" * 50)
    log.abandon()
    logs = sorted(path.glob("*.log"))
    flip(logs[-3], -1)
    (path / f"{2:020d}.index").write_bytes(b"")
    (path / f"{3:020d}.log.deleted").write_bytes(b"")
    files = contents(path)
    reader = kstore.open(path)
    shown = reader.recovery.findings
    assert contents(path) == files
    assert [finding.code for finding in shown] == [
        "removal_under_way",
        "index_without_log",
        "corrupt_batch",
        "behind_damage",
        "behind_damage",
    ]
    with pytest.warns(kstore.DataLossWarning, match=r"kept in .*\.cut"):
        log = kstore.open(path, "a")
    with log:
        done = log.recovery.findings
        assert [finding.text for finding in done] == [
            finding.text.replace("bytes would be", "bytes were")
            .replace("would be", "was")
            .replace("kstore records --as-is, or recover=False, shows", "a .cut file keeps")
            for finding in shown
        ]
        assert any(before.text != after.text for before, after in zip(shown, done, strict=True))
        assert log.log_end_offset == reader.log_end_offset
        assert list(log) == list(reader)
    assert clean(path) == []
