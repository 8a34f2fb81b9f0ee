"""Staged records become part of logs, once for each transaction id.

What makes it once: a journal in the log directory, and producer state, which Kafka's format has in the log itself. Each
transaction writes as a producer with an epoch of its own, sequences from 0 in every partition. Before the first record is
appended the journal names the transaction, its epoch and its staged files, durably, and which of them are large enough to
be moved. From then on it is decided: whoever publishes next in the directory finishes it first, going on after the last
sequence that each partition knows. A file that is moved has no sequences: it is in staging, or it is in the log.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kstore.config import LogConfig
from kstore.engine.file import make_directory, write_whole
from kstore.errors import KstoreError, LogNotFoundError
from kstore.log.layout import TopicPartition
from kstore.log.writer import LogWriter
from kstore.spark.columns import mapped_root
from kstore.spark.errors import failure, translated
from kstore.spark.staging import Stage, Staged, partition_counts, staged_files
from kstore.spark.transfer import Moved, Transfer, movable
from kstore.store import LogStore

JOURNAL = ".kstore-spark-journal"
LOCK = ".kstore-spark-lock"
REMEMBERED_JOBS = 1_000
LOCK_WAIT_S = 60.0
_DAY_S = 86_400.0
_THREADED = 4 << 20  # below, a thread for each partition costs more than it brings
_MAX_EPOCH = 2**15 - 2
_T = TypeVar("_T")


class Transaction(NamedTuple):
    """What is published once: a micro-batch of a query, or (number None) a job of its own."""

    name: str
    number: int | None = None


class Sink:
    """Publishes in a log directory; what tasks stage lies beside it, where no broker stumbles over it."""

    def __init__(
        self,
        root: str | PathLike[str],
        config: LogConfig | None = None,
        *,
        staging: str | None = None,
    ) -> None:
        self.root = os.path.abspath(fspath(root))  # noqa: PTH100
        self.config = config or LogConfig()
        parent, name = os.path.split(self.root)
        self.staging = staging or f"{parent}/.{name}.kstore-spark"

    def counts(self) -> dict[str, int]:
        """How many partitions the topics have."""
        try:
            return partition_counts(LogStore(self.root).topics)
        except LogNotFoundError:
            return {}

    def stage(
        self,
        job: str,
        attempt: str,
        *,
        topic: str | None = None,
        counts: Mapping[str, int] | None = None,
        default_count: int = 1,
        task: int = 0,
    ) -> Stage:
        """Where one attempt of a task writes its rows."""
        directory = f"{self.staging}/{job}/{attempt}"
        return Stage(
            directory, self.config, self.counts() if counts is None else counts, default_count, topic, task
        )

    def publish(
        self,
        transaction: Transaction,
        staged: Sequence[Staged],
        *,
        counts: Mapping[str, int] | None = None,
    ) -> bool:
        """Appends what was staged, in the order given; False if this transaction was published before.

        `counts` tells how many partitions to make of topics that there are none of. An error before the journal names
        the transaction, or before its first record, leaves nothing; after a later one the next call, for whatever
        transaction, finishes it. SparkSourceError.
        """
        try:
            make_directory(self.root)
            with self._locked():
                journal = _Journal.read(self.root)
                self._finish(journal)
                if journal.holds(transaction):
                    return False
                self._begin(journal, transaction, staged, counts or {})
                return True
        except (KstoreError, OSError) as e:
            raise translated(e, file=self.root) from e

    def recover(self) -> bool:
        """Finishes a transaction that was begun; False if there is none."""
        if not Path(self.root, JOURNAL).exists():
            return False
        try:
            with self._locked():
                return self._finish(_Journal.read(self.root))
        except (KstoreError, OSError) as e:
            raise translated(e, file=self.root) from e

    def discard(self, transaction: Transaction, job: str) -> None:
        """Removes what a job staged, unless it was begun to be published: then it is needed."""
        with contextlib.suppress(FileNotFoundError), self._locked():
            pending = _Journal.read(self.root).pending
            if pending is not None and Transaction(*pending["transaction"]) == transaction:
                return
        shutil.rmtree(f"{self.staging}/{job}", ignore_errors=True)

    def sweep(self, older_than_s: float = _DAY_S) -> None:
        """Removes what failed jobs left in staging."""
        with contextlib.suppress(OSError):
            needed = {Path(path).parents[1].name for path in self._pending_paths()}
            for entry in os.scandir(self.staging):
                if entry.name not in needed and time.time() - entry.stat().st_mtime > older_than_s:
                    shutil.rmtree(entry.path, ignore_errors=True)
            os.rmdir(self.staging)  # noqa: PTH106 - if it is empty

    def _pending_paths(self) -> list[str]:
        pending = _Journal.read(self.root).pending
        return [] if pending is None else [one[2] for one in pending["staged"]]

    # ---- with the lock held ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(f"{self.root}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            deadline = time.monotonic() + LOCK_WAIT_S
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise failure(
                            "KSTORE_LOG_LOCKED",
                            "another job has been publishing for a minute",
                            file=self.root,
                        ) from None
                    time.sleep(0.02)
            yield
        finally:
            os.close(fd)

    def _begin(
        self,
        journal: "_Journal",
        transaction: Transaction,
        staged: Sequence[Staged],
        counts: Mapping[str, int],
    ) -> None:
        staged = [one for one in staged if one.record_count]
        if not staged:
            return  # a transaction without records needs no memory: again it would have none
        names = {TopicPartition(one.topic, one.partition) for one in staged}
        for topic in {tp.topic for tp in names}:
            names |= {TopicPartition(topic, p) for p in range(counts.get(topic, 0))}
        for tp in names:
            total = sum(one.record_count for one in staged if one[:2] == tp)
            if total > 2**31 - 1:
                raise failure(
                    "KSTORE_RECORD_TOO_LARGE",
                    f"{total} records of one transaction, allowed are {2**31 - 1}",
                    topic=tp.topic,
                    partition=tp.partition,
                )
        with contextlib.ExitStack() as stack:
            logs = {tp: stack.enter_context(self._open(tp)) for tp in sorted(names)}
            ends = {tp: log.log_end_offset for tp, log in logs.items()}
            moved = movable(staged, logs, self.config)
            journal.begin(transaction, staged, moved, ends)
            try:
                self._append(journal, logs)
            except BaseException:
                in_staging = all(Path(mapped_root(at), name).exists() for at in moved for name in moved[at])
                if in_staging and all(log.log_end_offset == ends[tp] for tp, log in logs.items()):
                    journal.forget()
                raise
        journal.end()
        self._remove(staged)

    def _finish(self, journal: "_Journal") -> bool:
        if journal.pending is None:
            return False
        staged = [Staged(*one) for one in journal.pending["staged"]]
        with contextlib.ExitStack() as stack:
            names = sorted({TopicPartition(one.topic, one.partition) for one in staged})
            self._append(journal, {tp: stack.enter_context(self._open(tp)) for tp in names})
        journal.end()
        self._remove(staged)
        return True

    def _open(self, tp: TopicPartition) -> LogWriter:
        try:
            return LogWriter(f"{self.root}/{tp}", self.config)
        except (KstoreError, OSError) as e:
            raise translated(e, topic=tp.topic, partition=tp.partition) from e

    def _append(self, journal: "_Journal", logs: Mapping[TopicPartition, LogWriter]) -> None:
        assert journal.pending is not None
        staged = [Staged(*one) for one in journal.pending["staged"]]

        def append(tp: TopicPartition) -> None:
            try:
                log, total = logs[tp], 0
                transfer = Transfer(log, journal.moved, journal.producer, journal.epoch)
                for one in staged:
                    if one[:2] == tp:
                        transfer.take(one)
                        total += one.record_count
                there = log.log_end_offset - journal.end_before(tp)
                if there < total:  # what is not in staging any more was moved, or is lost
                    raise failure("KSTORE_STAGING_LOST", f"{there} records of {total}", **tp._asdict())
                log.flush()
            except (KstoreError, OSError) as e:
                raise translated(e, topic=tp.topic, partition=tp.partition) from e

        _each(append, list(logs), staged)

    def _remove(self, staged: Sequence[Staged]) -> None:
        def remove(one: Staged) -> None:
            shutil.rmtree(one.path, ignore_errors=True)

        _each(remove, staged, staged)  # to free pages takes time too
        for job in {Path(one.path).parents[1] for one in staged}:
            shutil.rmtree(job, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(self.staging)  # noqa: PTH106


def _each(work: Callable[[_T], None], items: Sequence[_T], staged: Sequence[Staged]) -> None:
    """Does the work for every item, in threads where it is worth it: the engine gives up the GIL."""
    size = sum(os.path.getsize(file) for one in staged for file in staged_files(one.path))  # noqa: PTH202
    threads = min(len(items), os.cpu_count() or 1)
    if size < _THREADED or threads < 2:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, item) for item in items]:
            done.result()


class _Journal:
    """The file: who publishes, what was published last of every query, what is under way."""

    def __init__(self, path: str, content: Mapping[str, Any]) -> None:
        self._path = path
        self.producer: int = content.get("producer", -1)
        self.epoch: int = content.get("epoch", -1)
        self._queries: dict[str, int] = dict(content.get("queries", {}))
        self._jobs: list[str] = list(content.get("jobs", []))
        self.pending: dict[str, Any] | None = content.get("pending")

    @classmethod
    def read(cls, root: str) -> "_Journal":
        path = f"{root}/{JOURNAL}"
        try:
            content = json.loads(Path(path).read_text("utf-8"))
        except FileNotFoundError:
            content = {"version": 1}
        except ValueError as e:
            raise failure("KSTORE_CORRUPT_FILE", f"no journal: {e}", file=path) from None
        if not isinstance(content, dict) or content.get("version") != 1:
            raise failure("KSTORE_CORRUPT_FILE", "no journal of version 1", file=path)
        return cls(path, content)

    def _write(self) -> None:
        content = {
            "version": 1,
            "producer": self.producer,
            "epoch": self.epoch,
            "queries": self._queries,
            "jobs": self._jobs,
            "pending": self.pending,
        }
        write_whole(self._path, json.dumps(content, indent=1).encode())

    def holds(self, transaction: Transaction) -> bool:
        """Whether it was published."""
        if transaction.number is None:
            return transaction.name in self._jobs
        return transaction.number <= self._queries.get(transaction.name, -1)

    @property
    def moved(self) -> Moved:
        """The staged files under way that become segments."""
        return {} if self.pending is None else self.pending.get("moved", {})

    def end_before(self, tp: TopicPartition) -> int:
        """Where a log ended before the transaction under way."""
        return 0 if self.pending is None else int(self.pending.get("ends", {}).get(str(tp), 0))

    def begin(
        self,
        transaction: Transaction,
        staged: Sequence[Staged],
        moved: Moved,
        ends: Mapping[TopicPartition, int],
    ) -> None:
        """From here on the transaction is decided."""
        self.epoch += 1
        if self.producer < 0 or self.epoch > _MAX_EPOCH:
            self.producer, self.epoch = secrets.randbits(62) | 1 << 61, 0  # far from ids that a broker gives
        self.pending = {
            "transaction": list(transaction),
            "staged": [list(one) for one in staged],
            "moved": moved,
            "ends": {str(tp): end for tp, end in ends.items()},
        }
        self._write()

    def forget(self) -> None:
        """Nothing of it was appended, so it has not been."""
        self.pending = None
        self._write()

    def end(self) -> None:
        """All of it is on the disk."""
        assert self.pending is not None
        transaction = Transaction(*self.pending["transaction"])
        if transaction.number is None:
            self._jobs = [*self._jobs, transaction.name][-REMEMBERED_JOBS:]
        else:
            self._queries[transaction.name] = transaction.number
        self.pending = None
        self._write()
