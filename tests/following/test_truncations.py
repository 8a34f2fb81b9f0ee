"""Truncations of a log that another process reads: exactly what was cut off is told."""

import contextlib
import os
import random
import socket
import time
import uuid
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.files.truncations import Truncations, read_truncations, write_truncations

NAME = "kstore-truncations.json"
ALL = "read_uncommitted"


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
CURSORS = [with_a_cursor, with_a_following_cursor, with_a_cursor_of_the_writer]
READ_AHEAD = CURSORS[1:]  # also what a compaction or an erasure has taken since
OWN = [of_the_writer, with_a_cursor_of_the_writer]
Begun = Callable[[kstore.LogWriter, int], Any]


def opened(path: Path) -> kstore.LogWriter:
    """Its truncations begin no leader epoch."""
    options: Any = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0}
    return kstore.open(path, "a", internal_segment_bytes=600, leader_epoch=3, **options)


def first_of_batch(log: kstore.LogWriter, offset: int) -> int:
    """The first offset of a batch that holds an offset and one before it; else the offset."""
    batches = log.from_file_start().batches()
    return next((b.base_offset for b in batches if b.base_offset < offset <= b.last_offset), offset)


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
            [
                *["append", "append", "extend", "extend", "truncate", "roll", "close", "compact", "erase"],
                *["look", "look", "look at a few"],
            ]
        )
        if what == "append":
            for _ in range(dice.randrange(1, 12)):
                log.append(b"%d" % dice.randrange(1 << 30), b"%d" % dice.randrange(6))
        elif what == "extend":
            values = [b"%d" % dice.randrange(1 << 30) for _ in range(dice.randrange(1, 9))]
            log.extend(values, keys=[b"%d" % dice.randrange(6) for _ in values])
        elif what == "truncate":
            offset = dice.randrange(log.log_end_offset + 1)
            if offset < log.log_end_offset:
                if dice.randrange(4):
                    first = first_of_batch(log, offset)
                    log.truncate_to(offset)
                    offset = first
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
            end = caught.value.end
            shown = log if begun in OWN else kstore.open(path)
            assert shown.log_start_offset <= end <= max(cut, shown.log_start_offset)
            assert not [record for record in log if end <= record.offset < cut]
            position, cut = end, -1
            reader.close()
            reader = begun(log, position)
        elif what == "look at a few" and cut < 0 and begun in CURSORS and position >= log.log_start_offset:
            for record in islice(reader, dice.randrange(1, 6)):
                found = next(r for r in log if r.offset >= position)
                assert record == found or (begun in READ_AHEAD and position <= record.offset < found.offset)
                position = record.offset + 1
        else:
            if position < log.log_start_offset:
                with pytest.raises(kstore.OffsetOutOfRangeError):
                    list(reader)
                return
            given, there = [r.offset for r in reader], [r.offset for r in log if r.offset >= position]
            assert given == there or (begun in READ_AHEAD and given == sorted({*given, *there}))
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


@pytest.mark.parametrize("offset", [13, 15])
def test_a_group_that_was_closed(tmp_path: Path, offset: int) -> None:
    """The log ends before its position now, and no leader epoch tells where it was cut off."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", leader_epoch=3) as log:
        append(log, 10)
        log.truncate_to(2)
        append(log, 16)
        time.sleep(0.002)
        with kstore.open(path).cursor("g") as jobs:
            assert len(list(jobs)) == 18
            jobs.commit()
        log.truncate_to(offset)
        log.append(b"new")
        with kstore.open(path).cursor("g") as jobs:
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(jobs)
            assert caught.value.end == offset
            jobs.seek(caught.value.end)
            assert [record.value for record in jobs] == [b"new"]


@pytest.mark.parametrize("end", [10, 7, 4])
def test_a_killed_truncation(tmp_path: Path, end: int) -> None:
    """The file says that one may have been carried out: whoever opens the log for writing says how far it was."""
    path = tmp_path / "t-0"
    log = kstore.open(path, "a")
    append(log, 10)
    log.abandon()
    pending = read_truncations(path).expecting(4, 4)
    write_truncations(str(path), pending)
    reader = followed(log, 0)  # from here on nobody tells it of the one that was pending
    assert len(list(reader)) == 10
    with (path / f"{0:020d}.log").open("r+b") as file:
        file.truncate(kstore.open(path).segments[0].size // 10 * end)
    with kstore.open(path, "a") as log:
        log.append(b"new")
        found = read_truncations(path)
        assert not found.is_pending
        assert found.number > pending.number
        assert found.since(0, ALL) == found.since(pending.number, ALL) == end
        if end == 10:
            assert [record.value for record in reader] == [b"new"]
        else:
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(reader)
            assert caught.value.end == end


@pytest.mark.parametrize("begun", OTHERS)
def test_one_that_is_pending(tmp_path: Path, begun: Begun) -> None:
    """Before records are cut off, nobody is told that they were: who went on from there would be given them again."""
    path = tmp_path / "t-0"
    log = kstore.open(path, "a")
    append(log, 10)
    reader = begun(log, 0)
    assert len(list(reader)) == 10
    write_truncations(str(path), read_truncations(path).expecting(4, 4))
    assert list(reader) == []
    log.truncate_to(4)
    log.append(b"new")
    with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
        list(reader)
    assert caught.value.end == 4
    log.close()


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
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\0" * 100,
        b" " * 100_000 + b"{}",
        b'{"version": 1, "truncations": [[1]], "pending": 0}',
        b'{"version": 1, "truncations": [[9223372036854775807, 9, 9]], "end": 10, "pending": false}',
    ],
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


def bind(path: Path) -> None:
    with (
        contextlib.chdir(path.parent),
        socket.socket(socket.AF_UNIX) as it,
    ):  # its path may be too long for a socket
        it.bind(path.name)


def test_no_file_of_that_name(tmp_path: Path) -> None:
    """What is there tells nothing, and reading goes on."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        append(log, 10)
        for make in (Path.mkdir, lambda p: p.symlink_to(p), os.mkfifo, bind):
            make(path / NAME)
            assert len(list(followed(log, 0))) == len(list(with_a_cursor(log, 0))) == 10
            (path / NAME).rmdir() if (path / NAME).is_dir() else (path / NAME).unlink()


