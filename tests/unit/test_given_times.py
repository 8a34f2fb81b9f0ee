"""Timestamps as callers give them: milliseconds, or datetimes that say their time zone."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import kstore

MOMENT = datetime(2024, 3, 27, 10, 7, 38, 631999, timezone(timedelta(hours=1)))
MS = 1711530458631


def _append(log: kstore.LogWriter, timestamp: Any) -> None:
    log.append(b"v", timestamp=timestamp)


def _extend(log: kstore.LogWriter, timestamp: Any) -> None:
    log.extend([b"v"], timestamps=timestamp)


def _extend_each(log: kstore.LogWriter, timestamp: Any) -> None:
    log.extend([b"v"], timestamps=[timestamp])


def _gather(log: kstore.LogWriter, timestamp: Any) -> None:
    with log.appender() as out:
        out.append(b"v", timestamp=timestamp)


def _encode(log: kstore.LogWriter, timestamp: Any) -> None:
    log.append_batches(kstore.encode_batch([(timestamp, None, b"v", None)]))


WAYS = [_append, _extend, _extend_each, _gather, _encode]
Way = Callable[[kstore.LogWriter, Any], None]


@pytest.mark.parametrize("way", WAYS)
def test_a_datetime_is_a_timestamp(tmp_path: Path, way: Way) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        way(log, MOMENT)
        way(log, MS)
        way(log, -1)
        assert [record.timestamp for record in log] == [MS, MS, -1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("timestamp", "error", "words"),
    [
        (1_700_000_000.25, TypeError, r"int\(time.time\(\) \* 1000\)"),
        (1.5, TypeError, "timestamp"),
        (True, TypeError, "timestamp"),
        ("now", TypeError, "timestamp"),
        (datetime(2024, 1, 1), ValueError, "time zone"),
        (datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), ValueError, "timestamp"),
        (-2, ValueError, "timestamp"),
        (2**63, ValueError, "timestamp"),
    ],
)
def test_what_is_no_timestamp(
    tmp_path: Path, way: Way, timestamp: object, error: type[Exception], words: str
) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        with pytest.raises(error, match=words):
            way(log, timestamp)
        assert log.log_end_offset == 0


@pytest.mark.parametrize("way", WAYS)
def test_seconds_are_warned_of(tmp_path: Path, way: Way) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        with pytest.warns(UserWarning, match="if seconds were meant"):
            way(log, int(time.time()))
        way(log, 5)  # as in many a test
        assert log.log_end_offset == 2


def _numpy(seconds: int) -> Any:
    return pytest.importorskip("numpy").array([seconds])


def _arrow(seconds: int) -> Any:
    return pytest.importorskip("pyarrow").array([seconds])


@pytest.mark.parametrize("column", [_numpy, _arrow])
def test_columns_of_seconds_are_warned_of(tmp_path: Path, column: Callable[[int], Any]) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        with pytest.warns(UserWarning, match="if seconds were meant"):
            log.extend([b"v"], timestamps=column(int(time.time())))
        log.extend([b"v"], timestamps=column(MS))


def _find(log: kstore.PartitionLog, timestamp: Any) -> None:
    log.find(timestamp=timestamp)


def _since(log: kstore.PartitionLog, timestamp: Any) -> None:
    log.scan(since=timestamp)


def _until(log: kstore.PartitionLog, timestamp: Any) -> None:
    log.scan(until=timestamp)


@pytest.mark.parametrize("way", [_find, _since, _until])
def test_seconds_are_warned_of_when_reading(
    tmp_path: Path, way: Callable[[kstore.PartitionLog, Any], None]
) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        _append(log, MS)
        with pytest.warns(
            UserWarning, match="if seconds were meant, multiply by 1000: 1711530458000"
        ) as told:
            way(log, MS // 1000)
        assert told[0].filename == __file__
        way(log, MS)
        way(log, 5)
        way(log, datetime(1970, 1, 15, tzinfo=UTC))
