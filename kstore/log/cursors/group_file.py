"""The file with the positions of a group: a batch of Kafka's own records for each commit.

It is a plain file beside the partitions, which a broker ignores. Members of the group, in any process, take
turns to append. A file that has grown is rewritten with the current positions. An incomplete commit at the
end, left by a crash, is removed; all other damage is an error.

A power cut may lose a commit and keep a later one: then the file has a gap. The base sequence of each batch,
less one, is the number of bytes that were synced before it (a base sequence of 0: unknown). A gap below that
byte is damage and not the work of a power cut.
"""

from __future__ import annotations

import os
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress

from kstore.engine.io.directory import set_mtime_ms, sync_directory, unlink, write_whole
from kstore.engine.io.file import File, read_whole
from kstore.engine.io.synchronization import Mutex
from kstore.engine.record.batch import RecordBatch
from kstore.engine.record.batch_builder import encode_batch
from kstore.errors import CorruptRecordError, LogFailedError, visible
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.cursors.member_lock import byte_of
from kstore.log.cursors.offset_commits import Commit, decode, encode_key, encode_value
from kstore.log.files.layout import TopicPartition
from kstore.log.files.lock import detach
from kstore.log.files.stored_batches import (
    LEAST,
    MOST_SEQUENCE,
    SECTOR,
    has_batch,
    has_gap,
    is_sound,
    size_at,
    sound_batches,
    synced_at,
    with_size,
)
from kstore.log.recovery.repairs import CUT, name_for_cut
from kstore.log.recovery.report import DataLossWarning

if TYPE_CHECKING:
    from kstore.engine.record.batch import Record
    from kstore.log.cursors.member_lock import LockFile

_PREFIX, SUFFIX = "kstore-cursors-", ".positions"
# the sizes at which the file is rewritten: by a durable commit, by another
_LONG, _LONGEST = 1 << 16, 1 << 20
_MOST = 1 << 28  # bytes that one call reads, as read_whole does

Changes = Mapping[TopicPartition, Commit | None]
Entries = Mapping[TopicPartition, "Entry"]
Decide = Callable[[Entries], Changes]


class Entry(NamedTuple):
    """The commit of a group for a partition, and the member that made it."""

    commit: Commit
    member: int


def path_of(directory: str, group: str) -> str:
    """The path of a group's file in a directory."""
    return f"{directory}/{_PREFIX}{group}{SUFFIX}"


def note_reader(path: str, now: int, *, reads: bool) -> None:
    """Note in the time of a file whether its group has a reader: a whole number of ms if the last reader has
    left, else one that is not, as a commit makes it. OSError."""
    set_mtime_ms(path, now, 1 if reads else 0)


def has_left(path: str) -> bool:
    """Whether the last reader has closed its cursor. If not, it is reading or was killed. OSError."""
    return os.stat(path).st_mtime_ns % 1_000_000 == 0


def groups_in(directory: str) -> list[str]:
    """The groups that have a file in a directory. OSError."""
    names = sorted(os.listdir(directory))
    return [
        name[len(_PREFIX) : -len(SUFFIX)]
        for name in names
        if name.startswith(_PREFIX) and name.endswith(SUFFIX)
    ]


def read_positions(directory: str, group: str) -> dict[TopicPartition, Entry]:
    """Read the positions of a group, by partition, without a lock. CorruptRecordError, OSError."""
    content = _Content(path_of(directory, group), group)
    with suppress(FileNotFoundError):
        content.take(read_whole(content.path))
    if content.behind:
        _warn(f"{content.lost()}. The next reader of the group moves them to a {CUT} file")
    return content.entries


def read_durable_positions(directory: str, group: str) -> dict[TopicPartition, Entry]:
    """Read the positions of a group after a sync. The caller may then delete the records before a position,
    because a power cut does not restore an older position. CorruptRecordError, OSError."""
    entries = read_positions(directory, group)
    if entries:
        # another process has replaced or removed it, durably
        with suppress(FileNotFoundError):
            File(path_of(directory, group), "r+").sync()
            sync_directory(directory)
    return entries


def unread_bytes(directory: str, group: str) -> int:
    """The number of bytes at the end of a group's file that hold no whole batch: a commit that was not
    synced, or was cut off. CorruptRecordError, OSError."""
    content = _Content(path_of(directory, group), group)
    with suppress(FileNotFoundError):
        data = read_whole(content.path)
        content.take(data)
        return len(data) - content.end
    return 0


