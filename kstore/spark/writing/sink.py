"""Staged records become part of logs, once for each transaction id.

What makes it once: a journal in the log directory. Before the first record is appended it names the
transaction, its staged files and where every log ends, durably. From then on it is decided: whoever publishes
next in the directory finishes it first. How much of it is in a log already shows in what lies behind that
end: copied batches have a producer of their own for each transaction, moved files are known by their CRCs.
Nothing of that expires.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike, fspath
from pathlib import Path
from typing import TypeVar

from kstore.arguments import MAX64, boolean, instance, instances, number
from kstore.config import LogConfig, given_in_text
from kstore.engine.io.directory import make_directory
from kstore.errors import KstoreError, LogNotFoundError
from kstore.log.files.layout import TopicPartition
from kstore.log.files.lock import once_free
from kstore.log.follow.position import position_in
from kstore.log.recovery.presence import require_partition
from kstore.log.writer import LogWriter
from kstore.spark.errors import SparkSourceError, coded, failure, translated
from kstore.spark.logs import reported_to
from kstore.spark.paths import mapped_root, no_log_directory
from kstore.spark.writing.configuration import Configurations
from kstore.spark.writing.journal import JOURNAL, Journal, LastBatch, Pending, Source, Transaction
from kstore.spark.writing.progress import NOTHING, Progress, parts, progress
from kstore.spark.writing.staging import Stage, Staged, partition_counts
from kstore.spark.writing.status import SinkStatus, StagedJob, missing, staged_jobs, status_of
from kstore.spark.writing.transfer import Transfer, movable
from kstore.store import LogStore

__all__ = ["JOURNAL", "LastBatch", "Sink", "SinkStatus", "Source", "StagedJob", "Transaction"]

LOCK = ".kstore-spark-lock"
LOCK_WAIT_S = 60.0
_LOG = "kstore.spark.sink"
_WEEK_S = 7 * 86_400.0
_THREADED = 4 << 20  # below, a thread for each partition costs more than it brings
_T = TypeVar("_T")


class Sink:
    """Publishes staged records in a log directory, once for each transaction; writers of format("kstore") use
    it.

    What tasks stage lies beside the log directory, where no broker stumbles over it. From a program:
    recover() finishes a transaction that broke off, forget() gives it up. `lock_wait`: how many seconds to
    wait while another program writes in a partition, or another job publishes.
    """

    def __init__(
        self,
        root: str | PathLike[str],
        config: LogConfig | None = None,
        *,
        staging: str | None = None,
        lock_wait: float = LOCK_WAIT_S,
    ) -> None:
        self.lock_wait = number("lock_wait", lock_wait, 0)
        self.root = os.path.abspath(fspath(root))
        self.config = config or LogConfig()
        parent, name = os.path.split(self.root)
        self.staging = f"{parent}/.{name}.kstore-spark"
        # a directory for this log directory alone: what is in there, sweep() may remove
        if staging is not None:
            own = hashlib.blake2b(os.fsencode(self.root), digest_size=4).hexdigest()
            self.staging = f"{os.path.abspath(staging)}/.{name}-{own}.kstore-spark"

    def counts(self) -> dict[str, int]:
        """How many partitions the topics have. KSTORE_PATH_NOT_FOUND if the path is a partition."""
        try:
            with LogStore(self.root) as store:  # a lost partition counts: keys stay in theirs
                return partition_counts((*store.partitions, *store.health().missing))
        except LogNotFoundError:
            if os.path.isdir(self.root):
                raise no_log_directory(self.root) from None
            return {}

    def job_directory(self, job: str) -> str:
        """Where a job stages, as this machine sees it. TypeError, ValueError for what is no name."""
        return mapped_root(self._of_job(job))

    def _of_job(self, job: str) -> str:
        return f"{self.staging}/{_checked_name('job', job)}"

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
        """Where one attempt of a task writes its rows: a directory that is used once."""
        own = f"{_checked_name('attempt', attempt)}-{secrets.token_hex(8)}"
        directory = f"{self._of_job(job)}/{own}"
        return Stage(
            directory,
            Configurations(self.root, self.config),
            self.counts() if counts is None else counts,
            default_count,
            topic,
            task,
        )

    def publish(
        self,
        transaction: Transaction,
        staged: Sequence[Staged],
        *,
        counts: Mapping[str, int] | None = None,
        source: Source | None = None,
    ) -> bool:
        """Appends what was staged, in the order given; False if this transaction was published before.

        `counts` tells how many partitions to make of topics that there are none of; `source` tells the input
        of a micro-batch from that of others. An error before the journal names the transaction, or before its
        first record, leaves nothing; after a later one the next call, for whatever transaction, finishes it.
        SparkSourceError, TypeError.
        """
        instance("transaction", transaction, Transaction)
        staged = instances("staged", staged, Staged)
        with coded(file=self.root):
            make_directory(self.root)
            begun = time.monotonic()
            with self._locked():
                locked = time.monotonic()
                journal = Journal.read(self.root)
                self._finish(journal)
                if journal.holds(transaction, staged, source):
                    reported_to(_LOG).info("%s was published before: nothing was written", transaction)
                    return False
                self._begin(journal, transaction, staged, counts or {}, source, locked - begun)
                return True

    def recover(self) -> bool:
        """Finishes a transaction that was begun; False if there is none.

        One of which nothing is in the logs, and whose staged files are gone, has not begun.
        """
        if not Path(self.root, JOURNAL).exists():
            return False
        with coded(file=self.root), self._locked():
            return self._finish(Journal.read(self.root))

    def forget(self) -> bool:
        """Gives up a transaction that was begun and cannot be finished; False if there is none.

        What of it is in the logs stays there, what else was staged is removed. If its job or micro-batch is
        run again, all of its records are appended.
        """
        if not Path(self.root, JOURNAL).exists():
            return False
        with coded(file=self.root), self._locked():
            journal = Journal.read(self.root)
            pending = journal.pending
            if pending is None:
                return False
            journal.forget()
            self._remove(pending.staged)
            return True

    def discard(self, transaction: Transaction, job: str, staged: Sequence[Staged] | None = None) -> None:
        """Removes what a job staged (`staged`, else all), unless it was begun to be published: then it is
        needed. TypeError, ValueError for what is no job's name."""
        instance("transaction", transaction, Transaction)
        directory = self._of_job(job)
        staged = None if staged is None else instances("staged", staged, Staged)
        with contextlib.suppress(FileNotFoundError), self._locked():
            pending = Journal.read(self.root).pending
            if pending is not None and pending.transaction == transaction:
                return
        if staged is None:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            self._remove(staged)

    def published(self, transaction: str) -> bool:
        """Whether a batch job was published under this id (`txnId`), as far as ids are remembered.
        SparkSourceError."""
        return Journal.read(self.root).holds(Transaction(transaction), (), None)

    def status(self, older_than_s: float = _WEEK_S) -> SinkStatus:
        """What is under way, staged and published; takes no lock, and changes nothing. SparkSourceError.

        So it shows beforehand what recover(), forget() and sweep() would find.
        """
        if not os.path.isdir(self.root) and not os.path.isdir(self.staging):
            raise no_log_directory(self.root)
        self.counts()  # it is no partition
        with coded(file=self.root):
            return status_of(self.root, self.staging, number("older_than_s", older_than_s, 0))

    def sweep(self, older_than_s: float = _WEEK_S, *, dry_run: bool = False) -> list[StagedJob]:
        """Removes what failed jobs left in staging: those in which no task has written for so long. Tells
        which.

        A running task gives its job's directory a new time every minute, so give a few minutes at least. It
        removes nothing while another job publishes. dry_run: only tell. SparkSourceError.
        """
        number("older_than_s", older_than_s, 0)
        boolean("dry_run", dry_run)
        with contextlib.ExitStack() as stack:
            try:
                if not dry_run:
                    stack.enter_context(self._locked(wait_s=0))
            except SparkSourceError:
                return []  # another job is publishing; the next one sweeps
            except FileNotFoundError:
                pass  # nothing was published there
            except OSError as e:
                raise translated(e, file=self.root) from e
            pending = Journal.read(self.root).pending
            needed = () if pending is None else pending.staged
            with coded(file=self.staging):
                swept = [
                    job for job in staged_jobs(self.staging, needed, older_than_s) if job.fate == "swept"
                ]
            if not dry_run:
                for job in swept:
                    shutil.rmtree(f"{self.staging}/{job.name}", ignore_errors=True)
                with contextlib.suppress(OSError):
                    os.rmdir(self.staging)
            return swept

    # ---- with the lock held --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self, wait_s: float | None = None) -> Iterator[None]:
        fd = self._lock(self.lock_wait if wait_s is None else wait_s)
        try:
            yield
        finally:
            os.close(fd)

    def _lock(self, wait_s: float) -> int:
        """The lock file's descriptor. If the file was removed while this waited, that of the new one."""
        path, deadline = f"{self.root}/{LOCK}", time.monotonic() + wait_s
        while True:
            fd, mine = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), False
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = os.path.samestat(os.fstat(fd), os.stat(path))
                if mine:
                    return fd
            except FileNotFoundError:
                pass
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise failure(
                        "KSTORE_LOG_LOCKED",
                        f"another job is publishing, and still is after {wait_s:g} s",
                        file=self.root,
                    ) from None
            finally:
                if not mine:
                    os.close(fd)
            time.sleep(0.02)

    def _begin(
        self,
        journal: Journal,
        transaction: Transaction,
        staged: Sequence[Staged],
        counts: Mapping[str, int],
        source: Source | None,
        waited_s: float,
    ) -> None:
        begun = time.monotonic()
        staged = [one for one in staged if one.record_count]
        if not staged:
            return  # a transaction without records needs no memory: again it would have none
        for one, name, size in missing(staged):
            raise failure(
                "KSTORE_STAGING_LOST",
                f"{size} bytes of {next(file.size for file in one.files if file.name == name)}; nothing was "
                "written",
                one.tp,
                file=f"{one.path}/{name}",
            )
        names = {one.tp for one in staged}
        for topic in {tp.topic for tp in names}:
            wanted = {TopicPartition(topic, p) for p in range(counts.get(topic, 0))}
            names |= {tp for tp in wanted - names if not _is_there(Path(self.root, str(tp)))}
        for tp in names:
            total = sum(one.record_count for one in staged if one.tp == tp)
            if total > 2**31 - 1:
                raise failure(
                    "KSTORE_RECORD_TOO_LARGE",
                    f"{total} records of one transaction, allowed are {2**31 - 1}",
                    tp,
                )
        with contextlib.ExitStack() as stack:
            logs, own_s = self._open(sorted(names), self.config, stack)
            for log in logs.values():
                log.wait_until_durable(log.log_end_offset)  # no power cut may take what is counted from
            marks = {str(tp): position_in(log.snapshot, log.log_end_offset) for tp, log in logs.items()}
            moved = movable(staged, logs)
            pending = journal.begin(transaction, staged, moved, marks, given_in_text(self.config), source)
            try:
                self._append(journal, pending, logs, dict.fromkeys(logs, NOTHING))
            except SparkSourceError:
                in_staging = all(Path(mapped_root(at), name).exists() for at in moved for name in moved[at])
                if in_staging and all(
                    log.log_end_offset == marks[str(tp)].offset for tp, log in logs.items()
                ):
                    journal.forget()
                raise
        journal.end()
        _report("published", pending, time.monotonic() - begun + waited_s, own_s + waited_s)
        self._remove(staged)

    def _finish(self, journal: Journal) -> bool:
        """Ends the transaction under way, if there is one: with the files that it names, as its configuration
        says."""
        pending = journal.pending
        if pending is None:
            return False
        begun = time.monotonic()
        names = sorted({one.tp for one in pending.staged})
        config = LogConfig.from_topic(pending.config)
        with contextlib.ExitStack() as stack:
            logs, waited_s = self._open(names, config, stack)
            try:
                there = {
                    tp: progress(log, tp, pending, journal.producer, journal.epoch)
                    for tp, log in logs.items()
                }
                lost = _lost(pending, there)
                if lost is None:
                    self._append(journal, pending, logs, there)
            except (KstoreError, OSError) as e:
                raise SparkSourceError(f"{translated(e)}; {self._way_out(pending)}") from e
            if lost is not None:
                found = sum(own.record_count for own in there.values())
                if found:
                    total = sum(one.record_count for one in pending.staged)
                    text = f"{lost}; of {total} records {found} are in the logs; {self._way_out(pending)}"
                    raise SparkSourceError(text)
                journal.forget()  # nothing was appended, so it has not begun
        if lost is None:
            journal.end()
            _report("finished", pending, time.monotonic() - begun, waited_s)
        self._remove(pending.staged)
        return lost is None

    def _way_out(self, pending: Pending) -> str:
        return (
            f"this is a transaction that was begun and has to be finished first: {pending.transaction}; "
            "if it cannot be, "
            f"kstore.spark.Sink({self.root!r}).forget() gives it up, and leaves what of it is in the logs"
        )

    def _open(
        self, names: Sequence[TopicPartition], config: LogConfig, stack: contextlib.ExitStack
    ) -> tuple[dict[TopicPartition, LogWriter], float]:
        """The logs, and the seconds for which other programs had them locked."""
        # timestamps were checked when they were staged; as time goes on they must not become wrong
        config = config.replace(message_timestamp_before_max_ms=MAX64, message_timestamp_after_max_ms=MAX64)
        configs = Configurations(self.root, config)
        tp = names[0]
        begun = latest = time.monotonic()

        def take() -> dict[TopicPartition, LogWriter]:
            """All or none: two that wait for each other's would both wait in vain."""
            nonlocal tp, latest
            latest = time.monotonic()
            logs = {}
            with contextlib.ExitStack() as own:
                for tp in names:
                    logs[tp] = own.enter_context(LogWriter(f"{self.root}/{tp}", configs[tp]))
                stack.push(own.pop_all())
            return logs

        try:
            return once_free(take, self.lock_wait), latest - begun
        except (KstoreError, OSError) as e:
            raise translated(e, tp) from e

    def _append(
        self,
        journal: Journal,
        pending: Pending,
        logs: Mapping[TopicPartition, LogWriter],
        there: Mapping[TopicPartition, Progress],
    ) -> None:
        def append(tp: TopicPartition) -> None:
            with coded(tp):
                log, total, begun = logs[tp], 0, logs[tp].log_end_offset
                transfer = Transfer(log, pending.moved, journal.producer, journal.epoch, there[tp])
                for one in pending.staged:
                    if one.tp == tp:
                        transfer.take(one)
                        total += one.record_count
                found = there[tp].record_count + log.log_end_offset - begun
                if found != total:
                    raise failure("KSTORE_LOG_CHANGED", f"{found} records of {total}", tp)
                log.flush()

        _each(append, list(logs), pending.staged)

    def _remove(self, staged: Sequence[Staged]) -> None:
        """Removes what the attempts of tasks staged, and the directories above if nothing else is in them."""

        def remove(attempt: Path) -> None:
            shutil.rmtree(attempt, ignore_errors=True)

        attempts = sorted({Path(mapped_root(one.path)).parent for one in staged})
        _each(remove, attempts, staged)  # to free pages takes time too
        for directory in sorted(
            {level for attempt in attempts for level in attempt.parents[:2]}, reverse=True
        ):
            with contextlib.suppress(OSError):
                directory.rmdir()


