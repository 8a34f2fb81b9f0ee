"""Records as users make them, keep them and send them to other processes."""

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import kstore
from kstore import Record


def test_a_record_is_made_by_keywords_and_equals_the_one_that_was_read(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v", b"k", 1711530458631, {"h": b"x", "n": None})
        log.append(b"v", timestamp=-1)
        first, second = log
    assert first == Record(
        offset=0, timestamp=1711530458631, key=b"k", value=b"v", headers={"h": b"x", "n": None}
    )
    assert first == Record(
        0, datetime(2024, 3, 27, 9, 7, 38, 631000, UTC), key=b"k", value=b"v", headers=first.headers
    )
    assert second == Record(offset=1, value=b"v")
    assert len({first, second, Record(offset=1, value=b"v")}) == 2


@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_a_record_is_copied_and_pickled(through: Callable[[Record], Record]) -> None:
    record = Record(3, 5, "LogAppendTime", b"k", None, [("h", b"x"), ("h", None)])
    assert through(record) == record
    assert eval(repr(record)) == record


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
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
    ],
)
def test_what_is_no_record(options: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Record(**{"offset": 0, **options})
