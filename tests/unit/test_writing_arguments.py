"""What append, extend and append_batches refuse, before anything is written."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore

BATCH = kstore.encode_batch([(1, None, b"v", None)])
INTS: list[tuple[str, Callable[[Any, Any], object]]] = [
    ("batch_bytes", lambda log, n: log.extend([b"v"], batch_bytes=n)),
    ("leader_epoch", lambda log, n: log.append_batches(BATCH, leader_epoch=n)),
    ("transaction_version", lambda log, n: log.append_batches(BATCH, transaction_version=n)),
]


@pytest.fixture
def log(log: kstore.LogWriter) -> Iterator[kstore.LogWriter]:
    """Nothing may be written that was refused."""
    yield log
    assert log.log_end_offset == 0


@pytest.mark.parametrize("number", [1.0, float("nan"), True, "1"])
@pytest.mark.parametrize(("name", "call"), INTS)
def test_what_is_no_int(
    log: kstore.LogWriter, name: str, call: Callable[[Any, Any], object], number: object
) -> None:
    with pytest.raises(TypeError, match=f"{name} is an int"):
        call(log, number)


@pytest.mark.parametrize("number", [-2, 2**63, 2**70])
@pytest.mark.parametrize(("name", "call"), INTS)
def test_what_is_out_of_range(
    log: kstore.LogWriter, name: str, call: Callable[[Any, Any], object], number: int
) -> None:
    with pytest.raises(ValueError, match=name):
        call(log, number)


def test_an_origin_is_one_of_two(log: kstore.LogWriter) -> None:
    with pytest.raises(ValueError, match="'client', 'coordinator'"):
        log.append_batches(BATCH, origin="broker")  # type: ignore[arg-type]


def test_a_record_that_is_too_large_names_the_limit(log: kstore.LogWriter) -> None:
    log.configure(max_message_bytes=100)
    for call in (lambda: log.append(b"x" * 200), lambda: log.extend([b"x" * 200])):
        with pytest.raises(
            kstore.RecordTooLargeError, match=r"max_message_bytes \(max\.message\.bytes in Kafka\)"
        ) as caught:
            call()
        assert "byte -1" not in str(caught.value)


def test_an_iterator_of_timestamps_may_append(log: kstore.LogWriter) -> None:
    """The log is not held while what a caller gives is read."""

    def times() -> Iterator[int]:
        with pytest.raises(kstore.RecordTooLargeError):
            log.append(b"x" * 200)
        yield 5
        raise ZeroDivisionError

    log.configure(max_message_bytes=100)
    with pytest.raises(ZeroDivisionError):
        log.extend([b"a", b"b"], timestamps=times())


def test_views_with_gaps_are_taken_as_their_bytes(tmp_path: Path) -> None:
    """In every way of appending, as bytes() takes them; no BufferError."""
    spread = memoryview(b"".join(bytes([byte, 0]) for byte in BATCH))[::2]
    with kstore.open(tmp_path / "views-0", "a") as log:
        log.append_batches(spread)
        log.append_batches(spread, keep_offsets=False)
        log.append(spread)
        log.extend([spread])
        assert [r.value for r in log] == [b"v", b"v", BATCH, BATCH]


def test_what_raises_when_it_is_looked_at(tmp_path: Path) -> None:
    """As a proxy may whose object is gone: its own error comes through."""

    class Gone:
        def __getattribute__(self, name: str) -> object:
            raise ReferenceError(name)

    with kstore.open(tmp_path / "t-0", "a") as log:
        for given in (
            {"values": [b"x"], "timestamps": Gone()},
            {"values": [b"x"], "timestamps": [Gone()]},
            {"values": Gone()},
            {"values": [Gone()]},
            {"values": [b"x"], "keys": [Gone()]},
            {"values": [b"x"], "headers": [Gone()]},
        ):
            with pytest.raises((ReferenceError, TypeError)):
                log.extend(**given)  # type: ignore[arg-type]
        for given in (
            {"value": Gone()},
            {"value": b"x", "timestamp": Gone()},
            {"value": b"x", "key": Gone()},
        ):
            with pytest.raises((ReferenceError, TypeError)):
                log.append(**given)  # type: ignore[arg-type]
        assert log.log_end_offset == 0


@pytest.mark.parametrize("flag", [None, 0, "", "no", []])
def test_only_true_and_false_say_whether_something_is_deleted(tmp_path: Path, flag: Any) -> None:
    log = kstore.LogWriter(tmp_path, kstore.LogConfig(retention_ms=1, cleanup_policy="compact,delete"))
    log.append(b"v", b"k", timestamp=1)
    log.roll()
    for delete in (
        lambda: log.retain(dry_run=flag),
        lambda: log.compact(dry_run=flag),
        lambda: log.erase(where=bool, reason="a test", dry_run=flag),
        lambda: log.erase(where=bool, reason="a test", cut_files=flag),
    ):
        with pytest.raises(TypeError, match="must be True or False"):
            delete()
    assert log.log_start_offset == 0
    assert [d.delete for d in log.retain(dry_run=True)] == [True, False]
    assert len(log.segments) == 2
    log.close()


@pytest.mark.parametrize("wrong", ["no", "", 0, 1, None, float("nan"), object()])
def test_a_flag_is_true_or_false(tmp_path: Path, wrong: Any) -> None:
    batch = kstore.encode_batch([(0, None, b"v", None)], base_offset=7)
    with kstore.open(tmp_path / "t-0", "a") as log:
        for call in (
            lambda: log.append_batches(batch, keep_offsets=wrong),
            lambda: kstore.encode_batch([(0, None, b"v", None)], transactional=wrong),
            lambda: kstore.encode_batch([(0, None, b"v", None)], control=wrong),
        ):
            with pytest.raises(TypeError, match="must be True or False"):
                call()
        assert log.log_end_offset == 0
        log.append_batches(batch, keep_offsets=True)
        with pytest.raises(TypeError, match="must be True or False"):
            next(iter(log.batches())).records(verify=wrong)
