"""Files are let go of in time: those of deleted segments, and those that are kept open when others need a descriptor."""

import subprocess
import sys
from pathlib import Path

import pytest

import kstore
from kstore.engine.segment.segment import Segment
from kstore.log.files import checkpoints
from kstore.log.files.layout import TopicPartition
from kstore.log.producers.snapshot_files import SnapshotFiles
from kstore.log.read import scan
from kstore.log.read.max_timestamp_index import MaxTimestampIndex
from kstore.log.write.sealed_segments import SealedSegments
from tests.helpers.processes import environment

SEGMENTS = 100
OPTIONS = {
    "internal_segment_bytes": 150,
    "segment_index_bytes": 64,
    "message_timestamp_before_max_ms": 2**63 - 1,
}


def append(log: kstore.LogWriter, count: int, text: bytes = b"") -> None:
    for _ in range(count):
        offset = log.log_end_offset
        log.append(text + b"%060d" % offset, timestamp=1_700_000_000_000 + offset)


def run(script: str, *arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", script, *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout + done.stderr == "done\n"


DELETED = """
import resource, sys, kstore
options = {"internal_segment_bytes": 150, "segment_index_bytes": 64, "retention_bytes": 0}
with kstore.open(sys.argv[1], "a", file_delete_delay_ms=int(sys.argv[2]), **options) as log:
    kept, shown = list(log.segments), log.records()
    wanted = [record.offset for record in log]
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    log.retain()
    assert log.log_start_offset == log.log_end_offset == len(wanted)
    if sys.argv[2] != "0":
        assert [record.offset for record in shown] == wanted
    log.append(b"v" * 60)
    log.truncate_fully_and_start_at(7)
    assert log.append(b"v") == 7
print("done")
"""


@pytest.mark.parametrize("delay", [0, 60_000])
def test_more_are_deleted_than_there_are_descriptors(tmp_path: Path, delay: int) -> None:
    """As long as the files are there, whoever has the segments goes on reading them."""
    with kstore.open(tmp_path / "t-0", "a", **OPTIONS) as log:
        append(log, SEGMENTS)
    run(DELETED, tmp_path / "t-0", delay)


def test_readers_keep_what_is_deleted_and_replaced(tmp_path: Path) -> None:
    """A reader finds the file that it has seen, though others have its name; and still when it is removed."""
    with kstore.open(tmp_path / "t-0", "a", file_delete_delay_ms=60_000) as log:
        for text in (b"one", b"two", b"three"):
            append(log, 5, text)
            if text == b"one":
                first = log.records()
            elif text == b"two":
                second = log.records()
            log.truncate_fully_and_start_at(0)
        kstore.limit_open_files(0)  # none is open because it was read before
        kstore.limit_open_files(None)
        assert [(record.value or b"")[:3] for record in first] == [b"one"] * 5
        log._deleted.unlink(2**62)
        assert [(record.value or b"")[:3] for record in second] == [b"two"] * 5


FULL = """
import errno, os, resource, sys, kstore
log, other = kstore.open(sys.argv[1]), kstore.open(sys.argv[1])
writer = kstore.open(sys.argv[2], "a", internal_segment_bytes=150, segment_index_bytes=64)
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
kstore.limit_open_files(1000)
for each in (log.refresh, writer.flush, other.refresh, lambda: kstore.open(sys.argv[1]), writer.roll, writer.close):
    if not writer.is_closed:
        writer.append(b"v" * 60)
    assert sum(1 for _ in log) == 100
    held = []
    try:
        while True:
            held.append(os.open("/", os.O_RDONLY))
    except OSError as e:
        assert e.errno == errno.EMFILE
    assert len(held) < 10, "the segments keep theirs"  # a thread of the writer may have had one just now
    each()
    for descriptor in held:
        os.close(descriptor)
print("done")
"""


def test_a_descriptor_is_made_free_for_whatever_needs_one(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", **OPTIONS) as log:
        append(log, SEGMENTS)
    run(FULL, tmp_path / "t-0", tmp_path / "other-0")


# ---- what is done for each segment, without a look at all others --------------------------------------------------


def segments(count: int) -> list[Segment]:
    return [Segment("nowhere", "0" * 20, at, at + 1) for at in range(count)]


def test_sealed_segments_are_views_of_one_list() -> None:
    a, b, c, d = segments(4)
    one = SealedSegments([a]).with_one_more(b)
    two = one.with_one_more(c)
    other = one.with_one_more(d)  # as after a roll that was interrupted
    assert one._all is two._all
    assert [len(each) for each in (one, two, other)] == [2, 3, 3]
    assert two.and_then(d) == (a, b, c, d)
    assert other.and_then(c) == (a, b, d, c)
    assert one.and_then(c) == (a, b, c)
    assert two.first(2) == [a, b]
    assert one.first(5) == [a, b]
    assert two.without_first(1).and_then(d) == (b, c, d)
    assert (two[0], two[2]) == (a, c)
    for wrong in (-1, 2):
        with pytest.raises(IndexError):
            one[wrong]


def test_snapshots_are_in_order(tmp_path: Path) -> None:
    for offset in (7, 3, 5):
        (tmp_path / f"{offset:020}.snapshot").write_bytes(b"")
    files = SnapshotFiles(str(tmp_path))
    assert (files.offsets, files.latest) == ([3, 5, 7], 7)
    files.write(9, ())
    files.write(4, ())
    files.write(9, ())
    assert (files.offsets, files.latest) == ([3, 4, 5, 7, 9], 9)
    assert files.set_aside(5) == str(tmp_path / f"{5:020}.snapshot")
    files.remove(9)
    files.remove(3)
    assert (files.offsets, files.latest) == ([4, 7], 7)
    files.write(8, ())
    assert files.read_newest(100) == (8, [])
    files.write(5, ())
    files.remove_outside(4, 7)
    assert (files.offsets, files.latest) == ([5, 7], 7)
    assert files.read_newest(6) == (5, [])
    files.clear()
    assert (files.offsets, files.latest) == ([], -1)


def test_known_times_stay_with_the_segments_that_stay() -> None:
    a, b, c, d = segments(4)
    index = MaxTimestampIndex((a, b, c), [10, 20, 30])
    assert index.moved_to((a, b, c, d))._known == [10, 20, 30]
    assert index.moved_to((a, b, d))._known == [10, 20]
    assert index.moved_to((a,))._known == [10]
    assert index.moved_to((b, c, d))._known == []
    assert index.moved_to(())._known == []


def test_a_part_of_a_scan_looks_at_its_own_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kstore.open(tmp_path / "t-0", "a", **OPTIONS) as log:
        append(log, SEGMENTS)
        counts = []
        whole = scan.ColumnScanner

        def seen(part: tuple[Segment, ...], *more: object, **options: object) -> object:
            counts.append(len(part))
            return whole(part, *more, **options)

        monkeypatch.setattr(scan, "ColumnScanner", seen)
        assert sum(map(len, log.scan(["offset"], threads=2))) == SEGMENTS
        assert len(counts) >= SEGMENTS
        assert max(counts) == 2


def test_checkpoints_are_parsed_anew_when_they_have_changed(tmp_path: Path) -> None:
    path, tp = tmp_path / "recovery-point-offset-checkpoint", TopicPartition("t", 0)
    for number in (5, 6):
        path.write_text(f"0\n1\nt 0 {number}\n")
        for _ in range(2):
            found = checkpoints.read_offsets(path)
            assert found == {tp: number}
            found.clear()  # the caller's own
    checkpoints.write_offsets(path, {tp: 7})
    assert checkpoints.read_offsets(path) == {tp: 7}
    path.write_text("0\n1\nt 0 x\n")
    with pytest.raises(kstore.CorruptCheckpointError):
        checkpoints.read_offsets(path)
    path.unlink()
    assert checkpoints.salvage_offsets(path) == ({}, None)