class _Content:
    """The content of a file, as far as it was read."""

    def __init__(self, path: str, group: str) -> None:
        self.path = path
        self.group = group
        self.entries: dict[TopicPartition, Entry] = {}
        self.end = 0  # the end of the valid batches, in bytes
        self.synced = 0  # bytes that were synced, according to the batches
        self.behind = 0  # the number of sound batches behind a gap at the end
        self.next_offset = -1  # of the next batch; -1: any

    def take(self, data: bytes) -> None:
        """Add the batches of `data`, up to an incomplete one or a gap. CorruptRecordError for damage."""
        start, at, next_offset, synced = self.end, 0, self.next_offset, self.synced
        self.behind = 0
        latest: dict[
            bytes | None, tuple[Record, int, int]
        ] = {}  # key -> its last record, the member, the byte
        while at < len(data):
            size = size_at(data, at)
            whole = LEAST <= size <= len(data) - at
            batch = RecordBatch(data[at : at + size], file=self.path, position=start + at) if whole else None
            if batch is None or not is_sound(batch):
                later = sound_batches(data, at + 1)
                durable = max([synced, *(synced_at(batch) for _, batch in later)])
                until = later[0][0] if later else len(data)
                if start + at >= durable and (
                    has_gap(data, at, until, start)
                    or (not later and not whole and _is_begun(data, at, start, max(next_offset, 0)))
                ):
                    self.behind = len(later)
                    break
                expected = "a batch of a commit"
                raise CorruptRecordError(
                    "batch", file=self.path, position=start + at, expected=expected, found="damage"
                )
            if batch.base_offset != next_offset >= 0 or batch.leader_epoch != -1:
                raise CorruptRecordError(
                    "offset of a batch",
                    file=self.path,
                    position=start + at,
                    expected=next_offset,
                    found=batch.base_offset,
                )
            member = batch.producer_id
            for record in batch.records(verify=False):
                latest[record.key] = record, member, start + at
            at += size
            next_offset, synced = batch.next_offset, max(synced, synced_at(batch))
        found = [
            (decode(self.group, record, self.path, position), member)
            for record, member, position in latest.values()
        ]
        for (tp, commit), member in found:
            if commit is None:
                self.entries.pop(tp, None)
            else:
                self.entries[tp] = Entry(commit, member)
        self.end, self.next_offset, self.synced = start + at, next_offset, synced

    def lost(self) -> str:
        """A sentence about the commits behind the gap."""
        commits = "a commit" if self.behind == 1 else f"{self.behind} commits"
        return (
            f"{self.path}: a power cut has left a gap at byte {self.end}, and {commits} behind it that may "
            "never have been synced: the positions before the gap are used"
        )

    def note(self, changes: Changes, member: int, size: int) -> None:
        """Add a batch of `size` bytes that a member has written."""
        for tp, commit in changes.items():
            if commit is None:
                self.entries.pop(tp, None)
            else:
                self.entries[tp] = Entry(commit, member)
        # in one statement, and last: an interrupt before it leaves the batch to be read
        self.end, self.next_offset = self.end + size, max(self.next_offset, 0) + len(changes)


