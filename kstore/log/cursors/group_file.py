"""The file in which a group's positions are kept: batches of Kafka's own records, one for each commit.

It lies beside the partitions as a plain file, which a broker passes over. Members of the group, in any process, write it
in turn. When it has grown, it is written anew with what counts. Where a crash has torn the end, that is cut off; all other
damage is an error.
"""

import os
import secrets
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from kstore.engine.io.file import File, read_whole, sync_directory, write_whole
from kstore.engine.record.batch import RecordBatch
from kstore.engine.record.batch_builder import encode_batch
from kstore.errors import CorruptRecordError, LogFailedError
from kstore.log.cursors.member_lock import LockFile, byte_of
from kstore.log.cursors.offset_commits import Commit, decode, encode_key, encode_value
from kstore.log.files.layout import TopicPartition

_PREFIX, SUFFIX = "kstore-cursors-", ".positions"
_OVERHEAD, _LEAST, _MAGIC = 12, 61, 16
_PAGE = 4096
_REWRITE = 1 << 16  # bytes from which on it is worth it
_MOST = 1 << 28  # bytes that are read at once, as by read_whole
_INT32 = struct.Struct(">i")

Changes = Mapping[TopicPartition, Commit | None]


class Entry(NamedTuple):
    """What a group has committed for a partition, and the member that did."""

    commit: Commit
    member: int


def path_of(directory: str, group: str) -> str:
    """The file of a group in a directory."""
    return f"{directory}/{_PREFIX}{group}{SUFFIX}"


def groups_in(directory: str) -> list[str]:
    """The groups that have a file in a directory. OSError."""
    names = sorted(os.listdir(directory))  # noqa: PTH208
    return [
        name[len(_PREFIX) : -len(SUFFIX)]
        for name in names
        if name.startswith(_PREFIX) and name.endswith(SUFFIX)
    ]


def read_positions(directory: str, group: str) -> dict[TopicPartition, Entry]:
    """What a group has committed, by partition, without a lock. CorruptRecordError, OSError."""
    content = _Content(path_of(directory, group), group)
    with suppress(FileNotFoundError):
        content.take(read_whole(content.path))
    return content.entries


class _Content:
    """What was read of a file so far."""

    def __init__(self, path: str, group: str) -> None:
        self.path = path
        self.group = group
        self.entries: dict[TopicPartition, Entry] = {}
        self.end = 0  # of the batches that count, in bytes
        self.next_offset = -1  # of the next batch; -1: any

    def take(self, data: bytes) -> None:
        """Takes in the batches that follow, up to where the file is torn. CorruptRecordError for damage."""
        start, at = self.end, 0
        while at < len(data):
            size = _size_at(data, at)
            whole = _LEAST <= size <= len(data) - at
            batch = RecordBatch(data[at : at + size], file=self.path, position=start + at) if whole else None
            if batch is None or not _is_ours(batch):
                if _is_torn(data, at, whole, start, max(self.next_offset, 0)):
                    return
                expected = "a batch of a commit"
                raise CorruptRecordError(
                    "batch", file=self.path, position=start + at, expected=expected, found="damage"
                )
            if batch.base_offset != self.next_offset >= 0 or batch.leader_epoch != -1:
                raise CorruptRecordError(
                    "offset of a batch",
                    file=self.path,
                    position=start + at,
                    expected=self.next_offset,
                    found=batch.base_offset,
                )
            for record in batch.records(verify=False):
                tp, commit = decode(self.group, record, self.path)
                if commit is None:
                    self.entries.pop(tp, None)
                else:
                    self.entries[tp] = Entry(commit, batch.producer_id)
            at += size
            self.end, self.next_offset = start + at, batch.next_offset

    def note(self, changes: Changes, member: int, size: int) -> None:
        """Takes in a batch of so many bytes that a member has written."""
        for tp, commit in changes.items():
            if commit is None:
                self.entries.pop(tp, None)
            else:
                self.entries[tp] = Entry(commit, member)
        # at once, and last: who is interrupted before it reads the batch
        self.end, self.next_offset = self.end + size, max(self.next_offset, 0) + len(changes)


