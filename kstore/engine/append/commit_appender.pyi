from kstore.engine.io.file import File

def encode_value(offset: int, leader_epoch: int, metadata: bytes, timestamp: int, topic_id: bytes) -> bytes:
    """An OffsetCommitValue of version 4; without a topic id, if that is empty. ValueError for what is too long."""

def encode_commits(
    member: int, base_offset: int, timestamp: int, records: list[tuple[bytes, bytes | None]], sequence: int
) -> bytes:
    """A batch of (key, value) pairs of bytes, the value None for a tombstone, all with one timestamp. `member` is its
    producer, `sequence` its base sequence."""

def append_if_same(locks: File, byte: int, locks_size: int, file: File, end: int, data: bytes) -> bool:
    """Appends `data` under the lock on a byte of `locks`, if `locks` has `locks_size` bytes and `file` has `end`.

    True if it did; False if nothing was written: somebody has the lock now, or has changed one of the files. OSError:
    what was written is cut off again, unless that fails as well."""
