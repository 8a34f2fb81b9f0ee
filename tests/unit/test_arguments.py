"""What is no offset, epoch or time is refused before anything is touched."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import kstore
from kstore.testing import crash_states

END = 2**63 - 1
CALLS: list[tuple[str, Callable[[kstore.LogWriter, Any], object], int, int]] = [
    ("delete_records", lambda log, n: log.delete_records(n), -1, 40),
    ("truncate_to", lambda log, n: log.truncate_to(n), 0, END),
    ("truncate_fully", lambda log, n: log.truncate_fully_and_start_at(n), 0, END),
    ("start of an empty log", lambda log, n: log.truncate_fully_and_start_at(100, n), 0, 100),
    ("assign_leader_epoch", lambda log, n: log.assign_leader_epoch(n), 0, 2**31 - 1),
]


NONE_IS_DEFAULT = ("start of an empty log",)


def state_of(directory: Path) -> tuple[dict[str, bytes], list[int], tuple[tuple[int, int], ...]]:
    files = {p.name: p.read_bytes() for p in directory.iterdir() if not p.name.endswith(("index", "lock"))}
    log = kstore.open(directory)
    return files, [record.offset for record in log], log.leader_epochs


def written(directory: Path) -> kstore.LogWriter:
    log = kstore.open(directory, "a", internal_segment_bytes=2000)
    for i in range(40):
        log.append(b"%02d" % i + b"x" * 100)
    log.flush()
    return log


NO_INTS = [1.5, 2.0, numpy.float64(25), True, numpy.True_, "7", None, b"1", [3], numpy.arange(2)]


@pytest.mark.parametrize(
    ("call", "bad"),
    [
        pytest.param(call, bad, id=f"{name}-{bad!r}")
        for name, call, _, _ in CALLS
        for bad in NO_INTS
        if not (bad is None and name in NONE_IS_DEFAULT)
    ],
)
def test_what_is_no_int(tmp_path: Path, call: Callable[[kstore.LogWriter, Any], object], bad: object) -> None:
    log = written(tmp_path / "t-0")
    before = state_of(tmp_path / "t-0")
    with pytest.raises(TypeError, match="is an int, not"):
        call(log, bad)
    assert state_of(tmp_path / "t-0") == before
    assert log.append(b"goes on") == 40
    log.close()


@pytest.mark.parametrize(("call", "least", "most"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_out_of_range(
    tmp_path: Path, call: Callable[[kstore.LogWriter, Any], object], least: int, most: int
) -> None:
    log = written(tmp_path / "t-0")
    before = state_of(tmp_path / "t-0")
    for bad in (least - 1, most + 1, 2**63, -(2**63), 2**100):
        with pytest.raises((ValueError, kstore.OffsetOutOfRangeError)):
            call(log, bad)
    assert state_of(tmp_path / "t-0") == before
    assert call(log, numpy.int32(least)) in (None, True, False, 0, 40)  # numpy's integers are ints
    log.close()


@pytest.mark.parametrize(
    "options",
    [
        {"recovery_point": 1.5},
        {"recovery_point": -3},
        {"log_start_offset": True},
        {"log_start_offset": 2**63},
        {"leader_epoch": 2**31},
        {"leader_epoch": 1.0},
        {"max_decompressed_bytes": -1},
        {"producer_id_expiration_ms": 0},
        {"producer_id_expiration_ms": 1.5},
        {"topic_id": "not one"},
        {"clock": lambda: 1.5},
        {"clock": lambda: -1},
        {"clock": lambda: 2**63},
        {"durability": "groups"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_of_open(tmp_path: Path, options: dict[str, Any]) -> None:
    written(tmp_path / "t-0").close()
    before = state_of(tmp_path / "t-0")
    for path in (tmp_path / "t-0", tmp_path / "new-0"):
        with pytest.raises((TypeError, ValueError)):
            kstore.open(path, "a", **options)
    assert state_of(tmp_path / "t-0") == before
    assert kstore.open(tmp_path / "t-0").recovery.clean
    assert not (tmp_path / "new-0").exists()


@pytest.mark.parametrize("wrong", [1.5, -1, None, 2**63])
def test_a_clock_that_goes_wrong(tmp_path: Path, wrong: Any) -> None:
    times = [1_700_000_000_000] * 3
    log = kstore.open(tmp_path / "t-0", "a", clock=lambda: times[-1])
    log.append(b"one")
    times.append(wrong)
    for call in (lambda: log.append(b"two"), lambda: log.extend([b"two"]), log.retain, log.roll):
        with pytest.raises((TypeError, ValueError), match="the time that the log's clock gives"):
            call()
    times.append(times[0])
    assert log.append(b"two") == 1
    log.close()
    assert [(r.value, r.timestamp) for r in kstore.open(tmp_path / "t-0")] == [
        (b"one", times[0]),
        (b"two", times[0]),
    ]


@pytest.mark.parametrize("room", [0, 1, 2])
def test_the_last_offset(tmp_path: Path, room: int) -> None:
    """The offset behind the last record must be one too."""
    batch = kstore.encode_batch([(1, None, b"v", None)] * (room + 1))
    with kstore.open(tmp_path / "t-0", "a", durability="each") as log:
        log.truncate_fully_and_start_at(END - room)
        for call in (
            lambda: log.extend([b"x"] * (room + 1)),
            lambda: log.append_batches(batch),
            lambda: log.append_batches(batch * 2),
        ):
            with pytest.raises(kstore.OffsetOverflowError, match="largest offset"):
                call()
        assert log.log_end_offset == END - room
        assert [log.append(b"%d" % i) for i in range(room)] == list(range(END - room, END))
        with pytest.raises(kstore.OffsetOverflowError):
            log.append(b"no room")
        with log.appender() as out:
            out.append(b"no room")
            with pytest.raises(kstore.OffsetOverflowError):
                out.flush()
            with pytest.raises(kstore.OffsetOverflowError):
                out.close()
        log.flush()
    for mode in ("r", "a"):
        with kstore.open(tmp_path / "t-0", mode) as log:
            assert [record.offset for record in log] == list(range(END - room, END))
            assert log.log_end_offset == END
            assert not log.recovery.losses


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda log: log.appender(linger_ms=numpy.arange(2)), "linger_ms is a number"),
        (lambda log: log.follow(timeout=numpy.arange(2)), "timeout is a number"),
        (lambda log: kstore.LogConfig.from_topic({1: "2"}), "the names of topic"),
        (lambda log: kstore.LogConfig.from_server_properties({1: "2"}), "the names of broker"),
        (lambda log: list(crash_states("x")), "trace"),
    ],
)
def test_what_has_another_class(
    tmp_path: Path, call: Callable[[kstore.LogWriter], object], name: str
) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log, pytest.raises(TypeError, match=name):
        call(log)
