"""Files that are in a directory under another number, or beside those of another copy of the log."""

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.__main__ import main

T0 = 1_700_000_000_000


GOLDEN = Path(__file__).parent.parent / "golden" / "data" / "transactions"


KINDS = (".log", ".index", ".timeindex")


def name(offset: int, kind: str = ".log") -> str:
    return f"{offset:020d}{kind}"


def written(directory: Path) -> list[bytes]:
    """Segments of offsets 0 to 4 and 5 to 6, closed cleanly."""
    with kstore.open(directory, "a") as log:
        for i in range(5):
            log.append(b"v%d" % i, key=b"k", timestamp=T0)
        log.roll()
        for i in range(5, 7):
            log.append(b"v%d" % i, key=b"k", timestamp=T0)
    return [b"v%d" % i for i in range(7)]


def an_empty_one(directory: Path) -> None:
    for kind in KINDS:
        (directory / name(4, kind)).touch()


def a_copy(directory: Path) -> None:
    for kind in KINDS:
        shutil.copy(directory / name(5, kind), directory / name(4, kind))


def another_copy_of_the_log(directory: Path) -> None:
    """One that was rolled one record earlier."""
    with kstore.open(directory.parent / "other-0", "a") as log:
        log.truncate_fully_and_start_at(4)
        for i in range(4, 7):
            log.append(b"v%d" % i, key=b"k", timestamp=T0)
    for kind in KINDS:
        shutil.copy(directory.parent / "other-0" / name(4, kind), directory)
        (directory / name(5, kind)).unlink()


ALL = [an_empty_one, a_copy, another_copy_of_the_log]


def rows(scan: Iterable[Any]) -> list[int]:
    return [offset for batch in scan for (offset,) in batch.rows()]


@pytest.mark.parametrize("mixed", ALL)
def test_offsets_in_two_segments(tmp_path: Path, mixed: Callable[[Path], None]) -> None:
    """Wherever reading begins, it raises before a record is skipped."""
    directory = tmp_path / "t-0"
    written(directory)
    mixed(directory)
    log = kstore.open(directory)
    reads: list[Callable[[], list[int]]] = [
        lambda: [record.offset for record in log],
        lambda: [record.offset for record in log.records(4)],
        lambda: [batch.base_offset for batch in log.batches(4)],
        lambda: rows(log.scan(["offset"], start=4)),
        lambda: [record.offset for record in log.read(4)],
        lambda: [log.get(4).offset],
        lambda: [record.offset for record in log.history(b"k")],
        lambda: [record.offset for record in log.follow(0, timeout=0)],
        lambda: [record.offset for record in log.follow(4, timeout=0)],
        lambda: [record.offset for record in log.cursor("a")],
        lambda: [record.offset for record in log.cursor("b", follow=True, timeout=0)],
    ]
    for at, read in enumerate(reads):
        with pytest.raises(kstore.CorruptRecordError) as caught:
            read()
        assert caught.value.offset in (4, -1), at
    skipping = log.follow(0, timeout=0, on_error="skip")
    left_out = log.records(on_error="skip")
    assert [record.offset for record in skipping] == [record.offset for record in left_out]
    assert skipping.skipped[0].file == str(directory / name(0))


@pytest.mark.parametrize("mixed", ALL)
def test_such_a_log_is_not_written(tmp_path: Path, mixed: Callable[[Path], None]) -> None:
    """Readers would not know which of two records counts. Recovering all ends the log there."""
    directory = tmp_path / "t-0"
    values = written(directory)
    mixed(directory)
    before = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    for mode in ("a", "r+", "a"):  # now, and after the first of them has made it an unclean stop
        with pytest.raises(kstore.CorruptRecordError, match="next one begins") as caught:
            kstore.open(directory, mode)
        assert "--all" in "".join(caught.value.__notes__)
    assert main(["recover", str(directory), "--dry-run"]) == 1
    assert {path.name: path.read_bytes() for path in directory.glob("*.log")} == before
    with pytest.warns(kstore.DataLossWarning):
        log = kstore.open(directory, "r+", clean=False, recovery_point=0)
    with log:
        assert [record.value for record in log] == values[:4]
        assert log.append(b"new") == 4
    kept = [r.value for path in directory.glob("*.cut") for r in kstore.open(path).records(on_error="skip")]
    assert set(values[4:]) <= set(kept)


