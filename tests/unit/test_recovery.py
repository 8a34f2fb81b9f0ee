"""What opening a damaged log finds, removes and keeps.

Nothing is appended behind damage, and bytes that are cut off are kept in .cut files if records may be in
them. tests/conformance and tests/golden compare each step of recovery with Kafka.
"""

import contextlib
import os
import pickle
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.__main__ import main
from tests.helpers.effort import some
from tests.helpers.files import contents, flip
from tests.unit.logs import filled, offsets

GOLDEN = Path(__file__).parent.parent / "golden" / "data"
Damage = Callable[[Any, kstore.RecordBatch], object]
LAST: dict[str, Damage] = {
    "cut short": lambda file, batch: file.truncate(batch.position + batch.size - 1),
    "cut to its header": lambda file, batch: file.truncate(batch.position + 20),
    "size": lambda file, batch: (file.seek(batch.position + 10), file.write(b"\x01")),
    "negative size": lambda file, batch: (file.seek(batch.position + 8), file.write(b"\xff")),
    "magic": lambda file, batch: (file.seek(batch.position + 16), file.write(b"\x09")),
    "zeros behind": lambda file, batch: file.truncate(batch.position + batch.size + 100),
    "noise behind": lambda file, batch: (file.seek(0, 2), file.write(b"noise" * 9)),
}


@pytest.mark.parametrize(
    ("name", "distrusts"),
    [(name, False) for name in LAST] + [(name, True) for name in LAST if "behind" not in name],
)
def test_closed_cleanly_and_damaged_at_the_end(tmp_path: Path, name: str, distrusts: bool) -> None:
    """The clean marker says nothing of the last batch (spec 8.6); a new batch must not complete it.

    An opening that does not trust the marker, and checks all batches, loses no more.
    """
    options: Any = {"clean": False, "recovery_point": 0} if distrusts else {}
    with kstore.open(tmp_path / "t-0", "a") as log:
        for i in range(10):
            log.append(b"v%d" % i)
    batch = list(kstore.open(tmp_path / "t-0").batches())[-1]
    path = Path(batch.file)
    with path.open("r+b") as file:
        LAST[name](file, batch)
    damaged = path.read_bytes()
    with pytest.warns(kstore.DataLossWarning, match=r"had been flushed.*\.cut"):
        log = kstore.open(tmp_path / "t-0", "a", durability="each", **options)
    end = log.log_end_offset
    assert end == (10 if "behind" in name else 9)
    (kept,) = (tmp_path / "t-0").glob("*.cut")
    assert path.read_bytes()[: log.segments[0].size] + kept.read_bytes() == damaged
    assert [log.append(b"new %d" % i) for i in range(4)] == list(range(end, end + 4))
    log.close()
    for clean in (None, False):
        values = [record.value for record in kstore.open(tmp_path / "t-0", clean=clean)]
        assert values == [b"v%d" % i for i in range(end)] + [b"new %d" % i for i in range(4)]


# ---- after a crash -------------------------------------------------------------------------------


def five_segments(directory: Path, per_batch: int = 1) -> list[kstore.Segment]:
    """Segments of five records, of which nothing is noted as flushed."""
    log = kstore.open(directory, "a", internal_segment_bytes=800 if per_batch == 1 else 600)
    for first in range(0, 25, per_batch):
        log.extend([b"%03d" % i + b"x" * 80 for i in range(first, first + per_batch)])
    log.abandon()
    for checkpoint in directory.glob("recovery-point*"):  # the background may have flushed segments already
        checkpoint.unlink()
    segments = list(kstore.open(directory, recover=False).segments)
    assert [segment.base_offset for segment in segments] == [0, 5, 10, 15, 20]
    return segments


def flip_in(segments: list[kstore.Segment], number: int, batch: int) -> None:
    """Damages the records of a batch of a segment."""
    position = int(segments[number].read_headers()["position"][batch])
    flip(segments[number].path, position + 70)


CRASHES: dict[str, tuple[int, Callable[[list[kstore.Segment]], object], int, int]] = {
    # records in a batch, the damage, where the log ends then, and how many losses are reported
    "in a segment": (1, lambda segments: flip_in(segments, 1, 3), 8, 4),
    "at the start of a segment": (1, lambda segments: flip_in(segments, 1, 0), 5, 4),
    "all of a segment": (5, lambda segments: flip_in(segments, 1, 0), 5, 4),
    "the first": (5, lambda segments: flip_in(segments, 0, 0), 0, 5),
    "twice": (5, lambda segments: (flip_in(segments, 1, 0), flip_in(segments, 3, 0)), 5, 4),
    "the last batch": (5, lambda segments: flip_in(segments, 4, 0), 20, 0),  # as one that was being written
    "a torn tail": (1, lambda segments: os.truncate(segments[4].path, segments[4].size - 1), 24, 0),
}


