"""A handler for the standard library's logging that appends to a topic, from any number of processes."""

from __future__ import annotations

import json
import logging
import os
import sys
import weakref
from collections import deque

from kstore.arguments import DURABILITY, boolean, choice, integer, number, path_text
from kstore.config import LogConfig
from kstore.engine.io.synchronization import Mutex
from kstore.errors import KstoreError, LogFailedError, ReentrantCallError
from kstore.light_typing import TYPE_CHECKING, NamedTuple, cast
from kstore.log.worker import Job, Worker, allocate_lock
from kstore.store.log_store import LogStore
from kstore.store.topic import checked_name

if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable
    from os import PathLike
    from typing import Any, Literal, Unpack

    from kstore.log.writer import LogWriter
    from kstore.typed import ConfigOptions

__all__ = ["LogHandler"]

_OWN = "kstore.logging"  # the logger of records that a handler itself makes
_RETRY = 1.0  # s: from a failed append to the next attempt
_BATCH_COUNT = 1000
_BATCH_BYTES = 64 << 10  # of values; far below max_message_bytes, so that they are one batch, which is atomic
_PLAIN = logging.LogRecord("", 0, "", 0, "", (), None)
_STANDARD = frozenset(vars(_PLAIN)) | {"asctime", "message", "taskName"}  # all other attributes are `extra`
_WORKER = Worker("kstore-logging")  # one of its own: a log that waits for another process delays no appender
_handlers: weakref.WeakSet[LogHandler] = weakref.WeakSet()
_stores: dict[str, _SharedStore] = {}  # by real path