def _report(what: str, pending: Pending, took_s: float, waited_s: float) -> None:
    """The line of a commit."""
    files = [
        (file.size, file.name in pending.moved.get(one.path, {}))
        for one in pending.staged
        for file in one.files
    ]
    reported_to(_LOG).info(
        "%s %s: %d records in %d partitions; %d bytes in %d files renamed, %d bytes copied; %.3f s, of which "
        "%.3f s for locks",
        what,
        pending.transaction,
        sum(one.record_count for one in pending.staged),
        len({one.tp for one in pending.staged}),
        sum(size for size, is_moved in files if is_moved),
        sum(is_moved for _, is_moved in files),
        sum(size for size, is_moved in files if not is_moved),
        took_s,
        waited_s,
    )


def _checked_name(what: str, name: object) -> str:
    """A name in the staging directory: not another one, which would be removed."""
    if not isinstance(name, str):
        raise TypeError(f"{what} is a str, not {name!r:.80} ({type(name).__name__})")
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{what} is the name of a directory in staging, not {name!r:.80}")
    return name


def _is_there(path: Path) -> bool:
    """Whether a partition was made: more than its directory."""
    try:
        require_partition(path, may_be_empty=False)
    except LogNotFoundError:
        return False
    return path.is_dir() and any(path.iterdir())


def _each(work: Callable[[_T], None], items: Sequence[_T], staged: Sequence[Staged]) -> None:
    """Does the work for every item, in threads where it is worth it: the engine gives up the GIL."""
    size = sum(file.size for one in staged for file in one.files)
    threads = min(len(items), os.cpu_count() or 1)
    if size < _THREADED or threads < 2:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, item) for item in items]:
            done.result()


def _lost(pending: Pending, there: Mapping[TopicPartition, Progress]) -> SparkSourceError | None:
    """What cannot be appended any more: a staged file that is not in its log and not in staging."""
    lost = {(one.path, name) for one, name, _ in missing(pending.staged)}
    for tp, own in there.items():
        copied = 0
        for one, file, body in parts([one for one in pending.staged if one.tp == tp], pending):
            path = f"{one.path}/{file.name}"
            copied += file.record_count if body is None else 0
            published = path in own.moved if body is not None else copied <= own.copied
            if not published and (one.path, file.name) in lost:
                why = "it is not in the log, and not in staging any more as it was"
                return failure("KSTORE_STAGING_LOST", why, tp, file=path)
    return None