@pytest.mark.parametrize("name", CRASHES)
def test_a_crash_and_damage(tmp_path: Path, name: str) -> None:
    """The log ends at the damage, as in Kafka.

    What was not acknowledged as durable, and has nothing sound behind it, is no loss. Anything else that is
    cut off is reported, and kept in .cut files.
    """
    per_batch, damage, end, losses = CRASHES[name]
    directory = tmp_path / "t-0"
    segments = five_segments(directory, per_batch)
    damage(segments)
    before = contents(directory, "*.log")
    reader = kstore.open(directory)
    assert reader.log_end_offset == end
    assert len(reader.recovery.losses) == losses
    if losses and per_batch > 1:
        batches = 2 if name == "twice" else 1
        assert sum("before sound batches" in loss for loss in reader.recovery.losses) == batches
    with pytest.warns(kstore.DataLossWarning) if losses else contextlib.nullcontext():
        log = kstore.open(directory, "a")
    with log:
        assert len(log.recovery.losses) == losses
        assert offsets(log) == list(range(end))
        assert log.append(b"goes on") == end
    kept = contents(directory, "*.cut")
    assert len(kept) == losses
    for name_of_cut, content in kept.items():
        stem, _, position, _ = name_of_cut.split(".")
        assert content == before[f"{stem}.log"][int(position) :]


def test_sound_batches_behind_damage_are_readable(tmp_path: Path) -> None:
    """Where recovery is not asked for, and in the .cut files."""
    directory = tmp_path / "t-0"
    flip_in(five_segments(directory), 1, 2)
    (text, *_) = (finding.text for finding in kstore.open(directory).recovery.findings)
    assert "2 sound batches, offsets 8 to 9" in text
    every = [offset for offset in range(25) if offset != 7]
    assert offsets(kstore.open(directory, recover=False).records(on_error="skip")) == every
    with pytest.warns(kstore.DataLossWarning, match=r"sound batches, offsets .*\.cut"):
        kstore.open(directory, "a").close()
    cuts = [kstore.open(path) for path in sorted(directory.glob("*.cut"))]
    readers = [cut.records(on_error="skip", isolation="read_committed") for cut in cuts]
    assert [offset for reader in readers for offset in offsets(reader)] == every[7:]


def test_a_damaged_batch_in_a_segment_without_index_is_kept(tmp_path: Path) -> None:
    """What follows such a segment stays, as in Kafka."""
    segments = five_segments(tmp_path / "t-0", 5)
    flip_in(segments, 1, 0)
    file = Path(segments[1].path)
    content = file.read_bytes()
    file.with_suffix(".index").unlink()
    with pytest.warns(kstore.DataLossWarning, match="before sound batches"):
        log = kstore.open(tmp_path / "t-0", "a")
    with log:
        assert log.log_end_offset == 25
    assert [path.read_bytes() for path in (tmp_path / "t-0").glob("*.cut")] == [content]


# ---- other files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_pipe_in_the_place_of_a_file_hangs_nobody(tmp_path: Path, mode: Any) -> None:
    for kind in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        path = tmp_path / f"{kind}-0"
        filled(path).close()
        file = next(path.glob(f"*{kind}"), path / f"{0:020d}{kind}")
        file.unlink(missing_ok=True)
        os.mkfifo(file)
        try:
            with kstore.open(path, mode) as log:
                assert offsets(log) == list(range(10))
                log.find(timestamp=1)
                list(log.records(isolation="read_committed"))
        except (OSError, kstore.KstoreError) as e:
            assert "regular" in str(e)  # noqa: PT017


@pytest.mark.parametrize("kind", [".log", ".index", "leader-epoch-checkpoint"])
def test_nothing_is_written_through_a_link(tmp_path: Path, kind: str) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"x" * 100)
    path = next((tmp_path / "t-0").glob(f"*{kind}"))
    target = tmp_path / "target"
    path.rename(target)
    with target.open("ab") as file:
        file.write(b"not a whole batch")
    before = target.read_bytes()
    path.symlink_to(target)
    with warnings.catch_warnings(), contextlib.suppress(OSError):  # ELOOP, where the file must be written
        warnings.simplefilter("ignore")
        with kstore.open(tmp_path / "t-0", "a") as log:
            log.append(b"y")
    assert target.read_bytes() == before