def transaction(log: kstore.LogWriter, sequence: int, values: list[bytes]) -> None:
    now = int(time.time() * 1000)
    records = [(now, None, value, None) for value in values]
    own: Any = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    log.append_batches(kstore.encode_batch(records, base_sequence=sequence, **own))


def end_transaction(log: kstore.LogWriter, commits: bool) -> None:
    now = int(time.time() * 1000)
    own: Any = {"producer_id": 1, "producer_epoch": 0, "transactional": True, "control": True}
    marker = kstore.encode_batch([(now, b"\0\0\0" + bytes([commits]), bytes(6), None)], **own)
    log.append_batches(marker, origin="coordinator", transaction_version=0)


@pytest.mark.parametrize("kind", ["follow", "writer", "store", "cursor", "following", "reopened"])
@pytest.mark.parametrize("own_epochs", [True, False])
def test_a_transaction_is_open_again(tmp_path: Path, kind: str, own_epochs: bool) -> None:
    """Its abort was cut off, and then it was committed: readers of committed records get them."""
    path = tmp_path / "t-0"
    options: Any = {"isolation": "read_committed"}
    with kstore.open(path, "a", leader_epoch=None if own_epochs else 3) as log:
        append(log, 2)
        transaction(log, 0, [b"t2", b"t3"])
        end_transaction(log, False)
        append(log, 2)
        view, store = kstore.open(path), kstore.LogStore(tmp_path)
        make: dict[str, Callable[[int], Any]] = {
            "follow": lambda at: view.follow(at, timeout=0, **options),
            "writer": lambda at: log.follow(at, timeout=0, **options),
            "store": lambda at: store.follow(["t"], {("t", 0): at}, timeout=0, **options),
            "cursor": lambda at: sought(kstore.open(path).cursor(uuid.uuid4().hex, **options), at),
            "following": lambda at: sought(
                kstore.open(path).cursor(uuid.uuid4().hex, follow=True, timeout=0, **options), at
            ),
            "reopened": lambda _: kstore.open(path).cursor("g", **options),
        }
        reader = make[kind](0)
        assert [record.offset for record in reader] == [0, 1, 5, 6]
        if kind == "reopened":
            reader.commit()
            reader.close()
            reader = make[kind](0)
        log.truncate_to(4)
        end_transaction(log, True)
        log.append(b"n5")
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            list(reader)
        assert caught.value.end == 2
        if kind == "reopened":
            reader.seek(caught.value.end)
        else:
            reader.close()
            view.refresh()
            reader = make[kind](caught.value.end)
        assert [record.value for record in reader] == [b"t2", b"t3", b"n5"]
        reader.close()


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
        assert read_truncations(path).since(seen, ALL) == 5


def readers_of_cursors(log: kstore.LogWriter) -> list[Any]:
    """Each gives offsets; the position of its cursor is moved by `seek`."""
    group = uuid.uuid4().hex
    store = kstore.LogStore(Path(log.path).parent)
    return [
        kstore.open(log.path).cursor(group),
        kstore.open(log.path).cursor(group + "f", follow=True, timeout=0),
        log.cursor(group + "w"),
        store.cursor(group + "s", ["t"]),
        store.cursor(group + "t", ["t"], follow=True, timeout=0),
    ]