class GroupFile:
    """A group's file, as a member reads and writes it, who has a MemberLock in the directory. Threads may share it."""

    def __init__(self, directory: str, group: str, lock_file: LockFile) -> None:
        self.directory = directory
        self.group = group
        self.member = secrets.randbits(62)  # no other has it: the producer id of the batches that it writes
        self.lock_file = lock_file
        self._byte = byte_of(group)
        self._path = path_of(directory, group)
        self._file: File | None = None
        self._content = _Content(self._path, group)
        self._is_named = False  # its name is on the disk
        self._is_doubtful = False  # a sync has failed
        self._is_settled = False  # all that was read of it is on the disk
        self._unsynced = False  # what this member wrote is not

    def read(self) -> dict[TopicPartition, Entry]:
        """What the group has committed. CorruptRecordError, OSError."""
        with self.lock_file.mutex:
            self._enter()
            self._catch_up()
            entries = dict(self._content.entries)
        return entries

    def write(
        self,
        decide: Callable[[Mapping[TopicPartition, Entry]], Changes],
        done: Callable[[], None],
        durable: bool,
    ) -> None:
        """Writes a commit of a member, all of it or nothing: what `decide` says when it is told what is there. Then it calls
        `done`. Meanwhile nobody else writes.

        OSError: it may be there or not, and nothing else has changed.
        """
        with self.lock_file.mutex:
            self._enter()
            self._catch_up()
            changes = decide(self._content.entries)
            if changes:
                self._put(changes, durable)
            else:
                self._sync(durable)
            done()

    def sync(self) -> None:
        """Brings to the disk what this member wrote and is not there yet. OSError."""
        if self._unsynced:
            with self.lock_file.mutex:
                self._enter()
                self._catch_up()
                self._sync(True)

    def _enter(self) -> None:
        """From here on no other process writes the file, until the mutex is left."""
        lock = self.lock_file
        lock.mutex.later(lock.unlocker(self._byte))  # which happens however it is left
        lock.lock(self._byte, wait=True)
        if not lock.is_there():
            raise LogFailedError(f"{lock.path} was removed: open the cursor again")

    def _catch_up(self) -> None:
        """Takes in what others have written, and cuts off what a crash has torn."""
        try:
            there = os.stat(self._path)  # noqa: PTH116 - each commit asks
        except FileNotFoundError:
            self._file, self._content = None, _Content(self._path, self.group)
            return
        size = there.st_size
        if (
            self._file is None
            or not os.path.samestat(there, os.fstat(self._file.fd))
            or size < self._content.end
        ):
            self._file = File(self._path, "r+")
            self._content = _Content(self._path, self.group)
            self._is_named = self._is_settled = False
        content = self._content
        if size > content.end:
            if size - content.end > _MOST:
                what, most = "size of the file", f"at most {_MOST} bytes more than were read"
                raise CorruptRecordError(
                    what, file=self._path, position=content.end, expected=most, found=size
                )
            self._is_settled = False
            content.take(self._file.read(content.end, size - content.end))
            if size > content.end:
                self._file.truncate(content.end)

    def _put(self, changes: Changes, durable: bool) -> None:
        content = self._content
        data = self._encode(changes, self.member, max(content.next_offset, 0))
        if self._is_doubtful or content.end > max(_REWRITE, 4 * len(data) + 400 * len(content.entries)):
            try:
                self._write_anew(changes)
            except OSError:
                if self._is_doubtful:
                    raise
                self._catch_up()
            else:
                return
            data = self._encode(changes, self.member, max(self._content.next_offset, 0))
        self._append(data, durable)
        self._content.note(changes, self.member, len(data))

    def _encode(self, changes: Changes, member: int, base_offset: int) -> bytes:
        now = time.time_ns() // 1_000_000
        records = [
            (now, encode_key(self.group, tp), None if commit is None else encode_value(commit), None)
            for tp, commit in changes.items()
        ]
        return encode_batch(
            records, base_offset=base_offset, producer_id=member, producer_epoch=0, base_sequence=0
        )

    def _append(self, data: bytes, durable: bool) -> None:
        if self._file is None:
            self._file, self._is_named = File(self._path, "a"), False
        end = self._content.end
        try:
            self._file.write(end, data)
            self._unsynced, self._is_settled = True, False
            self._sync(durable)
        except OSError:
            with suppress(OSError):  # if that fails too, whoever writes next does it
                self._file.truncate(end)
            if self._is_doubtful:  # other processes do not know, and their sync would say that all is well
                with suppress(OSError):
                    self._write_anew({})
            raise

    def _sync(self, durable: bool) -> None:
        if durable and not self._is_settled and self._file is not None:
            try:
                self._file.sync()
            except OSError:
                self._is_doubtful = True  # a second sync would say that all is well
                raise
            if not self._is_named:
                sync_directory(self.directory)
                self._is_named = True
            self._is_settled, self._unsynced = True, False

    def _write_anew(self, changes: Changes) -> None:
        """Writes what counts, and this commit, in place of the file."""
        entries = dict(self._content.entries)
        for tp, commit in changes.items():
            entries.pop(tp, None)
            if commit is not None:
                entries[tp] = Entry(commit, self.member)
        by_member: dict[int, dict[TopicPartition, Commit | None]] = {}
        for tp, entry in entries.items():
            by_member.setdefault(entry.member, {})[tp] = entry.commit
        data, offset = b"", max(self._content.next_offset, 0)
        for one, theirs in by_member.items():
            data += self._encode(theirs, one, offset)
            offset += len(theirs)
        write_whole(self._path, data)
        self._is_doubtful = self._unsynced = False
        self._catch_up()
        self._is_named = self._is_settled = True


def _size_at(data: bytes, at: int) -> int:
    """How long a batch says it is."""
    return _INT32.unpack_from(data, at + 8)[0] + _OVERHEAD if len(data) - at >= _OVERHEAD else 0


def _is_ours(batch: RecordBatch) -> bool:
    try:
        batch.ensure_valid()
    except CorruptRecordError:
        return False
    return batch.magic == 2


def _has_batch(data: bytes) -> bool:
    try:
        return _is_ours(RecordBatch(data))
    except CorruptRecordError:
        return False


def _is_torn(data: bytes, at: int, whole: bool, start: int, offset: int) -> bool:
    """Whether what lies at the end is a commit that a crash has interrupted, and nothing that was written whole.

    Who was killed leaves the beginning of a batch. A power cut leaves pages that were never written, and they are zero.
    """
    for page in range((start + at) // _PAGE * _PAGE, start + len(data), _PAGE):
        piece = data[max(page - start, at) : page + _PAGE - start]
        if len(piece) >= _MAGIC and not any(piece):  # fewer bytes of a batch may be zero
            return True
    if whole:
        return False
    rest = data[at:]
    begin = rest[: min(8, _PAGE - (start + at) % _PAGE)]
    if any(begin) and not offset.to_bytes(8, "big").startswith(begin):
        return False  # no batch with the next offset begins here
    if len(rest) >= _LEAST and _has_batch(rest[:8] + _INT32.pack(len(rest) - _OVERHEAD) + rest[_OVERHEAD:]):
        return False
    for later in range(at + 1, len(data) - _LEAST + 1):
        if data[later + _MAGIC] == 2:
            size = _size_at(data, later)
            if _LEAST <= size <= len(data) - later and _has_batch(data[later : later + size]):
                return False
    return True
