"""A handler of logging: what a record becomes, and what happens if it cannot be appended."""

import copy
import errno
import json
import logging
import logging.config
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.testing
from kstore.logging import LogHandler
from tests.helpers.effort import some
from tests.helpers.waiting import threads_doing


class Handler(LogHandler):
    """Keeps what goes to handleError()."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.errors: list[str] = []

    def handleError(self, record: logging.LogRecord) -> None:
        kind, error, _ = sys.exc_info()
        assert kind is not None
        self.errors.append(f"{record.msg} {record.args}: {kind.__name__}: {error}")


@contextmanager
def logger_of(handler: logging.Handler, name: str = "app.db") -> Iterator[logging.Logger]:
    logger = logging.getLogger(name)
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


def records(directory: Path, topic: str = "log") -> list[kstore.Record]:
    return list(kstore.open(directory / f"{topic}-0"))


def messages(directory: Path, topic: str = "log") -> list[str]:
    return [(record.value or b"").decode() for record in records(directory, topic)]


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    before = root.level, root.handlers.copy()
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]


# ---- what a record becomes ---------------------------------------------------------------------------------


def log_all(logger: logging.Logger) -> None:
    logger.info("paid %d of %s", 3, "ann", extra={"order": 17, "user": "bob", "tags": ["a", "ä"]})
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        logger.exception("failed", stack_info=True)
    logger.debug("not UTF-8: \udcff")


def test_fields_are_headers(tmp_path: Path) -> None:
    with logger_of(LogHandler(tmp_path / "logs", "app")) as logger:
        log_all(logger)
    paid, failed, odd = records(tmp_path / "logs", "app")
    headers = dict(paid.headers)
    assert (paid.key, paid.value) == (b"app.db", b"paid 3 of ann")
    assert headers.pop("source", b"").startswith(f"{__file__}:".encode())  # type: ignore[union-attr]
    assert int(headers.pop("process") or 0) > 1
    assert headers == {
        "level": b"INFO",
        "thread": threading.current_thread().name.encode(),
        "order": b"17",
        "user": b"bob",
        "tags": '["a", "ä"]'.encode(),
    }
    text = (failed.value or b"").decode()
    assert text.startswith("failed\nTraceback (most recent call last):\n")
    assert "\nZeroDivisionError\nStack (most recent call last):\n" in text
    assert dict(failed.headers)["level"] == b"ERROR"
    assert odd.value == b"not UTF-8: \\udcff"
    assert paid.timestamp <= failed.timestamp <= odd.timestamp


def test_fields_as_json(tmp_path: Path) -> None:
    with logger_of(LogHandler(tmp_path / "logs", as_json=True)) as logger:
        log_all(logger)
        logger.info("at", extra={"path": tmp_path, "level": "mine"})
    paid, _, _, at = (json.loads(text) for text in messages(tmp_path / "logs"))
    assert paid["source"].startswith(__file__)
    assert {name: paid[name] for name in paid if name not in ("source", "process", "thread")} == {
        "level": "INFO",
        "logger": "app.db",
        "message": "paid 3 of ann",
        "order": 17,
        "user": "bob",
        "tags": ["a", "ä"],
    }
    assert (at["path"], at["level"]) == (str(tmp_path), "INFO")
    assert [record.headers for record in records(tmp_path / "logs")] == [()] * 4


CONFIG = """
{
  "version": 1, "disable_existing_loggers": false,
  "formatters": {"short": {"format": "<%(levelname)s %(message)s>"}},
  "filters": {"only": {"name": "app"}},
  "handlers": {
    "log": {
      "class": "kstore.logging.LogHandler", "path": "logs", "topic": "app", "level": "INFO",
      "formatter": "short", "filters": ["only"],
      "retention_ms": 86400000, "compression_type": "zstd"
    }
  },
  "root": {"level": "DEBUG", "handlers": ["log"]}
}
"""


def test_a_configuration_of_plain_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is one of the directory in which the handler is made. Each opening sets the options
    that it names."""
    monkeypatch.chdir(tmp_path)
    logging.config.dictConfig(json.loads(CONFIG))
    monkeypatch.chdir("/")
    logging.getLogger("app.db").info("one")
    logging.getLogger("app.db").debug("below the level")
    logging.getLogger("other").info("filtered")
    monkeypatch.chdir(tmp_path)
    logging.config.dictConfig(json.loads(CONFIG.replace("86400000", "3600000")))
    logging.getLogger("app").error("two")
    logging.shutdown([lambda: logging.getLogger().handlers[-1]])  # type: ignore[list-item,return-value]
    assert messages(tmp_path / "logs", "app") == ["<INFO one>", "<ERROR two>"]
    options = kstore.LogStore(tmp_path / "logs").describe("app").options
    assert options == {"retention_ms": 3_600_000, "compression_type": "zstd"}
    assert kstore.LogStore(tmp_path / "logs").closed_cleanly


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"retention_mss": 1}, kstore.InvalidConfigError),
        ({"topic": "a/b"}, ValueError),
        ({"durability": "never"}, ValueError),
        ({"queue_size": 0}, ValueError),
        ({"linger_ms": -1}, ValueError),
        ({"block": 1}, TypeError),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        LogHandler(tmp_path / "logs", **arguments)
    assert not (tmp_path / "logs").exists()