def read(cursor: Any, by: str) -> Any:
    if by == "columns":
        for batch in cursor.scan(["value"], batch_rows=1):
            yield from (value for (value,) in getattr(batch, "batch", batch).rows())
    else:
        for record in cursor:
            yield record.value


@pytest.mark.parametrize("by", ["records", "columns"])
@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize("regrown", [50, 100, 130])
def test_a_cursor_that_lags_behind(tmp_path: Path, which: int, by: str, regrown: int) -> None:
    """The log is truncated above its position, and grows again, while it is at a record: it is given nothing twice."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"old %05d" % i + b"x" * 10_000 for i in range(100)], batch_bytes=0)
        cursor = readers_of_cursors(log)[which]
        values = read(cursor, by)
        given = [next(values)]
        log.truncate_to(50)
        log.extend([b"new %05d" % i + b"x" * 10_000 for i in range(50, regrown)], batch_bytes=0)
        for _ in range(3):
            try:
                given += values
            except kstore.OffsetOutOfRangeError as error:
                cursor.seek(error.end, *(["t", 0] if which > 2 else []))
            values = read(cursor, by)
        assert [value[:9] for value in given] == [record.value[:9] for record in log]
        cursor.close()


def test_a_store_follower_that_lags_behind(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"old %05d" % i + b"x" * 10_000 for i in range(100)], batch_bytes=0)
        follower = of_a_store(log, 0)
        given = [next(iter(follower)).value]
        log.truncate_to(50)
        log.extend([b"new %05d" % i + b"x" * 10_000 for i in range(50, 100)], batch_bytes=0)
        given += [record.value for record in follower]
        assert given == [record.value for record in log]


def test_who_was_told_is_not_told_again(tmp_path: Path) -> None:
    """A view is asked for a follower from `error.end` on, after each of several truncations."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        append(log, 10)
        view = kstore.open(log.path)
        follower = view.follow(0, timeout=0)
        given = [record.value for record in follower]
        for offset in (2, 6, 9, 4):
            log.truncate_to(offset)
            while log.log_end_offset < 10:
                log.append(b"%d of %d" % (log.log_end_offset, offset))
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(follower)
            assert caught.value.end == offset
            follower = view.follow(offset, timeout=0)
            given[offset:] = [record.value for record in follower]
            assert given == [record.value for record in log]


@pytest.mark.parametrize("grown", [1, 10])
@pytest.mark.parametrize("is_anew", [False, True])
def test_a_cursor_is_told_of_all_that_was_removed(tmp_path: Path, is_anew: bool, grown: int) -> None:
    """A truncation inside a batch removes the records of the batch before its offset too."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        append(log, 3)
        log.extend([b"old"] * 10)
        cursor = kstore.open(log.path).cursor("g", follow=True, timeout=0)
        assert len(list(cursor)) == 13
        cursor.commit()
        log.truncate_to(8)
        append(log, grown)
        if is_anew:
            cursor.close()
            cursor = kstore.open(log.path).cursor("g", follow=True, timeout=0)
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            list(cursor)
        assert caught.value.end == 3
        cursor.close()


@pytest.mark.parametrize("is_anew", [False, True])
@pytest.mark.parametrize("position", [3, 4, 6, 8, 9])
def test_a_cursor_in_the_midst_of_what_was_removed(tmp_path: Path, is_anew: bool, position: int) -> None:
    """A truncation inside a batch leaves no records from the batch on, up to its offset."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        append(log, 3)
        log.extend([b"old"] * 10)
        cursor = kstore.open(log.path).cursor("g", follow=True, timeout=0)
        for record in cursor:
            if record.offset == position - 1:
                break
        cursor.commit()
        log.truncate_to(8)
        append(log, 5)
        if is_anew:
            cursor.close()
            cursor = kstore.open(log.path).cursor("g", follow=True, timeout=0)
        if position == 3:  # nothing that it had read was removed
            assert [record.offset for record in cursor] == list(range(8, 13))
        else:
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(cursor)
            assert caught.value.end == 3
        cursor.close()


def test_a_follower_behind_what_was_deleted(tmp_path: Path) -> None:
    """What came in the place of what was removed was deleted as well: there is nothing to go back to."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        append(log, 10)
        view = kstore.open(log.path)
        log.truncate_to(5)
        append(log, 15)
        log.delete_records(12)
        follower = view.follow(12, timeout=0)
        assert [record.offset for record in follower] == list(range(12, 20))
        append(log, 2)
        assert [record.offset for record in follower] == [20, 21]
