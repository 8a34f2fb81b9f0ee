"""repr(), equality, truth, copies and pickles of objects, and what errors say."""

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import Record

T = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of four segments."""
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=200) as log:
        for i in range(4):
            log.append(b"x" * 50, timestamp=T + i)
    return tmp_path / "t-0"


# ---- repr() --------------------------------------------------------------------------------------


def test_a_repr_has_the_class_the_path_and_the_offsets(path: Path) -> None:
    log = kstore.open(path)
    first, size = log.segments[0].path, log.segments[0].size
    with kstore.open(path, "a") as writer, writer.appender(linger_ms=10_000) as out:
        ticket, follower = out.append(b"v"), writer.follow()
        for given, text in [
            (log.segments[0], f"<Segment {first!r}: base_offset=0, end_offset=1>"),
            (log.segments[-1], f"<Segment {log.segments[-1].path!r}: base_offset=3>"),
            (log.records(1), f"<RecordReader of {path}: offsets 1 to 4 (exclusive)>"),
            (log.batches(1, 2), f"<BatchReader of {path}: offsets 1 to 2 (exclusive)>"),
            (log.scan(["key"]), f"<Scan of {path}: offsets 0 to 4 (exclusive), columns key>"),
            (log.read(0), f"<Slice of {first}, from byte 0: {size} bytes, from offset 0 on>"),
            (log.span(0), f"<Span of {path}: {4 * size} bytes in 4 slices, from offset 0 on>"),
            (log.follow(2), f"<Follower of {path}: at offset 2>"),
            (log, f"PartitionLog({str(path)!r}, log_start_offset=0, log_end_offset=4)"),
            (kstore.LogStore(path.parent), f"LogStore({str(path.parent)!r}, 1 partitions)"),
            (out, f"<Appender of {path}: linger_ms=10000>"),
            (ticket, f"<Ticket of {path}: not appended yet>"),
            (follower, f"<Follower of {path}: at offset 4>"),
        ]:
            assert repr(given) == text
        follower.close()
    log.close()
    assert repr(out) == f"<Appender of {path}: closed>"
    assert repr(ticket) == f"<Ticket of {path}: offset 4>"
    assert repr(follower) == f"<Follower of {path}: at offset 4, closed>"
    assert repr(log) == f"PartitionLog({str(path)!r}, closed)"
    kstore.open(path.parent / "e-0", "a").close()
    for file in (path.parent / "e-0").glob("0*"):
        file.unlink()
    empty = kstore.open(path.parent / "e-0")
    assert repr(empty.records()) == "<RecordReader of an empty log: offsets 0 to 0 (exclusive)>"
    assert repr(empty.scan()).startswith("<Scan of an empty log: offsets 0 to 0")
    assert repr(empty.read(0)) == "<Slice of an empty log: 0 bytes, from offset 0 on>"
    assert repr(empty.span(0)) == "<Span of no slices>"


# ---- records -------------------------------------------------------------------------------------


def test_a_record_that_is_made_equals_the_one_that_was_read(log: kstore.LogWriter) -> None:
    log.append(b"v", b"k", 1711530458631, {"h": b"x", "n": None})
    log.append(b"v", timestamp=-1)
    first, second = log
    headers = {"h": b"x", "n": None}
    assert first == Record(offset=0, timestamp=1711530458631, key=b"k", value=b"v", headers=headers)
    moment = datetime(2024, 3, 27, 9, 7, 38, 631000, UTC)
    assert first == Record(0, moment, key=b"k", value=b"v", headers=first.headers)
    assert second == Record(offset=1, value=b"v")
    assert len({first, second, Record(offset=1, value=b"v")}) == 2


@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_a_record_is_copied_and_pickled(through: Callable[[Record], Record]) -> None:
    record = Record(3, 5, "LogAppendTime", b"k", None, [("h", b"x"), ("h", None)])
    assert through(record) == record
    assert eval(repr(record)) == record


def test_what_is_no_record() -> None:
    several: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"offset": 1.5}, TypeError, "offset is an int"),
        ({"offset": True}, TypeError, "offset is an int"),
        ({"offset": -1}, ValueError, "offset is from 0"),
        ({"offset": 2**63}, ValueError, "offset is from 0"),
        ({"timestamp": 1.5}, TypeError, "timestamp is milliseconds"),
        ({"timestamp": datetime(2024, 1, 1)}, ValueError, "time zone"),
        ({"timestamp_type": "createTime"}, ValueError, "'CreateTime', 'LogAppendTime'"),
        ({"value": "text"}, TypeError, "value"),
        ({"headers": {"h": "text"}}, TypeError, "encode it"),
        ({"headers": {"h": 3}}, TypeError, "bytes-like or None, not int"),
        ({"headers": ["ab"]}, TypeError, "pairs"),
    ]
    for options, error, words in several:
        with pytest.raises(error, match=words):
            Record(**{"offset": 0, **options})


# ---- slices and logs -----------------------------------------------------------------------------


def test_what_holds_files_is_not_pickled_and_says_what_to_do(log: kstore.LogWriter) -> None:
    for opened in (log, kstore.open(log.path)):
        with pytest.raises(TypeError, match=r"its path, .*t-0.*, and open it there"):
            pickle.dumps(opened)
    with log.appender() as out, pytest.raises(TypeError, match="pickled"):
        pickle.dumps(out)


# ---- errors --------------------------------------------------------------------------------------

ERRORS: list[kstore.KstoreError] = [
    kstore.KstoreError("text"),
    kstore.CorruptFileError("reason", file="f", position=3, expected=1, found=2),
    kstore.CorruptRecordError("reason", file="f", position=3, offset=7),
    kstore.RecordTooLargeError("record", size=3, limit=2),
    kstore.OffsetOutOfRangeError(9, 1, 3),
    kstore.LogChangedError("f", 9, 1, 3, "it was deleted"),
    kstore.LogNotFoundError("no directory"),
    kstore.InvalidRecordError("text", [(0, "why")]),
    kstore.UnexpectedAppendOffsetError(1, 2, 3),
    kstore.LogLockedError("data", 17),
    kstore.CursorLockedError("data", 17),
    kstore.InvalidConfigError("text", name="n", value=1),
]


def test_an_error_of_another_process_can_be_read_here() -> None:
    for error in ERRORS:
        copied = pickle.loads(pickle.dumps(error))
        assert type(copied) is type(error)
        assert (str(copied), vars(copied), copied.args) == (str(error), vars(error), error.args)


def test_every_constructor_of_an_error_is_in_that_list() -> None:
    kinds: list[Any] = [getattr(kstore, name) for name in kstore.__all__]
    own = {
        kind
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, kstore.KstoreError) and "__init__" in vars(kind)
    }
    assert own <= {type(error) for error in ERRORS}