# ---- threads, and what waits -------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [False, True])
def test_each_record_of_each_thread(tmp_path: Path, block: bool) -> None:
    handler = Handler(tmp_path / "logs", block=block)
    with logger_of(handler) as logger:

        def work(name: int) -> None:
            for n in range(50):
                logger.info("%d %d", name, n)

        with threads_doing(*(lambda name=name: work(name) for name in range(6))):
            pass
    found = [tuple(map(int, text.split())) for text in messages(tmp_path / "logs")]
    assert [[n for name, n in found if name == each] for each in range(6)] == [list(range(50))] * 6
    assert (handler.errors, handler.dropped) == ([], 0)


def test_a_call_that_blocks_returns_when_its_record_is_there(tmp_path: Path) -> None:
    with logger_of(LogHandler(tmp_path / "logs", block=True, durability="group")) as logger:
        logger.info("0")
        for n in range(1, 5):
            assert kstore.testing.count_calls(lambda n=n: logger.info(str(n))) >= 2  # a write and a sync
            assert messages(tmp_path / "logs")[n:] == [str(n)]


def test_flush(tmp_path: Path) -> None:
    handler = LogHandler(tmp_path / "logs", linger_ms=3_600_000)
    with logger_of(handler) as logger:
        for n in range(3):
            logger.info(str(n))
            handler.flush()
            assert messages(tmp_path / "logs")[n:] == [str(n)]


def test_a_full_queue(tmp_path: Path) -> None:
    """While another writer has the directory, no call waits; what is dropped is counted and reported."""
    handler = Handler(tmp_path / "logs", queue_size=5)
    with kstore.LogStore(tmp_path / "logs", mode="a") as other:
        other.create_topic("log")
        with logger_of(handler) as logger:
            for n in range(8):
                logger.info(str(n))
            handler.flush()
            handler.flush()
            assert handler.dropped == 3
            (error,) = handler.errors
            assert re.match(
                r"records that wait for .*, [1-5]\): LogLockedError: .* is locked by this process", error
            )
            other.close()
            handler.flush()
            logger.info("8")
    assert messages(tmp_path / "logs") == ["0", "1", "2", "3", "4", "records were dropped: 3", "8"]


def test_a_closed_handler(tmp_path: Path) -> None:
    handler = Handler(tmp_path / "logs")
    with logger_of(handler) as logger:
        logger.info("one")
        handler.close()
        logger.info("two")
        handler.flush()
    assert messages(tmp_path / "logs") == ["one"]
    assert handler.dropped == 1
    with kstore.LogStore(tmp_path / "logs", mode="a"):
        pass


def test_a_directory_that_cannot_be_opened_until_the_end(tmp_path: Path) -> None:
    handler = Handler(tmp_path / "logs")
    with kstore.LogStore(tmp_path / "logs", mode="a"), logger_of(handler) as logger:
        logger.info("lost")
    assert handler.dropped == 1
    assert len(handler.errors) == 1