class GroupFile:
    """A group's file, for all members in this process. Each member has a MemberLock in the directory."""

    def __init__(self, directory: str, group: str, lock_file: LockFile) -> None:
        self.directory = directory
        self.group = group
        # unique: the producer id of the batches that this process writes
        self.member = int.from_bytes(os.urandom(8), "big") >> 2
        self.lock_file = lock_file
        self._byte = byte_of(group)
        self._reader_byte = byte_of("life", group)  # all processes that read for the group share its lock
        self._readers: weakref.WeakSet[object] = weakref.WeakSet()  # in this process
        self._path = path_of(directory, group)
        self._file: File | None = None
        self._content = _Content(self._path, group)
        self._keys: dict[TopicPartition, bytes] = {}
        self._named: File | None = None  # the file whose name is synced
        self._doubtful: File | None = None  # the file whose sync has failed
        self._syncing = Mutex()
        self._synced: tuple[File | None, int] = None, 0  # a file, and the number of its synced bytes
        self._mine: File | None = None  # the file that this process wrote last, and the end of that write
        self._mine_end = 0

    @classmethod
    def of(cls, directory: str, group: str, lock_file: LockFile) -> GroupFile:
        """The GroupFile of a group in this process, of which there is one for a lock file."""
        with lock_file.mutex:
            known: GroupFile | None = lock_file.shared.get(group)
            if known is None:
                known = lock_file.shared[group] = cls(directory, group, lock_file)
        return known

    def forget(self) -> None:
        """Close the file in a forked child, so that a lock of the parent on it ends with the parent."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                detach(file)

    def read(self) -> dict[TopicPartition, Entry]:
        """The positions of the group. CorruptRecordError, OSError."""
        with self.lock_file.mutex:
            self._enter()
            entries = dict(self._content.entries)
        return entries

    def write(self, decide: Decide, done: Callable[[], None], durable: bool) -> None:
        """Write a commit of members, all of it or nothing, under the lock of the file.

        `decide` gets the present positions and returns the changes. After the write, `done` is called. One
        sync serves all threads that wait for it. After an OSError the commit may have been written.
        """
        with self.lock_file.mutex:
            self._enter()
            changes = decide(self._content.entries)
            if changes:
                self._put(changes, durable)
            file, end = self._file, self._content.end
            done()
        if durable:
            self._sync(file, end)

    def sync(self) -> None:
        """Sync what this process has written. OSError."""
        file, end = self._mine, self._mine_end
        if file is None or file is not self._file or (self._synced[0] is file and self._synced[1] >= end):
            return
        if self._has_grown(_LONG, 0):
            with self.lock_file.mutex:
                self._enter()
                with suppress(OSError):
                    self._write_anew({})
        self._sync(file, end)

    def join(self, reader: object) -> None:
        """Add a member. OSError."""
        with self.lock_file.mutex:
            if not self._readers:
                self.lock_file.share(self._reader_byte)
            self._readers.add(reader)
        self._note_reader(reads=True)

    def leave(self, reader: object) -> None:
        """Remove a member, and note the time if it was the last one. OSError."""
        with self.lock_file.mutex:
            self._readers.discard(reader)
            if not self._readers:
                self.lock_file.share_no_more(self._reader_byte)
            reads = bool(self._readers) or self.is_read()
        self._note_reader(reads=reads)

    def is_read(self) -> bool:
        """Whether the group has a reader in any process. OSError."""
        return bool(self.lock_file.is_shared(self._reader_byte))

    def _note_reader(self, *, reads: bool) -> None:
        with suppress(OSError):
            note_reader(self._path, time.time_ns() // 1_000_000, reads=reads)

    def remove_if_empty(self) -> None:
        """Remove the file if it has no position. OSError."""
        with self.lock_file.mutex:
            self._enter()
            if self._file is not None and not self._content.entries:
                unlink(self._path)
                self._catch_up()
                sync_directory(self.directory)

    def _enter(self) -> None:
        """Lock the file against other processes until the mutex is released, and read what they have
        written."""
        lock = self.lock_file
        lock.mutex.later(lock.unlocker(self._byte))  # unlocks also after an exception
        lock.lock(self._byte, wait=True)
        if not lock.is_there():
            raise LogFailedError(f"{lock.path} was removed: open the cursor again")
        self._catch_up()

    def _catch_up(self) -> None:
        """Read what other processes have written, and remove an incomplete commit of a crash."""
        file = self._file
        size = file.size() if file is not None and file.is_at(self._path) else -1
        if file is None or size < self._content.end:
            try:
                file = File(self._path, "r+")
            except FileNotFoundError:
                file = None
            self._file, self._content = file, _Content(self._path, self.group)
            if file is None:
                return
            size = file.size()
        content = self._content
        if size > content.end:
            if size - content.end > _MOST:
                what, most = "size of the file", f"at most {_MOST} bytes more than were read"
                raise CorruptRecordError(
                    what, file=self._path, position=content.end, expected=most, found=size
                )
            data = file.read(content.end, size - content.end)
            start = content.end
            content.take(data)
            if size > content.end:
                self._cut(data[content.end - start :])

    def _cut(self, torn: bytes) -> None:
        """Remove an incomplete commit; keep whole commits behind a gap in a .cut file."""
        content, file = self._content, self._file
        assert file is not None
        if not content.behind:
            file.truncate(content.end)
            return
        kept = name_for_cut(self._path, content.end)
        write_whole(kept, torn)
        file.truncate(content.end)
        try:
            file.sync()  # else a power cut could bring them back behind later commits
        except OSError:
            self._doubtful = file
            raise
        _warn(f"{content.lost()}, the others are kept in {kept}")

    def _put(self, changes: Changes, durable: bool) -> None:
        content = self._content
        data = self._encode(changes, self.member, max(content.next_offset, 0))
        is_doubtful = self._file is not None and self._file is self._doubtful
        if is_doubtful or self._has_grown(_LONG if durable else _LONGEST, len(data)):
            try:
                self._write_anew(changes)
            except OSError:
                if is_doubtful:
                    raise
                self._catch_up()
            else:
                return
            data = self._encode(changes, self.member, max(self._content.next_offset, 0))
        self._append(data)
        self._content.note(changes, self.member, len(data))

    def _has_grown(self, least: int, size: int) -> bool:
        """Whether the file has more than `least` bytes, and most of them are of superseded commits."""
        return self._content.end > max(least, 4 * size + 400 * len(self._content.entries))

    def _encode(self, changes: Changes, member: int, base_offset: int, synced: int | None = None) -> bytes:
        if synced is None:
            synced = max(self._content.synced, self._synced[1] if self._synced[0] is self._file else 0)
        records = [
            (self.key_of(tp), None if commit is None else encode_value(commit))
            for tp, commit in changes.items()
        ]
        sequence = min(synced + 1, MOST_SEQUENCE)
        now = time.time_ns() // 1_000_000
        return encode_batch(
            [(now, key, value, ()) for key, value in records],
            base_offset=base_offset,
            producer_id=member,
            producer_epoch=0,
            base_sequence=sequence,
        )

    def key_of(self, tp: TopicPartition) -> bytes:
        """The key of the commits for a partition."""
        key = self._keys.get(tp)
        if key is None:
            key = self._keys[tp] = encode_key(self.group, tp)
        return key

    def _append(self, data: bytes) -> None:
        if self._file is None:
            self._file = File(self._path, "a")
        end = self._content.end
        try:
            self._file.write(end, data)
        except OSError:
            with suppress(OSError):  # if this fails, the next write removes it
                self._file.truncate(end)
            raise
        self._mine, self._mine_end = self._file, end + len(data)

    def _sync(self, file: File | None, end: int) -> None:
        """Sync a file up to a byte, unless it is synced or was replaced by a synced one."""
        with self._syncing:
            synced, upto = self._synced
            if file is None or file is not self._file or (synced is file and upto >= end):
                return
            end = self._content.end  # with what other threads have written since
            if file is self._doubtful:
                self._replace_doubtful()
                return
            try:
                file.sync()
            except OSError:
                self._doubtful = file  # a second sync would succeed without these bytes
                with suppress(OSError):
                    self._replace_doubtful()
                raise
            if self._named is not file:
                sync_directory(self.directory)
                self._named = file
            self._synced = file, end

    def _replace_doubtful(self) -> None:
        """Replace a file whose sync has failed: a later sync, of any process, would succeed without its
        bytes. OSError."""
        with self.lock_file.mutex:
            self._enter()
            if self._file is self._doubtful:
                self._write_anew({})

    def _write_anew(self, changes: Changes) -> None:
        """Replace the file by one with the present positions and these changes."""
        entries = dict(self._content.entries)
        for tp, commit in changes.items():
            entries.pop(tp, None)
            if commit is not None:
                entries[tp] = Entry(commit, self.member)
        by_member: dict[int, dict[TopicPartition, Commit | None]] = {}
        for tp, entry in entries.items():
            by_member.setdefault(entry.member, {})[tp] = entry.commit

        def encoded(synced: int) -> bytes:
            data, offset = b"", max(self._content.next_offset, 0)
            for one, theirs in by_member.items():
                data += self._encode(theirs, one, offset, synced)
                offset += len(theirs)
            return data

        write_whole(self._path, encoded(len(encoded(0))))  # synced before it gets its name
        self._catch_up()
        self._named, self._synced = self._file, (self._file, self._content.end)


def _is_begun(data: bytes, at: int, start: int, offset: int) -> bool:
    """Whether this is the beginning of a batch whose writer was killed."""
    rest = data[at:]
    begin = rest[: min(8, SECTOR - (start + at) % SECTOR)]
    if any(begin) and not offset.to_bytes(8, "big").startswith(begin):
        return False  # it does not have the next offset
    return len(rest) < LEAST or not has_batch(with_size(rest))


def _warn(text: str) -> None:
    warnings.warn(visible(text), DataLossWarning, stacklevel=4)
