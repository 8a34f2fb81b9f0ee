"""Truncations of a log that another process reads: exactly what was cut off is told."""

import contextlib
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.files.truncations import Truncations, read_truncations, write_truncations

NAME = "kstore-truncations.json"


def followed(log: kstore.LogWriter, start: int) -> Any:
    return kstore.open(log.path).follow(start, timeout=0)


def of_a_store(log: kstore.LogWriter, start: int) -> Any:
    return kstore.LogStore(Path(log.path).parent).follow(["t"], {("t", 0): start}, timeout=0)


def sought(cursor: kstore.Cursor, start: int) -> kstore.Cursor:
    cursor.seek(start)
    return cursor


def with_a_cursor(log: kstore.LogWriter, start: int) -> Any:
    return sought(kstore.open(log.path).cursor(uuid.uuid4().hex), start)


def with_a_following_cursor(log: kstore.LogWriter, start: int) -> Any:
    return sought(kstore.open(log.path).cursor(uuid.uuid4().hex, follow=True, timeout=0), start)


def of_the_writer(log: kstore.LogWriter, start: int) -> Any:
    return log.follow(start, timeout=0)


def with_a_cursor_of_the_writer(log: kstore.LogWriter, start: int) -> Any:
    return sought(log.cursor(uuid.uuid4().hex, follow=True, timeout=0), start)


OTHERS = [followed, of_a_store, with_a_cursor, with_a_following_cursor]
OWN = [of_the_writer, with_a_cursor_of_the_writer]
Begun = Callable[[kstore.LogWriter, int], Any]


def opened(path: Path) -> kstore.LogWriter:
    """Its truncations begin no leader epoch."""
    options: Any = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0}
    return kstore.open(path, "a", internal_segment_bytes=600, leader_epoch=3, **options)


def append(log: kstore.LogWriter, count: int) -> None:
    for _ in range(count):
        log.append(b"old")


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("begun", [*OTHERS, *OWN])
def test_against_a_model(tmp_path: Path, begun: Begun, seed: int) -> None:
    """The least offset of the truncations since the last look, if more had been read; else each new record once, and no error,
    whatever compactions and erasures have left."""
    dice = random.Random(seed)
    path = tmp_path / "t-0"
    log = opened(path)
    reader, position, cut = begun(log, 0), 0, -1
    for _ in range(dice.randrange(5, 40)):
        what = dice.choice(
            ["append", "append", "append", "truncate", "roll", "close", "compact", "erase", "look", "look"]
        )
        if what == "append":
            for _ in range(dice.randrange(1, 12)):
                log.append(b"%d" % dice.randrange(1 << 30), b"%d" % dice.randrange(6))
        elif what == "truncate":
            offset = dice.randrange(log.log_end_offset + 1)
            if offset < log.log_end_offset:
                if dice.randrange(4):
                    log.truncate_to(offset)
                else:
                    log.truncate_fully_and_start_at(offset)
                if offset < position:
                    cut = min(offset, cut) if cut >= 0 else offset
        elif what == "roll":
            log.roll()
        elif what == "close" and begun in OWN:
            continue
        elif what == "close":
            log.close()
            log = opened(path)
        elif what == "compact":
            log.compact()
        elif what == "erase":
            log.erase(keys=[b"%d" % dice.randrange(6)], reason="asked for")
        elif cut >= 0:
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(reader)
            # an end behind which nothing is left is not on the disk yet
            shown = log if begun in OWN else kstore.open(path)
            position = max(min(cut, shown.log_end_offset), shown.log_start_offset)
            assert caught.value.end == position
            cut = -1
            reader.close()
            reader = begun(log, position)
        else:
            if position < log.log_start_offset:
                with pytest.raises(kstore.OffsetOutOfRangeError):
                    list(reader)
                return
            assert [r.offset for r in reader] == [r.offset for r in log if r.offset >= position]
            position = log.log_end_offset
    log.close()


