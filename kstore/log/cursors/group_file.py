"""The file in which a group's positions are kept: batches of Kafka's own records, one for each commit.

It lies beside the partitions as a plain file, which a broker passes over. Members of the group, in any
process, write it in turn. When it has grown, it is written anew with what counts. Where a crash has torn the
end, that is cut off; all other damage is an error.

A power cut may keep a later commit and lose one before it: then there is a hole. Each batch says up to which
byte the file was on the disk when it was written (its base sequence is that number and one more, and 0 says
nothing): no hole of a power cut is before that.
"""

import os
import struct
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from kstore.engine.io.file import File, read_whole, set_mtime_ms, sync_directory, unlink, write_whole
from kstore.engine.io.mutex import Mutex
from kstore.engine.record.batch import Record, RecordBatch
from kstore.engine.record.batch_builder import encode_batch
from kstore.errors import CorruptRecordError, LogFailedError, visible
from kstore.log.cursors.member_lock import LockFile, byte_of
from kstore.log.cursors.offset_commits import Commit, decode, encode_key, encode_value
from kstore.log.files.layout import TopicPartition
from kstore.log.recovery.repairs import CUT, name_for_cut
from kstore.log.recovery.report import DataLossWarning

_PREFIX, SUFFIX = "kstore-cursors-", ".positions"
_OVERHEAD, _LEAST, _MAGIC = 12, 61, 16
_SECTOR = 512  # bytes that a power cut keeps or loses as one
_MOST_SEQUENCE = 2**31 - 1
# bytes from which on the file is written anew: if that is synced anyway, and if not
_LONG, _LONGEST = 1 << 16, 1 << 20
_MOST = 1 << 28  # bytes that are read at once, as by read_whole
_INT32 = struct.Struct(">i")

Changes = Mapping[TopicPartition, Commit | None]
Entries = Mapping[TopicPartition, "Entry"]
Decide = Callable[[Entries], Changes]


class Entry(NamedTuple):
    """What a group has committed for a partition, and the member that did."""

    commit: Commit
    member: int


def path_of(directory: str, group: str) -> str:
    """The file of a group in a directory."""
    return f"{directory}/{_PREFIX}{group}{SUFFIX}"


def note_life(path: str, now: int, *, reads: bool) -> None:
    """The time of a file says until when somebody read for the group: a whole number of ms if the last one
    has left then; any other, as each commit makes it, if somebody read on. OSError."""
    set_mtime_ms(path, now, 1 if reads else 0)


def has_left(path: str) -> bool:
    """Whether the last sign of life is that a member has left. Else one reads, or was killed, nobody knows
    when. OSError."""
    return os.stat(path).st_mtime_ns % 1_000_000 == 0  # noqa: PTH116


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
    if content.behind:
        _warn(f"{content.lost()}. Who reads for the group next keeps them in a {CUT} file")
    return content.entries


def read_durable_positions(directory: str, group: str) -> dict[TopicPartition, Entry]:
    """The same, brought to the disk first: for who deletes what lies before a position. A power cut must not
    bring back an older one. CorruptRecordError, OSError."""
    entries = read_positions(directory, group)
    if entries:
        # another file has taken its place, or none: that is durable already
        with suppress(FileNotFoundError):
            File(path_of(directory, group), "r+").sync()
            sync_directory(directory)
    return entries


