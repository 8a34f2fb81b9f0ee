"""The journal of a log directory: which transactions were published there, and which one is under way.

It is a file in the directory, replaced as a whole. What it says does not expire, whatever records and clocks
say.
"""

import secrets
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from kstore.arguments import MAX64
from kstore.engine.io.directory import write_whole
from kstore.engine.io.file import read_whole
from kstore.errors import CorruptCheckpointError
from kstore.log.files.checked_json import decode, encode
from kstore.log.follow.position import Position
from kstore.spark.errors import failure, translated
from kstore.spark.writing.staging import Staged

JOURNAL = ".kstore-spark-journal"
REMEMBERED_JOBS = 1_000
REMEMBERED_QUERIES = 1_000
_VERSION = 2
_MAX_EPOCH = 2**15 - 2


class Transaction(NamedTuple):
    """What is published once: a micro-batch of a query, or (number None) a job of its own."""

    name: str
    number: int | None = None

    def __str__(self) -> str:
        if self.number is None:
            return f"job {self.name}"
        return f"micro-batch {self.number} of query {self.name}"


class Body(NamedTuple):
    """What tells a staged file from all others when it lies in a log: the number of its batches, the CRC of
    their CRCs."""

    batch_count: int
    crc: int


Moved: TypeAlias = Mapping[str, Mapping[str, Body]]
"""By the path of a staged log: its files that are moved into the log."""


class Source(NamedTuple):
    """The input of a micro-batch: what tells it from others, and its range of offsets in words, empty if
    unknown."""

    digest: str
    range: str = ""

    @classmethod
    def of(cls, raw: Any) -> "Source | None":
        """From JSON."""
        return None if raw is None else cls(*raw)


class LastBatch(NamedTuple):
    """The last micro-batch that a query published: its number, its records by topic, its input (None:
    unknown)."""

    number: int
    records: Mapping[str, int]
    source: Source | None = None

    @classmethod
    def of(cls, raw: Any) -> "LastBatch":
        """From JSON."""
        number, records, source = raw
        return cls(number, records, Source.of(source))

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return self._asdict() | {"source": None if self.source is None else self.source._asdict()}


class Pending(NamedTuple):
    """A transaction that is under way, as it was before its first record was appended."""

    transaction: Transaction
    staged: tuple[Staged, ...]
    moved: Moved
    marks: Mapping[str, Position]  # where the logs ended
    config: Mapping[str, str]
    source: Source | None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "Pending":
        """From JSON."""
        return cls(
            Transaction(*raw["transaction"]),
            tuple(Staged.of(one) for one in raw["staged"]),
            {path: {name: Body(*b) for name, b in own.items()} for path, own in raw["moved"].items()},
            {log: _position(mark) for log, mark in raw["marks"].items()},
            raw["config"],
            Source.of(raw["source"]),
        )