def test_what_was_kept_is_not_replaced(tmp_path: Path) -> None:
    """Two recoveries cut the log off at the same byte: each keeps a file of its own."""
    directory = tmp_path / "t-0"
    contents = []
    for number in range(3):
        with kstore.open(directory, "a") as log:
            log.extend([b"%d" % number] * 3)
        batch = list(kstore.open(directory).batches())[-1]
        os.truncate(batch.file, batch.position + batch.size - 1)
        contents.append(Path(batch.file).read_bytes()[batch.position :])
        with pytest.warns(kstore.DataLossWarning):
            kstore.open(directory, "a").close()
    assert sorted(path.read_bytes() for path in directory.glob("*.cut")) == sorted(contents)
    for path in directory.glob("*.cut"):
        with pytest.raises(kstore.CorruptFileError, match="the bytes end inside a batch"):
            kstore.open(path)


def test_transaction_indexes_that_were_swapped(tmp_path: Path) -> None:
    """Without recovery, too, the batches show which transactions were aborted."""
    directory = tmp_path / "txn-0"
    shutil.copytree(GOLDEN / "txn-0", directory)
    first, second = sorted(directory.glob("*.txnindex"))[1:3]
    sound = kstore.open(directory, recover=False)
    given = [r.offset for r in sound.records(isolation="read_committed")]
    content = first.read_bytes(), second.read_bytes()
    first.write_bytes(content[1])
    second.write_bytes(content[0])
    log = kstore.open(directory, recover=False)
    assert [r.offset for r in log.records(isolation="read_committed")] == given
    for start in range(0, sound.log_end_offset, 7):
        expected = [offset for offset in given if start <= offset < start + 10]
        assert [r.offset for r in log.records(start, start + 10, isolation="read_committed")] == expected
        assert (
            rows(log.scan(["offset"], start=start, stop=start + 10, isolation="read_committed")) == expected
        )


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("damage", ["bit", "torn", "zeros"])
@pytest.mark.parametrize("clean", [False, True])
def test_a_damaged_file_replaces_a_segment(tmp_path: Path, damage: str, clean: bool) -> None:
    """A compaction broke off when its file had its name, then the file was damaged: the segment stays."""
    directory = tmp_path / "t-0"
    with kstore.open(directory, "a", internal_segment_bytes=400, min_cleanable_dirty_ratio=0.0) as log:
        for i in range(10):
            log.append(b"%060d" % i, key=b"%d" % (i if i % 3 else 0))
        log.roll()
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with kstore.open(directory, "a", cleanup_policy="compact", min_cleanable_dirty_ratio=0.0) as log:
        log.compact()
        made = Path(log.segments[0].path).read_bytes()
    shutil.rmtree(directory)
    directory.mkdir()
    for file, content in before.items():
        if clean or file != ".kafka_cleanshutdown":
            (directory / file).write_bytes(content)
    broken = {"bit": made[:-1] + bytes([made[-1] ^ 1]), "torn": made[:-5], "zeros": bytes(len(made))}
    (directory / f"{name(0)}.swap").write_bytes(broken[damage])
    kstore.open(directory, "r+").close()
    assert before[name(0)] in [path.read_bytes() for path in directory.glob("*.cut")]


def test_a_file_that_becomes_shorter_under_a_follower(tmp_path: Path) -> None:
    """The log is not truncated, so a follower raises and skips nothing in silence."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for start in (0, 10, 20):
            log.extend([b"%d" % i + b"x" * 40_000 for i in range(start, start + 10)], batch_bytes=0)
            log.roll()
    view = kstore.open(tmp_path / "t-0")
    followers = [view.follow(0, timeout=0), view.cursor("g", follow=True, timeout=0)]
    for follower in followers:
        items = iter(follower)
        assert [next(items).offset for _ in range(12)] == list(range(12))
    batch = next(batch for batch in view.batches(15) if batch.base_offset == 15)
    os.truncate(batch.file, batch.position)
    for follower in followers:
        with pytest.raises(kstore.LogChangedError):
            list(follower)