# ---- failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["none", "group"])
def test_a_full_disk(ram: Path, durability: Any) -> None:
    """A call that fails loses no record and, without syncs, doubles none."""
    for nth in some(range(1, 12), 6, durability):
        directory = ram / f"logs{nth}"
        handler = Handler(directory, durability=durability)
        with logger_of(handler) as logger:
            logger.info("0")
            handler.flush()
            with kstore.testing.failing(nth, errno.ENOSPC):
                for n in range(1, 5):
                    logger.info(str(n))
                    handler.flush()
            logger.info("5")
            handler.flush()
        found = messages(directory)
        assert list(dict.fromkeys(found)) == [str(n) for n in range(6)]
        if durability == "none":
            assert len(found) == 6
        assert all("ENOSPC" in error or "No space" in error for error in handler.errors)
        assert handler.dropped == 0
        assert kstore.LogStore(directory).closed_cleanly


def test_records_that_are_refused(tmp_path: Path) -> None:
    """They keep no other from the log."""
    handler = Handler(tmp_path / "logs", max_message_bytes=1000)
    with logger_of(handler) as logger:
        logger.info("before")
        logger.info("x" * 2000)
        odd = logging.LogRecord("app.db", logging.INFO, __file__, 1, "of no time", (), None)
        odd.created = 1e300
        logger.handle(odd)
        logger.info("%d", "no number")
        logger.info("name", extra={"\udcff": 1})
        logger.info("after")
    assert messages(tmp_path / "logs") == ["before", "after"]
    assert handler.dropped == 3
    assert len(handler.errors) == 4


def test_what_kstore_logs_itself(tmp_path: Path) -> None:
    """Appends begin segments, which is logged: that must not cause more appends."""
    handler = Handler(tmp_path / "logs", internal_segment_bytes=600)
    with logger_of(handler, "kstore") as logger:
        for n in range(10):
            logger.info(str(n))
            handler.flush()
        with kstore.open(tmp_path / "other-0", "a") as log:
            log.append(b"x")
            log.roll()
        handler.flush()
        handler.flush()
    assert messages(tmp_path / "logs") == [
        *map(str, range(10)),
        f"{tmp_path}/other-0: a segment begins at offset 1 (asked)",
    ]
    assert len(kstore.open(tmp_path / "logs" / "log-0").segments) > 3


def test_a_new_configuration_while_records_are_appended(tmp_path: Path) -> None:
    """dictConfig() has logging's own lock, and waits for the handler; what kstore logs meanwhile waits for
    that lock."""
    handler: dict[str, object] = {"class": "kstore.logging.LogHandler", "path": str(tmp_path / "logs")}
    handler["internal_segment_bytes"] = 2000
    config: dict[str, Any] = {"version": 1, "disable_existing_loggers": False, "handlers": {"log": handler}}
    config["root"] = {"level": "INFO", "handlers": ["log"]}
    logging.config.dictConfig(copy.deepcopy(config))
    ended = threading.Event()
    count = 0

    def work() -> None:
        nonlocal count
        while not ended.is_set():
            logging.getLogger("app").info("x")
            count += 1

    with threads_doing(work, ended=ended):
        for _ in range(20):
            logging.config.dictConfig(copy.deepcopy(config))
    logging.getLogger().handlers[-1].close()
    assert 0 < len(messages(tmp_path / "logs")) <= count


def test_two_handlers_of_one_directory(tmp_path: Path) -> None:
    first, second = Handler(tmp_path / "logs", "first"), Handler(tmp_path / "logs", "second")
    with logger_of(first, "one") as one, logger_of(second, "two") as two:
        one.info("1")
        two.info("2")
        first.flush()
        first.close()
        two.info("3")
    assert messages(tmp_path / "logs", "first") == ["1"]
    assert messages(tmp_path / "logs", "second") == ["2", "3"]
    assert first.errors + second.errors == []