class LogHandler(logging.Handler):
    """A logging handler that appends to a topic, which any number of processes write together.

    Emitting formats a record, puts it into a queue in memory and returns. A thread appends what is queued, so
    no call of a logger waits for the disk, unless `block` says so. Each process opens the directory when its
    first record is appended, and a child of fork opens it again. Signal handlers may log.
    logging.shutdown(), which the interpreter calls at its end, appends what is queued.

    The value of a record is what format() returns, in UTF-8: the message, then the traceback and the stack
    if there are any. The key is the name of the logger, the timestamp that of the logging record. The headers
    are level, process (its id), thread (its name), source (path:line), and each field of `extra` that has
    another name: a str as it is, another value as JSON. With as_json the value is a JSON object of these
    fields, `logger` and `message`, and there are no headers.

    path: a log directory, created if it is missing. Several handlers of a process may name the same one, but
    the program itself must not have it open for writing. topic: its name; it has one partition. level: as for
    every handler. block: True: a call of a logger returns when its record is in the log, or has failed to get
    there. durability: "none" (default): records that are appended survive the end of the process. "group":
    also a power cut. linger_ms: how long records are collected before they are appended, in ms. Default: 5.
    They are lost if the process is killed before. queue_size: how many records may wait. Default: 10,000.
    More are dropped; `dropped` counts them, and a record in the log reports it. The other arguments are
    options of LogConfig, such as retention_ms. Each opening sets them for the topic, and leaves other options
    of the topic as they are.

    These go to handleError(), as for every handler: a record that cannot be formatted, one that the log
    refuses, such as one larger than max_message_bytes, and an append that fails; if it fails again for the
    same reason, that is not reported again. Its records stay in the queue, and the next attempt is made after
    a second. After a failed sync they may be in the log twice. What kstore itself logs about this directory,
    below the level WARNING, is not appended: it would have the next append logged.

    Raises:
        InvalidConfigError, TypeError, ValueError: an argument is wrong. Errors of the directory come later,
            in handleError().
    """

    def __init__(
        self,
        path: str | PathLike[str],
        topic: str = "log",
        level: int | str = logging.NOTSET,
        *,
        as_json: bool = False,
        block: bool = False,
        durability: Literal["none", "group", "each"] = "none",
        linger_ms: float = 5.0,
        queue_size: int = 10_000,
        **config: Unpack[ConfigOptions],
    ) -> None:
        self._as_json = boolean("as_json", as_json)
        self._blocks = boolean("block", block)
        self._linger = number("linger_ms", linger_ms, 0) / 1000
        self._queue_size = integer("queue_size", queue_size, 1)
        self._topic = _Topic(
            os.path.abspath(path_text("path", path)),
            checked_name(topic),
            LogConfig(**config).given_options(),
            choice("durability", durability, DURABILITY) != "none",
        )
        super().__init__(level)
        self._is_closed = False
        self._use_own_queue()
        _handlers.add(self)

    def _use_own_queue(self) -> None:
        """In a child of fork, what is queued is the parent's."""
        self._queue = _Queue(self._topic, self.handleError, self._report_of_dropped)

    @property
    def dropped(self) -> int:
        """How many records this process has dropped: the queue was full, the log has refused them, or the
        handler was closed."""
        return self._queue.dropped

    def handle(self, record: logging.LogRecord) -> Any:
        """Emits the record if the filters pass it. The lock of the handler is not taken: emitting needs
        none, and a thread that waits for the disk would keep others from it."""
        passed = self.filter(record)
        if passed:
            self.emit(passed if isinstance(passed, logging.LogRecord) else record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        """Puts a record into the queue; with `block`, waits until it is appended."""
        try:
            if record.levelno < logging.WARNING and self._topic.is_subject_of(record):
                return
            if self._is_closed or self._queue.is_longer_than(self._queue_size):
                self._queue.dropped += 1  # no call in between, so no thread and no signal handler is, either
                return
            self._queue.put(self._entry(record))
            if self._blocks:
                self._queue.wait()
            else:
                self._queue.ask(self._linger)
        except RecursionError:
            raise
        except Exception:  # noqa: BLE001 - what a formatter or an object in the message raises
            self.handleError(record)

    def flush(self) -> None:
        """Appends what is queued. What fails goes to handleError()."""
        if not self._is_closed:
            self._queue.wait()

    def close(self) -> None:
        """Appends what is queued, and closes the directory. What cannot be appended now is dropped."""
        if not self._is_closed:
            self._is_closed = True
            self._queue.close()
        super().close()

    def _close_queue(self) -> None:
        """At the end of a process; a record that comes after that opens the directory again."""
        self._queue.close()

    def _entry(self, record: logging.LogRecord) -> _Entry:
        text = self.format(record)
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        fields["level"] = record.levelname
        if record.process is not None:
            fields["process"] = record.process
        if record.threadName is not None:
            fields["thread"] = record.threadName
        if record.pathname:
            fields["source"] = f"{record.pathname}:{record.lineno}"
        headers: tuple[tuple[str, bytes], ...] = ()
        if self._as_json:
            text = _json({**fields, "logger": record.name, "message": text})
        else:
            headers = tuple((str(name), _encoded(_text(value))) for name, value in fields.items())
        return _Entry(_encoded(text), _encoded(record.name), int(record.created * 1000), headers)

    def _report_of_dropped(self, count: int) -> _Entry:
        return self._entry(_record(logging.WARNING, "records were dropped: %d", count))


class _Entry(NamedTuple):
    """A record as append() takes it."""

    value: bytes
    key: bytes
    timestamp: int
    headers: tuple[tuple[str, bytes], ...]


class _Topic(NamedTuple):
    """Where a handler appends, and how."""

    directory: str
    name: str
    options: dict[str, Any]
    is_durable: bool

    def is_subject_of(self, record: logging.LogRecord) -> bool:
        """Whether kstore has logged something about the directory."""
        return record.name.startswith("kstore.") and self.directory in record.getMessage()


class _Queue:
    """The records of one handler that one process has not appended yet.

    log.appender() would not do: its append() writes a full batch itself, and waits while another thread does.
    To put a record in here is one call of C, which neither waits nor can be interrupted. The thread that
    appends runs jobs, as the other threads of kstore do. Another thread appends only when that one has ended,
    at the end of the interpreter; else what kstore logs while it appends could wait for a lock of logging,
    whose owner waits here.
    """

    def __init__(
        self, topic: _Topic, fail: Callable[[logging.LogRecord], None], report: Callable[[int], _Entry]
    ) -> None:
        """fail: gets a record that says what failed, while the exception is handled. report: makes the entry
        that reports so many dropped records."""
        self.dropped = 0
        self._reported = 0  # how many of them the log reports
        self._topic = topic
        self._fail = fail
        self._report = report
        self._entries: deque[_Entry] = deque()
        self._batch: list[_Entry] = []  # those that are being appended
        self._guard = Mutex()  # for the batch and the log
        self._log: LogWriter | None = None
        self._failure = ""
        self._waiters: deque[LockType] = deque()
        self._job = Job(_WORKER, self._run)
        self._is_asked = False
        self._is_used = False

    def is_longer_than(self, size: int) -> bool:
        """Whether so many records wait."""
        return len(self._entries) + len(self._batch) >= size

    def put(self, entry: _Entry) -> None:
        """Adds a record, which ask() or wait() have appended."""
        self._entries.append(entry)
        if not self._is_used:
            self._is_used = True
            _close_with_multiprocessing()

    def ask(self, seconds: float) -> None:
        """Has what is queued appended in so many seconds, or before if that was asked for. RuntimeError,
        MemoryError: there is no thread."""
        if not self._is_asked:
            self._ask(seconds)

    def _ask(self, seconds: float) -> None:
        self._is_asked = True
        try:
            self._job.ask(seconds)
        except BaseException:
            self._is_asked = False
            raise

    def wait(self) -> None:
        """Returns when what is queued is appended, or could not be."""
        if _WORKER.is_this_thread():  # in handleError(), or a record of kstore's own
            return
        waiter = allocate_lock()
        waiter.acquire()
        self._waiters.append(waiter)
        try:
            if not _WORKER.is_ended:
                self._ask(0)
                waiter.acquire()
                return
        except (RuntimeError, MemoryError):  # there is no thread
            pass
        self._append_all()

    def close(self) -> None:
        """Appends what is queued, and gives the directory back. What cannot be appended is dropped."""
        if _WORKER.is_this_thread():
            return
        self.wait()
        try:
            with self._guard:
                self.dropped += len(self._batch)
                self._batch.clear()
                while self._entries:
                    self._entries.popleft()
                    self.dropped += 1
                self._reported = self.dropped
                if self._log is not None:
                    self._leave()
        except ReentrantCallError:  # a signal handler has interrupted an append at the interpreter's end
            pass

    def _run(self) -> float | None:
        self._is_asked = False  # now: what is put from here on asks again
        waiters = len(self._waiters)
        try:
            is_done = self._append_all()
            if is_done and not self._entries:
                return None
            self._is_asked = True
            return 0 if is_done else _RETRY
        finally:
            for _ in range(waiters):
                self._waiters.popleft().release()

    def _append_all(self) -> bool:
        """Appends what is queued now, but not what other threads add meanwhile, which might never end."""
        try:
            with self._guard:
                try:
                    count = len(self._entries) + len(self._batch)
                    while count > 0:
                        self._fill_batch()
                        count -= len(self._batch)
                        self._append_batch()
                    if self._reported < self.dropped:
                        self._report_dropped()
                    return True
                except Exception as e:  # noqa: BLE001 - the next attempt may succeed
                    self._failed(e)
        except ReentrantCallError:  # a signal handler: the call that it has interrupted goes on
            pass
        return False

    def _report_dropped(self) -> None:
        count, self._reported = self.dropped - self._reported, self.dropped
        self._batch.append(self._report(count))
        self._append_batch()

    def _fill_batch(self) -> None:
        size = sum(len(entry.value) for entry in self._batch)
        while self._entries and size < _BATCH_BYTES and len(self._batch) < _BATCH_COUNT:
            self._batch.append(self._entries[0])
            self._entries.popleft()
            size += len(self._batch[-1].value)

    def _append_batch(self) -> None:
        log = self._log
        if log is None or log.is_closed:
            log = self._log = _store_of(self._topic.directory).log_for(self, self._topic)
        values, keys, timestamps, headers = zip(*self._batch, strict=True)
        try:
            log.extend(values, keys, timestamps, headers, batch_bytes=1 << 20)
        except (TypeError, ValueError, OverflowError):  # one of them is refused, and nothing is appended
            self._append_singly(log)
        if self._topic.is_durable:
            log.wait_until_durable(log.log_end_offset)
        self._batch.clear()
        self._failure = ""

    def _append_singly(self, log: LogWriter) -> None:
        while self._batch:
            try:
                log.append(*self._batch[0])
            except (TypeError, ValueError, OverflowError):
                self.dropped += 1
                self._reported += 1
                self._fail(_record(logging.ERROR, "%s refuses a record of %s", log.path, self._batch[0].key))
            del self._batch[0]

    def _failed(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self._failure:
            self._failure = text
            count = len(self._entries) + len(self._batch)
            self._fail(_record(logging.ERROR, "records that wait for %s: %d", self._topic.directory, count))
        if isinstance(error, LogFailedError):  # it refuses appends until it is opened again
            self._leave(has_failed=True)

    def _leave(self, *, has_failed: bool = False) -> None:
        self._log = None
        try:
            _store_of(self._topic.directory).leave(self, has_failed=has_failed)
        except (OSError, KstoreError):
            if not has_failed:
                self._fail(_record(logging.ERROR, "%s was not closed cleanly", self._topic.directory))


class _SharedStore:
    """The store of one log directory, for all handlers of this process, which can open it only once."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._guard = Mutex()
        self._store: LogStore | None = None
        self._users: set[_Queue] = set()

    def log_for(self, user: _Queue, topic: _Topic) -> LogWriter:
        """The log of a topic, which is created if it is missing. What opening raises."""
        with self._guard:
            if self._store is None:
                self._store = LogStore(self._directory, mode="a", shared=True)
            self._users.add(user)
            if topic.name not in self._store.topics:
                self._store.create_topic(topic.name, exist_ok=True, **topic.options)
            else:
                now = self._store.describe(topic.name).options
                others = {name: value for name, value in topic.options.items() if now.get(name) != value}
                if others:
                    self._store.alter_topic(topic.name, **others)
            return cast("LogWriter", self._store.log(topic.name))

    def leave(self, user: _Queue, *, has_failed: bool) -> None:
        """Closes the store if no other queue uses it, or if it has failed: the others open it again. OSError,
        KstoreError."""
        with self._guard:
            self._users.discard(user)
            if self._store is not None and (has_failed or not self._users):
                try:
                    self._store.close()
                finally:
                    self._store.abandon()  # where closing it has failed
                    self._store = None


def _store_of(directory: str) -> _SharedStore:
    return _stores.setdefault(os.path.realpath(directory), _SharedStore(directory))


def _record(level: int, text: str, *values: object) -> logging.LogRecord:
    """A logging record of a handler itself."""
    fields = {"name": _OWN, "levelno": level, "levelname": logging.getLevelName(level)}
    return logging.makeLogRecord({**fields, "msg": text, "args": values})


def _json(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _text(value: object) -> str:
    """The value of a field in a header."""
    if isinstance(value, str):
        return value
    return _json(value) if isinstance(value, dict | list | tuple | int | float | None) else str(value)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _close_with_multiprocessing() -> None:
    """A child of multiprocessing that is forked ends without atexit, and so without logging.shutdown()."""
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, _close_all, exitpriority=-100)  # after those of the program, which may log


def _close_all() -> None:
    for handler in list(_handlers):
        handler._close_queue()


def _forked() -> None:
    """The stores, too, are the parent's."""
    _stores.clear()
    for handler in list(_handlers):
        handler._use_own_queue()


os.register_at_fork(after_in_child=_forked)
