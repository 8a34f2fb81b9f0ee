"""What kstore logs: a line for each roll, deletion, recovery and truncation; nothing by default."""

import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import kstore
from tests.helpers.waiting import threads_doing, until

T = 1_700_000_000_000
CONFIG = kstore.LogConfig(internal_segment_bytes=200, retention_bytes=200, retention_ms=-1)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[..., None]:
    """Waits until these are the lines since the last call, which another thread may write."""
    caplog.set_level(logging.INFO, "kstore")

    def check(*expected: str) -> None:
        def found() -> list[logging.LogRecord]:
            return [record for record in caplog.records if record.name == "kstore.log"]

        until(lambda: len(found()) >= len(expected))
        assert sorted(f"{r.levelname} {r.getMessage()}" for r in found()) == sorted(expected)
        caplog.clear()

    return check


def fill(log: kstore.LogWriter, count: int = 3) -> None:
    for i in range(count):
        log.append(b"x" * 50, timestamp=T + i)


def test_changes_of_a_log_are_reported(tmp_path: Path, lines: Callable[..., None]) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a", config=CONFIG) as log:
        log.append(b"v", timestamp=T)
        log.roll()
        lines(f"INFO {path}: a segment begins at offset 1 (asked)")
        fill(log)
        log.flush()
        rolls = [f"INFO {path}: a segment begins at offset {offset} (size)" for offset in (2, 3)]
        lines(*rolls)
        log.retain()
        lines(
            f"INFO {path}: retention deleted the segment of offsets 0 to 1 (exclusive)",
            f"INFO {path}: retention deleted the segment of offsets 1 to 2 (exclusive)",
        )
        log.delete_records(3)
        lines(f"INFO {path}: deleted the records before offset 3")
        log.truncate_to(3)
        log.truncate_fully_and_start_at(9)
    lines(
        f"INFO {path}: truncated: removed offsets 3 to 4 (exclusive)",
        f"INFO {path}: truncated: removed all records, and goes on at offset 9",
    )


def test_recovery_is_reported(tmp_path: Path, lines: Callable[..., None]) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        fill(log)
    segment = path / f"{0:020d}.log"
    (path / ".kafka_cleanshutdown").unlink()
    (path / "recovery-point-offset-checkpoint").unlink()
    shutil.copytree(path, tmp_path / "u-0")
    kstore.open(path, "a").close()
    lines(f"INFO {path}: recovered from offset 0 on; the log holds offsets 0 to 3 (exclusive)")
    segment = tmp_path / "u-0" / segment.name
    segment.write_bytes(segment.read_bytes()[:-5])
    kstore.open(tmp_path / "u-0", "a").close()
    text = "recovery cut off 113 bytes; the log holds offsets 0 to 2 (exclusive)"
    lines(f"WARNING {tmp_path / 'u-0'}: {text}")


class Appending(logging.Handler):
    """Writes what is reported into the log that reports it, under its own lock, as any handler does."""

    log: kstore.LogWriter

    def emit(self, record: logging.LogRecord) -> None:
        self.log.append(record.getMessage().encode(), timestamp=T)


def test_a_handler_may_append_to_the_log_that_reports(tmp_path: Path) -> None:
    handler = Appending()
    logger = logging.getLogger("kstore.log")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=500) as log:
            handler.log = log
            with threads_doing(*[partial(fill, log, 200)] * 2):
                for _ in range(200):  # other threads have the handler's lock, and want the log's
                    handler.handle(logging.makeLogRecord({"msg": "from elsewhere"}))
            handler.acquire()  # as logging.shutdown does, which may close the log
            try:
                log.close()
            finally:
                handler.release()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    values = [record.value for record in kstore.open(tmp_path / "t-0")]
    assert values.count(b"from elsewhere") == 200
    assert values.count(b"x" * 50) == 400