@pytest.mark.parametrize("fails", [1, 2])
@pytest.mark.parametrize("begun", OTHERS)
def test_a_broken_off_truncation(
    tmp_path: Path, begun: Begun, fails: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told, and to those as well that began to read while it went on."""
    path = tmp_path / "t-0"
    log = kstore.open(path, "a")
    append(log, 10)
    calls = 0

    def write(directory: str, known: Truncations) -> None:
        nonlocal calls
        calls += 1
        if calls == 1 and fails == 2:
            write_truncations(directory, known)
            readers.append(begun(log, 0))
            assert len(list(readers[-1])) == 10
        if calls == fails:
            raise KeyboardInterrupt

    readers = [begun(log, 0)]
    assert len(list(readers[0])) == 10
    monkeypatch.setattr("kstore.log.writer.write_truncations", write)
    with pytest.raises(KeyboardInterrupt):
        log.truncate_to(4)
    monkeypatch.undo()
    if fails == 1:
        assert list(readers[0]) == []
    with contextlib.suppress(kstore.KstoreError):
        log.close()
    with kstore.open(path, "a") as log:
        assert log.log_end_offset == (10 if fails == 1 else 4)
        log.extend([b"new"] * 20)
        assert not read_truncations(path).is_pending
    for reader in readers:
        if fails == 1:
            assert len(list(reader)) == 20
        else:
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(reader)
            assert caught.value.end == 4


def test_a_killed_truncation(tmp_path: Path) -> None:
    """The file says that one may have been carried out: whoever opens the log for writing says that it was."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        append(log, 10)
    write_truncations(str(path), Truncations().and_one(4, is_pending=True))
    number = read_truncations(path).number
    reader = followed(log, 0)
    assert len(list(reader)) == 10
    with kstore.open(path, "a") as log:
        log.append(b"new")
    found = read_truncations(path)
    assert (found.is_pending, found.last_offset) == (False, 4)
    assert found.number > number
    with pytest.raises(kstore.OffsetOutOfRangeError):
        list(reader)


@pytest.mark.parametrize("begun", OTHERS)
def test_an_end_that_was_forgotten(tmp_path: Path, begun: Begun) -> None:
    """A truncation inside a batch leaves an end that is forgotten if the process dies before a flush."""
    path = tmp_path / "t-0"
    log = kstore.open(path, "a")
    append(log, 3)
    log.extend([b"old"] * 10)
    reader = begun(log, 0)
    assert len(list(reader)) == 13
    log.truncate_to(8)
    log.abandon()
    with kstore.open(path, "a") as log:
        assert log.log_end_offset == 3
        append(log, 20)
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            list(reader)
    assert caught.value.end == 3


@pytest.mark.parametrize("begun", OTHERS)
def test_what_recovery_cuts_off(tmp_path: Path, begun: Begun) -> None:
    """A damaged byte, after an unclean stop: the records behind it go, and others get their offsets."""
    path = tmp_path / "t-0"
    log = kstore.open(path, "a")
    append(log, 10)
    reader = begun(log, 0)
    assert len(list(reader)) == 10
    position = log.segments[0].read_headers()["position"][4]
    log.abandon()
    with (path / f"{0:020d}.log").open("r+b") as file:
        file.seek(position + 63)
        file.write(b"\xff\xff")
    with pytest.warns(kstore.DataLossWarning):
        log = kstore.open(path, "a")
    with log:
        assert log.log_end_offset == 4
        append(log, 20)
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            list(reader)
    assert caught.value.end == 4


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\0" * 100, b'{"version": 1, "truncations": [[1]], "pending": 0}']
)
def test_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    """It has no say, and the next truncation writes it anew; whoever has seen the one before is told of that one."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        append(log, 10)
        log.truncate_to(9)
        reader = followed(log, 0)
        assert len(list(reader)) == 9
        (path / NAME).write_bytes(content)
        append(log, 10)
        assert len(list(reader)) == 10
    with kstore.open(path, "a") as log:
        log.truncate_to(3)
        log.extend([b"new"] * 40)
    with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
        list(reader)
    assert caught.value.end == 3


def test_many(tmp_path: Path) -> None:
    """The file stays small; who has not looked for long is told of no record too few."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        append(log, 4)
        seen = read_truncations(path).number
        for _ in range(200):
            append(log, 2)
            log.truncate_to(log.log_end_offset - 1)
        size = (path / NAME).stat().st_size
        assert size < 5_000
        assert read_truncations(path).since(seen) == 5