class _Content:
    """What was read of a file so far."""

    def __init__(self, path: str, group: str) -> None:
        self.path = path
        self.group = group
        self.entries: dict[TopicPartition, Entry] = {}
        self.end = 0  # of the batches that count, in bytes
        self.synced = 0  # up to here it was on the disk, as the batches say
        self.behind = 0  # how many sound batches lie behind a hole that the end is at
        self.next_offset = -1  # of the next batch; -1: any

    def take(self, data: bytes) -> None:
        """Takes in the batches that follow, up to where the file is torn. CorruptRecordError for damage."""
        start, at, next_offset, synced = self.end, 0, self.next_offset, self.synced
        self.behind = 0
        latest: dict[bytes | None, tuple[Record, int]] = {}  # the last record of each key, and its member
        while at < len(data):
            size = _size_at(data, at)
            whole = _LEAST <= size <= len(data) - at
            batch = RecordBatch(data[at : at + size], file=self.path, position=start + at) if whole else None
            if batch is None or not _is_ours(batch):
                later = _sound_batches(data, at + 1)
                durable = max([synced, *(_synced_at(batch) for _, batch in later)])
                until = later[0][0] if later else len(data)
                if start + at >= durable and (
                    _has_hole(data, at, until, start)
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
                latest[record.key] = record, member
            at += size
            next_offset, synced = batch.next_offset, max(synced, _synced_at(batch))
        found = [(decode(self.group, record, self.path), member) for record, member in latest.values()]
        for (tp, commit), member in found:
            if commit is None:
                self.entries.pop(tp, None)
            else:
                self.entries[tp] = Entry(commit, member)
        self.end, self.next_offset, self.synced = start + at, next_offset, synced

    def lost(self) -> str:
        """Says what lies behind the hole."""
        commits = "a commit" if self.behind == 1 else f"{self.behind} commits"
        return (
            f"{self.path}: a power cut has left a hole at byte {self.end}, and {commits} behind "
            "it, which nothing says were "
            f"on the disk: the positions before it count"
        )

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
    """A group's file, as the members in this process read and write it, each of whom has a MemberLock in the
    directory."""

    def __init__(self, directory: str, group: str, lock_file: LockFile) -> None:
        self.directory = directory
        self.group = group
        # no other has it: the producer id of the batches that it writes
        self.member = int.from_bytes(os.urandom(8), "big") >> 2
        self.lock_file = lock_file
        self._claims = -1
        self._byte = byte_of(group)
        self._life = byte_of("life", group)  # shared by all processes that read for the group
        self._readers: weakref.WeakSet[object] = weakref.WeakSet()  # in this process
        self._path = path_of(directory, group)
        self._file: File | None = None
        self._content = _Content(self._path, group)
        self._keys: dict[TopicPartition, bytes] = {}
        self._named: File | None = None  # whose name is on the disk
        self._doubtful: File | None = None  # of which a sync has failed
        self._syncing = Mutex()
        self._synced: tuple[File | None, int] = None, 0  # up to which byte of which file all is on the disk
        self._mine: File | None = None  # which file this process wrote, up to which byte
        self._mine_end = 0

    @classmethod
    def of(cls, directory: str, group: str, lock_file: LockFile) -> "GroupFile":
        """The one that this process has, with which it was that locked."""
        with lock_file.mutex:
            known: GroupFile | None = lock_file.shared.get(group)
            if known is None:
                known = lock_file.shared[group] = cls(directory, group, lock_file)
        return known

    def forget(self) -> None:
        """In a forked child: the lock that its parent may have on the file must not outlive the parent
        here."""
        file, self._file = self._file, None
        if file is not None:  # and perhaps a thread has it that there is no more
            with suppress(OSError), open(os.devnull, "rb") as nothing:  # noqa: PTH123
                os.dup2(nothing.fileno(), file.fd, inheritable=False)

    def read(self) -> dict[TopicPartition, Entry]:
        """What the group has committed. CorruptRecordError, OSError."""
        with self.lock_file.mutex:
            self._enter()
            entries = dict(self._content.entries)
        return entries

    def write(self, decide: Decide, done: Callable[[], None], durable: bool) -> None:
        """Writes a commit of members, all of it or nothing: what `decide` returns when it gets what is there.
        Then it calls `done`. Meanwhile nobody else writes. One sync serves all threads that wait for it.

        OSError: it may be there or not, and nothing else has changed.
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
        """Brings to the disk what this process wrote and is not there yet. OSError."""
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
        """A member has come. OSError."""
        with self.lock_file.mutex:
            if not self._readers:
                self.lock_file.share(self._life)
            self._readers.add(reader)
        self._note_life(reads=True)

    def leave(self, reader: object) -> None:
        """A member leaves; perhaps it is the last one. OSError."""
        with self.lock_file.mutex:
            self._readers.discard(reader)
            if not self._readers:
                self.lock_file.share_no_more(self._life)
            reads = bool(self._readers) or self.is_read()
        self._note_life(reads=reads)

    def is_read(self) -> bool:
        """Whether somebody reads for the group. OSError."""
        return bool(self.lock_file.is_shared(self._life))

    def _note_life(self, *, reads: bool) -> None:
        with suppress(OSError):
            note_life(self._path, time.time_ns() // 1_000_000, reads=reads)

    def remove_if_empty(self) -> None:
        """Removes the file if it holds no position. OSError."""
        with self.lock_file.mutex:
            self._enter()
            if self._file is not None and not self._content.entries:
                self._claim()
                unlink(self._path)
                self._catch_up()
                sync_directory(self.directory)

    def _enter(self) -> None:
        """From here on no other process writes the file, until the mutex is left. Takes in what others have
        written."""
        lock = self.lock_file
        lock.mutex.later(lock.unlocker(self._byte))  # which happens however it is left
        lock.lock(self._byte, wait=True)
        claims = lock.claims()
        if claims < 0:
            raise LogFailedError(f"{lock.path} was removed: open the cursor again")
        self._claims = claims
        self._catch_up()

    def _claim(self) -> None:
        """Lets the others look which file is there: before it is another one, so that nobody who dies in
        between has kept it from them. OSError."""
        if self.lock_file.claim() == self._claims:
            self._claims += 1  # nobody else has changed anything

    def _catch_up(self) -> None:
        """Takes in what others have written, and cuts off what a crash has torn."""
        try:
            there = os.stat(self._path)  # noqa: PTH116 - commits ask
        except FileNotFoundError:
            self._file, self._content = None, _Content(self._path, self.group)
            return
        file, size = self._file, there.st_size
        if file is None or not os.path.samestat(there, os.fstat(file.fd)) or size < self._content.end:
            file = File(self._path, "r+")
            size = file.size()
            self._file, self._content = file, _Content(self._path, self.group)
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
        """Cuts off what a crash has torn. Whole commits behind a hole are kept aside."""
        content, file = self._content, self._file
        assert file is not None
        if not content.behind:
            file.truncate(content.end)
            return
        kept = name_for_cut(str(self._path), content.end)
        write_whole(kept, torn)
        file.truncate(content.end)
        try:
            file.sync()  # or they come back behind what is appended now
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
        """Whether the file is that long, and most of it is old."""
        return self._content.end > max(least, 4 * size + 400 * len(self._content.entries))

    def _encode(self, changes: Changes, member: int, base_offset: int, synced: int | None = None) -> bytes:
        if synced is None:
            synced = max(self._content.synced, self._synced[1] if self._synced[0] is self._file else 0)
        records = [
            (self.key_of(tp), None if commit is None else encode_value(commit))
            for tp, commit in changes.items()
        ]
        sequence = min(synced + 1, _MOST_SEQUENCE)
        now = time.time_ns() // 1_000_000
        return encode_batch(
            [(now, key, value, ()) for key, value in records],
            base_offset=base_offset,
            producer_id=member,
            producer_epoch=0,
            base_sequence=sequence,
        )

    def key_of(self, tp: TopicPartition) -> bytes:
        """The key of a partition's commits."""
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
            with suppress(OSError):  # if that fails too, whoever writes next does it
                self._file.truncate(end)
            raise
        self._mine, self._mine_end = self._file, end + len(data)

    def _sync(self, file: File | None, end: int) -> None:
        """Brings a file to the disk up to a byte, unless it is there, or was replaced by one that is."""
        with self._syncing:
            synced, upto = self._synced
            if file is None or file is not self._file or (synced is file and upto >= end):
                return
            end = self._content.end  # and what other threads have written since
            if file is self._doubtful:
                self._replace_doubtful()
                return
            try:
                file.sync()
            except OSError:
                self._doubtful = file  # a second sync would say that all is well
                with suppress(OSError):
                    self._replace_doubtful()
                raise
            if self._named is not file:
                sync_directory(self.directory)
                self._named = file
            self._synced = file, end

    def _replace_doubtful(self) -> None:
        """Other processes do not know that a sync has failed, and theirs would say that all is well.
        OSError."""
        with self.lock_file.mutex:
            self._enter()
            if self._file is self._doubtful:
                self._write_anew({})

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

        def encoded(synced: int) -> bytes:
            data, offset = b"", max(self._content.next_offset, 0)
            for one, theirs in by_member.items():
                data += self._encode(theirs, one, offset, synced)
                offset += len(theirs)
            return data

        self._claim()
        write_whole(self._path, encoded(len(encoded(0))))  # all of it is on the disk before it has its name
        self._catch_up()
        self._named, self._synced = self._file, (self._file, self._content.end)


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


def _synced_at(batch: RecordBatch) -> int:
    """Up to which byte the file was on the disk when a batch was written, as far as that is known."""
    return int(batch.base_sequence) - 1


def _sound_batches(data: bytes, at: int) -> list[tuple[int, RecordBatch]]:
    """The whole batches from a byte on, whatever lies between them, and where they begin."""
    found = []
    while at <= len(data) - _LEAST:
        size = _size_at(data, at) if data[at + _MAGIC] == 2 else 0
        if _LEAST <= size <= len(data) - at and _has_batch(data[at : at + size]):
            found.append((at, RecordBatch(data[at : at + size])))
            at += size
        else:
            at += 1
    return found


def _has_hole(data: bytes, at: int, until: int, start: int) -> bool:
    """Whether a part of these bytes never reached the disk: it is zero."""
    for sector in range((start + at) // _SECTOR * _SECTOR, start + until, _SECTOR):
        piece = data[max(sector - start, at) : min(sector + _SECTOR - start, until)]
        if len(piece) >= _MAGIC and not any(piece):  # fewer bytes of a batch may be zero
            return True
    return False


def _is_begun(data: bytes, at: int, start: int, offset: int) -> bool:
    """Whether this is the beginning of a batch, as who was killed leaves it."""
    rest = data[at:]
    begin = rest[: min(8, _SECTOR - (start + at) % _SECTOR)]
    if any(begin) and not offset.to_bytes(8, "big").startswith(begin):
        return False  # no batch with the next offset begins here
    return len(rest) < _LEAST or not _has_batch(
        rest[:8] + _INT32.pack(len(rest) - _OVERHEAD) + rest[_OVERHEAD:]
    )


def _warn(text: str) -> None:
    warnings.warn(visible(text), DataLossWarning, stacklevel=4)
