"""A sink as its operators see it: what is under way, what is staged and whether it is needed, what was
published."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kstore.errors import KstoreError
from kstore.log.partition import PartitionLog
from kstore.spark.errors import SparkSourceError
from kstore.spark.paths import mapped_root
from kstore.spark.writing.journal import Journal, LastBatch, Transaction
from kstore.spark.writing.progress import progress
from kstore.spark.writing.staging import Staged


class StagedJob(NamedTuple):
    """What a job, or a micro-batch, has in staging: its bytes, when it was written last (s since 1970), what
    sweep() does.

    `fate` is "pending" (needed by the transaction under way), "running" (written too recently; the tasks of a
    running job see to that once a minute) or "swept".
    """

    name: str
    size: int
    written: float
    fate: str

    @property
    def reason(self) -> str:
        """Why it is kept or swept, in words."""
        if self.fate == "pending":
            return "needed by the pending transaction"
        ago = max(0, round(time.time() - self.written))
        return f"no task has written there for {ago} s"


class SinkStatus(NamedTuple):
    """A sink as it is.

    `pending` is the transaction that was begun and not finished, None if there is none; `record_count` its
    records, `in_logs` how many of them are in which partition by now (None: that cannot be told, recover()
    says why), `not_staged` which of its files are not in staging: moved into the logs, or lost. `jobs` is
    what is staged. `queries` is the last published micro-batch of every query, `job_count` how many ids of
    batch jobs are remembered.
    """

    pending: Transaction | None
    record_count: int
    in_logs: Mapping[str, int | None]
    not_staged: tuple[str, ...]
    jobs: tuple[StagedJob, ...]
    queries: Mapping[str, LastBatch]
    job_count: int

    def as_dict(self) -> dict[str, Any]:
        """As dicts, lists and plain values, for JSON."""
        return self._asdict() | {
            "pending": None if self.pending is None else self.pending._asdict(),
            "jobs": [job._asdict() | {"reason": job.reason} for job in self.jobs],
            "queries": {name: last.as_dict() for name, last in self.queries.items()},
        }


def status_of(root: str, staging: str, older_than_s: float) -> SinkStatus:
    """The sink of a log directory with this staging directory; takes no lock and changes nothing.
    KstoreError, OSError."""
    journal = Journal.read(root)
    pending = journal.pending
    staged = () if pending is None else pending.staged
    return SinkStatus(
        None if pending is None else pending.transaction,
        sum(one.record_count for one in staged),
        _in_logs(root, journal),
        tuple(f"{one.path}/{name}" for one, name, _ in missing(staged)),
        tuple(staged_jobs(staging, staged, older_than_s)),
        dict(journal.queries),
        len(journal.jobs),
    )


def _in_logs(root: str, journal: Journal) -> dict[str, int | None]:
    """How many records of the transaction under way are in each of its partitions, None where that cannot be
    told."""
    found: dict[str, int | None] = {}
    pending = journal.pending
    if pending is None:
        return found
    for tp in sorted({one.tp for one in pending.staged}):
        try:
            with PartitionLog(f"{root}/{tp}") as log:
                there = progress(log, tp, pending, journal.producer, journal.epoch)
                found[str(tp)] = there.record_count
        except (SparkSourceError, KstoreError, OSError):
            found[str(tp)] = None
    return found


def staged_jobs(staging: str, needed: Sequence[Staged], older_than_s: float) -> Iterator[StagedJob]:
    """What lies in staging, and whether it is needed by `needed`, running, or to be swept."""
    names = {Path(one.path).parents[1].name for one in needed}
    there: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        there = sorted(os.listdir(staging))
    for name in there:
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            size, written = _written(f"{staging}/{name}")
            fate = "swept" if time.time() - written > older_than_s else "running"
            yield StagedJob(name, size, written, "pending" if name in names else fate)


def missing(staged: Sequence[Staged]) -> Iterator[tuple[Staged, str, int]]:
    """The staged files that are not what they were: the log, the name, the bytes that there are."""
    for one in staged:
        for file in one.files:
            try:
                size = Path(mapped_root(one.path), file.name).stat().st_size
            except FileNotFoundError:
                size = 0
            if size != file.size:
                yield one, file.name, size


def _written(directory: str) -> tuple[int, float]:
    """The bytes below a directory, and when something there was written last: its own time does not tell."""
    size, last = 0, os.stat(directory).st_mtime
    for path, directories, files in os.walk(directory):
        for name in (*directories, *files):
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(f"{path}/{name}")
                size += found.st_size if name in files else 0
                last = max(last, found.st_mtime)
    return size, last