class Journal:
    """Who publishes in a directory, what was published last of every query, and what is under way."""

    def __init__(self, path: str, content: Mapping[str, Any]) -> None:
        self._path = path
        self.producer: int = content.get("producer", -1)
        self.epoch: int = content.get("epoch", -1)
        own = content.get("queries", {}).items()
        self.queries = {name: LastBatch.of(last) for name, last in own}
        self.jobs: list[str] = list(content.get("jobs", []))
        pending = content.get("pending")
        self.pending = None if pending is None else Pending.of(pending)

    @classmethod
    def read(cls, root: str) -> "Journal":
        """The journal of a log directory, empty if there is none yet. SparkSourceError."""
        path = f"{root}/{JOURNAL}"
        try:
            content = decode(Path(path), read_whole(path), "journal")
        except FileNotFoundError:
            content = {"version": _VERSION}
        except OSError as e:
            raise translated(e, file=path) from e
        except (CorruptCheckpointError, ValueError, RecursionError) as e:
            raise failure("KSTORE_CORRUPT_FILE", f"no journal: {e}", file=path) from None
        if not isinstance(content, dict) or content.get("version") != _VERSION:
            raise failure("KSTORE_CORRUPT_FILE", f"no journal of version {_VERSION}", file=path)
        try:
            return cls(path, content)
        except (TypeError, ValueError, KeyError, AttributeError) as e:
            raise failure("KSTORE_CORRUPT_FILE", f"no journal: {e!r}", file=path) from None

    def _write(self) -> None:
        content = {
            "version": _VERSION,
            "producer": self.producer,
            "epoch": self.epoch,
            "queries": self.queries,
            "jobs": self.jobs,
            "pending": None if self.pending is None else self.pending._asdict(),
        }
        write_whole(self._path, encode(content))

    def holds(self, transaction: Transaction, staged: Sequence[Staged], source: Source | None) -> bool:
        """Whether it was published.

        Spark runs a micro-batch again only if it was the last one, with an equal input.
        KSTORE_CHECKPOINT_RESET if the number is of an earlier one, or `source` is another: its records were
        never published. If no source is known, a warning says that the records are not as many as they were.
        """
        name, number = transaction
        if number is None:
            return name in self.jobs
        last = self.queries.get(name)
        if last is None or number > last.number:
            return False
        known = source is not None and last.source is not None
        if number < last.number or (
            source is not None and last.source is not None and source[0] != last.source[0]
        ):
            raise failure(
                "KSTORE_CHECKPOINT_RESET",
                f"query {name} has published its micro-batch {last.number}{_of(last.source)}, and now gives "
                f"another micro-batch {number}{_of(source)}: its checkpoint was reset, or is an older copy. "
                "Nothing of this micro-batch was written. Give the query a new, empty checkpoint "
                "directory, and startingOffsets that say where it goes on",
                file=self._path,
            )
        if not known and last.records != count_by_topic(staged):
            warnings.warn(
                f"{self._path}: micro-batch {number} of query {name} was published with other numbers of "
                f"records ({last.records}) than it has now ({count_by_topic(staged)}), and is passed over. "
                "If its checkpoint was reset, records are missing: give the query a new, empty checkpoint "
                "directory, and startingOffsets that say where it goes on",
                RuntimeWarning,
                stacklevel=4,
            )
        return True

    def begin(
        self,
        transaction: Transaction,
        staged: Sequence[Staged],
        moved: Moved,
        marks: Mapping[str, Position],
        config: Mapping[str, str],
        source: Source | None,
    ) -> Pending:
        """From here on the transaction is decided. OSError."""
        self.epoch += 1
        if self.producer < 0 or self.epoch > _MAX_EPOCH:
            self.producer, self.epoch = secrets.randbits(62) | 1 << 61, 0  # far from ids that a broker gives
        self.pending = Pending(transaction, tuple(staged), moved, marks, config, source)
        self._write()
        return self.pending

    def forget(self) -> None:
        """The transaction under way counts as never begun. OSError."""
        self.pending = None
        self._write()

    def end(self) -> None:
        """All of the transaction under way is on the disk. OSError."""
        assert self.pending is not None
        name, number = self.pending.transaction
        if number is None:
            self.jobs = [*self.jobs, name][-REMEMBERED_JOBS:]
        else:
            self.queries.pop(name, None)  # the last to publish comes last
            self.queries[name] = LastBatch(number, count_by_topic(self.pending.staged), self.pending.source)
            for oldest in list(self.queries)[:-REMEMBERED_QUERIES]:
                del self.queries[oldest]
        self.pending = None
        self._write()


def _position(mark: Sequence[Any]) -> Position:
    """A position from JSON. Older versions wrote an end offset and a CRC."""
    return Position(*mark) if len(mark) > 2 else Position(mark[0], -1, MAX64)


def _of(source: Source | None) -> str:
    return f" ({source.range})" if source is not None and source.range else ""


def count_by_topic(staged: Sequence[Staged]) -> dict[str, int]:
    """How many records are staged for each topic."""
    counts: dict[str, int] = {}
    for one in staged:
        if one.record_count:
            counts[one.topic] = counts.get(one.topic, 0) + one.record_count
    return counts
