from typing import Any

from kstore.engine.io.file import File
from kstore.engine.io.mutex import Mutex
from kstore.engine.record.batch import Record

def encode_value(offset: int, leader_epoch: int, metadata: bytes, timestamp: int, topic_id: bytes) -> bytes:
    """An OffsetCommitValue of version 4; without a topic id, if that is empty. ValueError for what is too
    long."""

def encode_commits(
    member: int, base_offset: int, timestamp: int, records: list[tuple[bytes, bytes | None]], sequence: int
) -> bytes:
    """A batch of (key, value) pairs of bytes, the value None for a tombstone, all with one timestamp.
    `member` is its producer, `sequence` its base sequence."""

def append_if_same(locks: File, locks_size: int, file: File, end: int, data: bytes) -> bool:
    """Appends `data` to `file` under its lock, if `locks` has `locks_size` bytes and `file` has `end`.

    True if it did; False if nothing was written: somebody has the lock now, or has changed one of the files.
    OSError: what was written is cut off again, unless that fails as well."""

class CommitLocks:
    """The lock file of a directory, in C. LockFile says what the fields are."""

    mutex: Mutex
    file: File | None

class CommitContent:
    """What was read of a file of commits so far, in C: the entries, the end in bytes, the offset of the next
    batch.

    The last commit that changed nothing but an offset is kept as numbers, until somebody asks for the
    entries."""

    entries: dict[Any, Any]
    end: int
    next_offset: int
    synced: int

class CommitFile:
    """A file of commits as this process last saw it, in C. GroupFile says what the fields are."""

    member: int
    look: object
    lock_file: Any
    _claims: int
    _file: File | None
    _doubtful: File | None
    _content: Any
    _mine: File | None
    _mine_end: int
    _synced: tuple[File | None, int]

class OffsetCommitter:
    """What a cursor knows of its last commit, so that one that is not to be durable needs only a few system
    calls.

    The class that derives from it says by `_prepare` what a commit looks like, once it has looked at all:
    those that follow differ by offset and time, as long as nothing else has changed and the look is fresh."""

    _view: Any
    _file: Any
    _look: object
    _fresh_until: float
    _floor: int
    _committed: Any
    _closed: bool
    def _prepare(
        self, tp: object, epochs: object, epoch: int, epoch_start: int, key: bytes, topic_id: bytes
    ) -> None: ...
    def _commit(self, record: Record | int | None, durable: bool, metadata: str) -> None: ...
    def _find_out(self, commit: Any) -> None: ...
    def commit(self, record: Record | int | None = None, *, durable: bool = True, metadata: str = "") -> None:
        """Writes down that the records up to this one are done: the next cursor of the group begins behind
        it.

        record: a Record, or the offset of one. Default: the last one that was given out. durable: True
        returns when the position is safe from a power cut. False is faster: it is safe if only the process
        dies, and from a power cut after the next durable commit or close(). metadata: a text to keep with the
        position, of at most 4096 bytes.

        ValueError if it would move the position backwards, which only seek() allows; OffsetOutOfRangeError
        for a record behind the end of the log. CursorLockedError if the lock was lost, LogClosedError if the
        cursor is closed or belongs to the parent of this process, LogNotFoundError if the partition was
        deleted. OSError: the position is the old one or the new one."""
