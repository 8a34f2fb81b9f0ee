from typing import Final, final

from kstore.engine.io.file import File
from kstore.engine.segment.index import AbortedTxn, TransactionIndex
from kstore.engine.segment.segment import Segment

INDEX_INTERVAL_BYTES: Final[int]
MAX_DECOMPRESSED_BYTES: Final[int]

ROLL_REASONS: Final[tuple[str, ...]]

@final
class ActiveSegment:
    """The only segment of a log that grows. One thread at a time appends; any may take views meanwhile.

    An append is staged batch by batch (`stage`), then written and published in one go (`write`), or forgotten
    (`unstage`). Index files are made at the first append or flush, as Kafka does. `segment`: what is there already."""

    def __new__(
        cls,
        directory: str,
        stem: str,
        base_offset: int,
        *,
        segment: Segment | None = None,
        next_offset: int | None = None,
        created_ms: int = 0,
        roll_jitter_ms: int = 0,
        index_interval_bytes: int = ...,
        segment_index_bytes: int = ...,
        segment_bytes: int = ...,
        max_decompressed_bytes: int = ...,
        preallocate: bool = False,
    ) -> ActiveSegment: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def directory(self) -> str: ...
    @property
    def stem(self) -> str: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def roll_jitter_ms(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...
    @property
    def segment_index_bytes(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...
    def path_of(self, kind: str) -> str:
        """The path of its file of a kind: ".log", ".index", ".timeindex" or ".txnindex"."""
    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int:
        """Bytes written."""
    @property
    def next_offset(self) -> int:
        """The offset after the last record written; the base offset of an empty segment just made."""
    @property
    def transaction_index(self) -> TransactionIndex: ...
    @property
    def transaction_file(self) -> File | None: ...
    def prepare_indexes(self) -> None:
        """Makes the index files now. OSError."""
    def view(self) -> tuple[Segment, int]:
        """(segment, next offset) as they are now, for readers: later appends do not show. Thread-safe.

        The same tuple is given as long as nothing was appended."""
    def seal(self) -> None:
        """Trims its files: the last time entry is added, indexes and log get their exact lengths (spec 4.2). OSError.

        The blocks allocated ahead are given back. LogFailedError if another program has shortened an index file."""
    def unseal(self) -> None:
        """Makes a sealed segment writable again, because the next one could not be made. OSError."""
    def sync(self, *, indexes: bool = True) -> None:
        """Brings the log, and its indexes, to the disk; index files that are not there yet are made. OSError."""
    def files(self) -> list[File]:
        """The Files of the log and of the indexes that were made: what must reach the disk once they are sealed."""
    def append_aborted(self, txn: AbortedTxn) -> None:
        """Adds an aborted transaction to the .txnindex, which is made when the first one comes (spec 3.4). OSError."""
    def after_fork(self) -> None:
        """Another thread, which a child of fork does not have, may have been publishing."""
