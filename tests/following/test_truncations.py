"""Readers beside truncations, beyond `test_positions.py`: the file, transactions, large batches."""

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.files.checked_json import encode
from tests.helpers import reader_kinds
from tests.helpers.effort import times
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.processes import run_python
from tests.helpers.reader_kinds import OfCursor, OfFollower, Reader

NAME = "kstore.json"
NOW = int(time.time() * 1000)
KINDS = reader_kinds.KINDS


def append(log: kstore.LogWriter, count: int, value: bytes = b"old") -> None:
    for _ in range(count):
        log.append(value)


def cut_at(reader: Reader) -> int:
    """What the error says is the end of what is as it was."""
    with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
        reader.take()
    return caught.value.end


@pytest.mark.parametrize("by", ["records", "columns"])
@pytest.mark.parametrize("kind", [*KINDS, "cursor of the writer", "follower of the writer"])
def test_large_batches(ram: Path, kind: str, by: str) -> None:
    """The reader has read a part of a batch, or has read ahead what is truncated: nothing comes twice."""
    with kstore.open(ram / "t-0", "a") as log:
        for i in range(20):
            log.append(b"old %05d" % i + b"x" * 200_000)
        if kind in KINDS:
            reader = KINDS[kind](ram / "t-0", "g")
        else:
            reader = OfCursor(log.cursor("g")) if "cursor" in kind else OfFollower(log)
        with reader:
            given: list[tuple[int, Any]] = []
            reader.read_on(given, 1, by)
            log.truncate_to(10)
            for i in range(10, 20):
                log.append(b"new %05d" % i + b"x" * 300_001)
            for _ in range(3):
                try:
                    reader.read_on(given, None, by)
                except kstore.OffsetOutOfRangeError as error:
                    reader.go_to(error.end)
                    del given[error.end :]
            found = {offset: value[:9] for offset, value in given}
            assert len(found) == len(given)
            assert found == {record.offset: bytes(record.value or b"")[:9] for record in log}


@pytest.mark.parametrize("of_store", [False, True], ids=["log", "store"])
def test_a_truncation_between_two_followers(tmp_path: Path, of_store: bool) -> None:
    """Another follower continues at a saved position, and detects what was truncated meanwhile."""
    tp = kstore.TopicPartition("t", 0)

    def follow(start: Any) -> Any:
        if of_store:
            return kstore.LogStore(tmp_path).follow(["t"], {tp: start}, timeout=0)
        return kstore.open(tmp_path / "t-0").follow(start, timeout=0)

    with kstore.open(tmp_path / "t-0", "a") as log:
        append(log, 4)
        with follow(0) as follower:
            assert [record.offset for record in follower] == [0, 1, 2, 3]
            position = follower.positions()[tp] if of_store else follower.position
        saved = kstore.Position(*json.loads(json.dumps(position)))
        assert saved == position
        assert list(follow(saved)) == []
        log.truncate_to(2)
        append(log, 3, b"new")
        for _ in range(2):
            error = r"^records from offset 2 on were removed after a reader had reached offset 4\n"
            with (
                follow(saved) as follower,
                pytest.raises(kstore.OffsetOutOfRangeError, match=error) as caught,
            ):
                next(iter(follower))
            assert (caught.value.asked, caught.value.first, caught.value.end) == (4, 0, 2)
        assert [record.value for record in follow(caught.value.end)] == [b"new"] * 3
    with pytest.raises(ValueError, match=r"\.generation is from -1"):
        follow(saved._replace(generation=-2))


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
    """An opening for writing raises an error: options and an unfinished truncation would be lost. So does a
    reader that goes on at a position. One that begins at an offset reads, and finds the damage. An open writer
    writes the file again."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        append(log, 10)
        log.truncate_to(9)
        reader = kstore.open(path).follow(0, timeout=0)
        assert len(list(reader)) == 9
        (path / NAME).write_bytes(content)
        append(log, 10)
        fresh = kstore.open(path)
        for followed in (reader, fresh.follow(kstore.Position(9, 0, 0), timeout=0)):
            with pytest.raises(kstore.CorruptCheckpointError, match=NAME):
                list(followed)
        late = fresh.follow(9, timeout=0)
        assert [record.offset for record in late] == list(range(9, 19))
        assert late.position.generation == -1
        assert len(list(fresh)) == 19
    assert "manifest_damaged" in {finding.code for finding in kstore.open(path).recovery.findings}
    with pytest.raises(kstore.CorruptCheckpointError, match=NAME):
        kstore.open(path, "a")
    (path / NAME).unlink()
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
    """What is there tells nothing, and reading goes on. A cursor needs the id that would be in the file."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        append(log, 10)
        for make in (Path.mkdir, lambda p: p.symlink_to(p), os.mkfifo, bind):
            make(path / NAME)
            for kind in reader_kinds.FOLLOWERS:
                with KINDS[kind](path, uuid.uuid4().hex) as reader:
                    assert len(reader.take()) == 10
            with pytest.raises(OSError, match=NAME):
                kstore.open(path).cursor("g")
            (path / NAME).rmdir() if (path / NAME).is_dir() else (path / NAME).unlink()