LARGEST = (1 << 31) - 1  # bytes of a segment


def bytes_read() -> int:
    """By this process, so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_hole_is_kept_as_a_hole(tmp_path: Path) -> None:
    """What is cut off may be larger than the disk."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"."] * 5)
    path = tmp_path / "t-0" / f"{0:020}.log"
    size = path.stat().st_size
    with path.open("r+b") as f:
        f.truncate(LARGEST)
        f.seek(1 << 30)
        f.write(b"in the midst")
    read = bytes_read()
    with pytest.warns(kstore.DataLossWarning):
        kstore.open(tmp_path / "t-0", "a").close()
    # what looks like a batch as large as the hole is not read to the end
    assert bytes_read() - read < 256 << 20
    assert path.stat().st_size == size
    (kept,) = (tmp_path / "t-0").glob("*.cut")
    assert kept.stat().st_size == LARGEST - size
    assert kept.stat().st_blocks < 1000
    with kept.open("rb") as f:
        f.seek((1 << 30) - size)
        assert f.read(12) == b"in the midst"


def wrong_transaction_indexes() -> list[tuple[str, str]]:
    """The name of an index of golden data, and of the one that replaces it, or what is done to it."""
    names = sorted(path.name for path in (GOLDEN / "transactions" / "txn-0").glob("*.txnindex"))
    return [
        (index, other) for index in names for other in ("link", "cut", "longer", *names) if other != index
    ]


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_wrong_transaction_index_is_made_again(tmp_path: Path, mode: Any) -> None:
    """Of another size or other markers: a later segment's entry would also end the search too soon."""
    own = GOLDEN / "transactions" / "txn-0"
    committed = offsets(kstore.open(own).records(isolation="read_committed"))
    for number, (index, other) in enumerate(some(wrong_transaction_indexes(), 6, mode)):
        copy = shutil.copytree(own.parent, tmp_path / str(number)) / own.name
        content = (copy / index).read_bytes()
        (copy / index).unlink()
        if other == "link":
            (copy / index).symlink_to("nowhere")
        elif other in ("cut", "longer"):
            (copy / index).write_bytes(content[:-1] if other == "cut" else content + b"\0")
        else:
            shutil.copy(own / other, copy / index)
        with kstore.open(copy, mode) as log:
            assert [finding.code for finding in log.recovery.findings] == ["broken_transaction_index"]
            read = log.records(isolation="read_committed")
            assert offsets(read) == committed, (index, other)
        if mode == "r+":
            assert (copy / index).read_bytes() == content, (index, other)


# ---- what errors and reports of damage say -------------------------------------------------------


def test_an_error_says_where_the_damage_is_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.extend([b"v" * 50] * 10)
        log.extend([b"v" * 50] * 10)
        batch = list(log.batches())[1]
    flip(batch.file, batch.position + batch.size - 5)
    with pytest.raises(kstore.CorruptRecordError) as caught:
        list(kstore.open(path))
    (note,) = caught.value.__notes__
    assert "offset 10" in note
    assert f"kstore check {path} " in note
    assert pickle.loads(pickle.dumps(caught.value)).__notes__ == [note]
    assert main(["records", str(path)]) == 1
    assert note in capsys.readouterr().err


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "there"])
def test_a_damaged_snapshot_of_producers(tmp_path: Path, is_deleted: bool) -> None:
    """It is found; a warning says if producers are forgotten because their records are gone."""
    path = tmp_path / "t-0"
    batch = kstore.encode_batch(
        [(int(time.time() * 1000), b"k", b"v", None)], producer_id=7, producer_epoch=0, base_sequence=0
    )
    with kstore.open(path, "a", file_delete_delay_ms=0) as log:
        log.append_batches(batch)
        log.roll()
        log.append(b"x")
        if is_deleted:
            log.delete_records(1)
            log.retain()
    for file in path.glob("*.snapshot"):
        flip(file, 20)
    code = "producers_forgotten" if is_deleted else "snapshot_damaged"
    with kstore.open(path) as log:
        assert {f.code for f in log.recovery.findings if f.file.endswith(".snapshot")} >= {code}
    with pytest.warns(kstore.DataLossWarning, match="forgotten") if is_deleted else contextlib.nullcontext():
        log = kstore.open(path, "a")
    with log:
        assert code in {f.code for f in log.recovery.findings}
        assert log.append_batches(batch).duplicate != is_deleted