@pytest.mark.parametrize("kind", ["follow", "writer", "store", "cursor", "following", "reopened"])
@pytest.mark.parametrize("own_epochs", [True, False])
def test_a_transaction_is_open_again(tmp_path: Path, kind: str, own_epochs: bool) -> None:
    """Its abort was cut off, and then it was committed: readers of committed records get them."""
    path = tmp_path / "t-0"
    options: Any = {"isolation": "read_committed"}
    now = int(time.time() * 1000)
    with kstore.open(path, "a", leader_epoch=None if own_epochs else 3) as log:
        append(log, 2)
        log.append_batches(transactional((now, None, b"t2", None), (now, None, b"t3", None)))
        end_transaction(log, "ABORT", now)
        append(log, 2)
        view, store = kstore.open(path), kstore.LogStore(tmp_path)
        make: dict[str, Callable[[int], Any]] = {
            "follow": lambda at: view.follow(at, timeout=0, **options),
            "writer": lambda at: log.follow(at, timeout=0, **options),
            "store": lambda at: store.follow(
                ["t"], {kstore.TopicPartition("t", 0): at}, timeout=0, **options
            ),
            "cursor": lambda at: kstore.open(path).cursor(uuid.uuid4().hex, start=at, **options),
            "following": lambda at: kstore.open(path).cursor(
                uuid.uuid4().hex, start=at, follow=True, timeout=0, **options
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
        end_transaction(log, "COMMIT", now)
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


def test_many(ram: Path) -> None:
    """The file stays small. A reader that has not looked for long gets an error that names no offset too
    high."""
    with kstore.open(ram / "t-0", "a") as log:
        append(log, 4)
        with KINDS["cursor"](ram / "t-0", "g") as reader:
            append(log, 10)
            assert len(reader.take()) == 14
            log.truncate_to(5)
            for _ in range(100):
                append(log, 2)
                log.truncate_to(log.log_end_offset - 1)
            assert (ram / "t-0" / NAME).stat().st_size < 5_000
            assert cut_at(reader) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_a_broker_has_made_shorter(ram: Path, kind: str, untold: None) -> None:
    """In the same leader epoch: the error names the end of the log."""
    with kstore.open(ram / "t-0", "a") as log:
        append(log, 10)
        with KINDS[kind](ram / "t-0", "g") as reader:
            assert len(reader.take()) == 10
            log.truncate_to(4)
            append(log, 3, b"new")
            assert cut_at(reader) == cut_at(reader) == 7


def test_a_pending_note_of_an_older_version_removes_nothing(tmp_path: Path) -> None:
    """It may be of a truncation that was refused, and records followed."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        append(log, 10)
    content = {"version": 1, "truncations": [(1, 5, 5)], "end": 5, "pending": True}
    (tmp_path / "t-0" / "kstore-truncations.json").write_bytes(encode(content))
    with pytest.raises(kstore.CorruptCheckpointError, match=r"kstore-truncations\.json"):
        kstore.open(tmp_path / "t-0", "a")
    assert kstore.open(tmp_path / "t-0").log_end_offset == 10


@pytest.mark.parametrize("beside", [False, True], ids=["writer", "reader"])
def test_a_start_beyond_the_last_stable_offset(tmp_path: Path, beside: bool) -> None:
    """The log has the offset: a follower waits there, whatever is truncated behind it."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        append(log, 1)
        log.append_batches(transactional(*[(NOW, b"k", b"v", None)] * 2))
        append(log, 4)
        followed = kstore.open(tmp_path / "t-0") if beside else log
        with followed.follow(4, isolation="read_committed", timeout=0) as follower:
            assert follower.take() is None
            log.truncate_to(6)
            assert follower.take() is None
            end_transaction(log, "COMMIT", NOW)
            assert [record.offset for record in follower] == [4, 5]


def test_a_transaction_that_two_truncations_leave_open(tmp_path: Path) -> None:
    """The second one must not forget that the first one has opened it again."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        append(log, 2)
        log.append_batches(transactional(*[(NOW, b"k", b"v", None)] * 2))
        append(log, 4)
        end_transaction(log, "ABORT", NOW)
        append(log, 2)
        with kstore.open(tmp_path / "t-0").follow(0, isolation="read_committed", timeout=0) as follower:
            for _ in range(4):
                follower.take()
            position = follower.position
            assert position.offset == 6
        log.truncate_to(8)
        log.truncate_to(7)
        append(log, 3)
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            log.follow(position, isolation="read_committed").take()
        assert caught.value.end == 2


def test_a_transaction_that_a_crash_opens_again(tmp_path: Path) -> None:
    """delete_records has removed its records, and recovery reads them: nothing was removed since."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.append_batches(transactional(*[(NOW, b"k", b"v", None)] * 2))
        log.delete_records(2)
    log = kstore.open(path, "a")
    append(log, 3)
    with log.cursor("g", isolation="read_committed") as cursor:
        assert [record.offset for record in cursor] == [2, 3, 4]
        cursor.commit()
    log.abandon()
    with kstore.open(path, "a") as log, log.cursor("g", isolation="read_committed") as cursor:
        error = "^the last stable offset went back to 2 after a reader of committed records had reached offset 5\n"
        with pytest.raises(kstore.OffsetOutOfRangeError, match=error + "a transaction is open again"):
            next(iter(cursor))
        cursor.seek(2)
        assert list(cursor) == []
        assert [record.offset for record in log] == [2, 3, 4]


def test_a_transaction_that_is_open_again_below_the_log_start(tmp_path: Path) -> None:
    """Its records were deleted: a reader at the log start has passed none of those that are left."""
    path = tmp_path / "t-0"
    log = kstore.open(path, "a")
    log.append_batches(transactional(*[(NOW, b"k", b"v", None)] * 2))
    with kstore.open(path).follow(2, isolation="read_committed", timeout=0) as follower:
        assert follower.take() is None
        log.abandon()
        with kstore.open(path, "a") as log:
            log.delete_records(2)
            log.append(b"w")
            end_transaction(log, "COMMIT", NOW)
            assert [record.offset for record in follower] == [2]


@pytest.mark.parametrize("deletes", [False, True])
def test_a_follower_goes_on_from_the_position_of_its_error(ram: Path, deletes: bool) -> None:
    """Once, also if the truncated offset was deleted since; and it detects the next truncation."""
    with kstore.open(ram / "t-0", "a") as log, kstore.open(ram / "t-0") as reader:
        append(log, 10)
        with reader.follow(0, timeout=0) as follower:
            assert len(list(follower)) == 10
            log.truncate_to(5)
            append(log, 10, b"new")
            if deletes:
                log.delete_records(7)
            with pytest.raises(kstore.OffsetOutOfRangeError) as first:
                next(follower)
        begin = 7 if deletes else 5
        assert first.value.end == first.value.position.offset == begin
        with reader.follow(first.value.position, timeout=0) as follower:
            assert [(r.offset, r.value) for r in follower] == [(i, b"new") for i in range(begin, 15)]
        log.truncate_to(3)
        append(log, 20, b"newer")
        with pytest.raises(kstore.OffsetOutOfRangeError) as second:
            next(reader.follow(first.value.position, timeout=0))
        assert second.value.end == 3
        with reader.follow(second.value.position, timeout=0) as follower:
            assert [r.value for r in follower] == [b"newer"] * 20


KILLED = """
import sys, kstore
from kstore.testing import count_calls, failing
log = kstore.open(sys.argv[1], "a", shared=sys.argv[2] == "True")
if sys.argv[3] == "0":
    print(count_calls(lambda: log.truncate_to(55)))
else:
    with failing(int(sys.argv[3]), how="kill"):
        log.truncate_to(55)
"""


@pytest.mark.parametrize(("shared", "size"), [(False, 1), (True, 1), (False, 2)])
def test_a_reader_after_a_truncation_that_was_killed(ram: Path, shared: bool, size: int) -> None:
    """It shows the log before the truncation or after it, as the next writer does, and names it. Of a batch
    with the offset inside it, the writer encodes the first half again: a reader ends behind it."""

    def killed_at(nth: int) -> tuple[Path, str]:
        path = ram / f"t-{nth}"
        with kstore.open(path, "a", internal_segment_bytes=1000, file_delete_delay_ms=0) as log:
            for i in range(0, 100, size):
                log.extend([b"%d" % n + b"." * 100 for n in range(i, i + size)])
        return path, run_python(KILLED, path, shared, nth).stdout

    count = int(killed_at(0)[1])
    for nth in range(1, count + 1, max(1, count // times(12))):
        path, _ = killed_at(nth)
        reader = kstore.open(path)
        end, is_named = reader.log_end_offset, "a truncation was begun" in str(reader.recovery.findings)
        assert [record.offset for record in reader] == list(range(end))
        assert len(list(reader.scan(["value"]))) <= 1
        assert not reader.refresh()
        with kstore.open(path, "a", shared=shared) as log:
            writers = log.log_end_offset
            assert end == writers or (size, end, writers) == (2, 56, 55)
            assert writers == 100 or writers == 55
            assert not is_named or writers == 55
            assert [record.offset for record in log] == list(range(writers))
            log.append(b"next")
        assert reader.refresh()
        assert reader.get(writers).value == b"next"
