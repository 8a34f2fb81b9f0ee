"""The file with the state of a share group in a partition: a batch of one share-state record for each change.

Workers in any process take turns to append to it, under a lock on the file beside it. Each first reads what
others have appended, so the file is the only truth. A file that has grown is replaced by a snapshot.
"""

from __future__ import annotations

import os
import time
import weakref
from contextlib import suppress

from kstore.engine.io.directory import make_directory, sync_directory, unlink, write_whole
from kstore.engine.io.file import File
from kstore.engine.io.synchronization import Mutex
from kstore.engine.share.share_state import (
    REPLACED,
    UNCHANGED,
    FileLock,
    encode_value,
    look_behind,
    write_batch,
)
from kstore.errors import LogClosedError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files.layout import SHARES
from kstore.log.files.lock import conflict_in, detach, keep_byte, keep_no_more, others_from
from kstore.log.files.shared_session import require_local
from kstore.log.files.stored_batches import MOST_SEQUENCE
from kstore.log.share.state_content import MOST_BYTES, StateContent, encode_keys, encode_state

if TYPE_CHECKING:
    from kstore.engine.share.share_state import Update
    from kstore.log.files.layout import TopicPartition

_STATE, _LOCK = ".state", ".lock"
# the sizes at which the file is replaced. A durable one has zeros up to there, because a sync takes longer if
# the file has grown
_LONG, _LONGEST = 1 << 18, 1 << 22
_PIECE = 1 << 12  # bytes that are read at once of what others have appended

_files: weakref.WeakSet[StateFile] = weakref.WeakSet()


def path_of(partition: str, group: str) -> str:
    """The path of a group's state in a partition."""
    return f"{partition}/{SHARES}/{group}{_STATE}"


def lock_path_of(partition: str, group: str) -> str:
    """The path of the file that the workers of a group lock in a partition."""
    return f"{partition}/{SHARES}/{group}{_LOCK}"


def groups_in(partition: str) -> list[str]:
    """The share groups that have a state in a partition. OSError."""
    try:
        names = sorted(os.listdir(f"{partition}/{SHARES}"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name[: -len(_STATE)] for name in names if name.endswith(_STATE)]


class StateFile:
    """The state of a share group in a partition, for one worker. All methods need `lock`, unless they say so.

    durable: whether the file is laid out for syncs.
    """

    def __init__(
        self, partition: str, group: str, tp: TopicPartition, topic_id: bytes, worker: int, *, durable: bool
    ) -> None:
        self.path = path_of(partition, group)
        self._lock_path = lock_path_of(partition, group)
        self.worker = worker
        self.is_new = False
        self._partition = partition
        self._durable = durable
        self._content = StateContent(self.path, encode_keys(group, topic_id, tp.partition))
        # as far as it was read: without the lock, other workers may have changed it
        self.state = self._content.state
        self._file: File | None = None
        self._most = _LONG if durable else _LONGEST  # bytes, before the file is replaced
        self._is_doubtful = False  # a sync has failed
        self._syncing = Mutex()
        self.is_of_parent = False  # this is a child of fork
        self.lock = self._locked_file()
        _files.add(self)

    def _locked_file(self) -> FileLock:
        directory = os.path.dirname(self.path)
        if not os.path.isdir(self._partition):
            raise LogNotFoundError(f"{self._partition} was deleted")
        make_directory(directory)
        require_local(directory, what="a share group")
        while True:
            lock = FileLock(self._lock_path)
            keep_byte(lock.file.fd, self.worker)
            if not _is_deleted(lock):  # else the group was forgotten meanwhile
                return lock

    # ---- workers -------------------------------------------------------------------------------------------

    def is_alive(self, worker: int) -> bool:
        """Whether a worker is at work in any process. Needs no lock. OSError."""
        return worker == self.worker or conflict_in(self.lock.file.fd, worker, 1) is not None

    def has_others(self) -> bool:
        """Whether other workers have the group open in this partition. Needs no lock."""
        return others_from(self.lock.file.fd, 1)

    def close(self) -> None:
        """This worker leaves: what it has acquired is available. Needs no lock."""
        keep_no_more(self.lock.file.fd, self.worker)

    def after_fork(self) -> None:
        """In a child of fork: its descriptor must not keep the locks when the parent has ended."""
        self.is_of_parent = True
        detach(self.lock.file)

    # ---- reading -------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Take in what other workers have appended. CorruptRecordError, LogNotFoundError, OSError."""
        if self.is_of_parent:
            raise LogClosedError(
                f"{self.path} is in use by the parent of this process: open the group again here"
            )
        file = self._file
        if file is None:
            self._open()
        elif (change := look_behind(file, self._content.end)) != UNCHANGED or self._is_doubtful:
            if change == REPLACED:
                self._open()
            else:
                self._read_on(file)
            if self._is_doubtful:
                self.replace()

    def _open(self) -> None:
        if _is_deleted(self.lock):
            raise LogNotFoundError(f"{self.path} was deleted: open the group again")
        try:
            file = File(self.path, "r+")
        except FileNotFoundError:
            if self._file is not None:
                raise LogNotFoundError(f"{self.path} was deleted: open the group again") from None
            self.is_new = True
            return
        content = StateContent(self.path, self._content.keys)
        size = file.size()
        if size > MOST_BYTES:
            raise content.corrupt(f"at most {MOST_BYTES} bytes", f"{size} bytes")
        data = file.read(0, size)
        rest = data[content.take(data) :]
        content.check_torn(rest)
        if not content.end:
            raise content.corrupt("a snapshot", "nothing")
        self._take_over(file, content)
        if rest.strip(b"\0"):
            self.replace()  # else batches behind the torn one could become part of the file again

    def _read_on(self, file: File) -> None:
        size = _PIECE
        while (data := file.read(self._content.end, size)) and any(data):
            if self._content.take(data):
                continue
            if len(data) < size:
                self._content.check_torn(data)
                self.replace()
                return
            size *= 4

    # ---- writing -------------------------------------------------------------------------------------------

    def begin(self, update: Update) -> None:
        """Store the first state of a group that has none yet. OSError."""
        self._content.state.apply(update)
        self.replace()

    def append(self, update: Update) -> None:
        """Store an update, then take it in. OSError: it was not stored, or the next call takes it in."""
        if self._content.end > self._most:
            self.replace()
        file, content = self._file, self._content
        assert file is not None
        now = time.time_ns() // 1_000_000
        key, value = content.keys[update.is_snapshot], encode_value(update, content.snapshot_epoch, now)
        sequence = min(content.synced + 1, MOST_SEQUENCE)
        end = content.end
        try:
            size = write_batch(file, end, key, value, now, content.next_offset, self.worker, sequence)
        except OSError:
            with suppress(OSError):  # if this fails, the next worker removes it
                file.truncate(end)
            raise
        content.state.apply(update)
        content.end, content.next_offset = end + size, content.next_offset + 1

    def replace(self) -> None:
        """Replace the file by a snapshot of the state, durably. OSError."""
        before, content = self._content, StateContent(self.path, self._content.keys)
        content.state = before.state
        content.snapshot_epoch, content.next_offset = before.snapshot_epoch + 1, max(before.next_offset, 0)
        data = encode_state(content.state, content.keys, content.snapshot_epoch, content.next_offset)
        room = bytes(max(_LONG - len(data), 0)) if self._durable else b""
        write_whole(self.path, data + room)
        content.end = content.synced = len(data)
        content.next_offset += 1
        self._most = max(_LONG if self._durable else _LONGEST, 4 * len(data))
        self._take_over(File(self.path, "r+"), content)

    def _take_over(self, file: File, content: StateContent) -> None:
        """Go on with another file. The content comes last, for `sync`."""
        self._is_doubtful = self.is_new = False
        self._file, self.state, self._content = file, content.state, content

    def sync(self) -> None:
        """Bring what was appended to the disk. The caller must not have the lock: one sync serves all threads
        that wait for it. OSError: what was appended may be lost in a power cut."""
        wanted, wanted_end = self._content, self._content.end
        with self._syncing:
            content, file = self._content, self._file
            if file is None or content is not wanted or content.synced >= wanted_end:  # others are synced
                return
            end = content.end
            try:
                file.sync(data_only=True)
            except OSError:
                self._is_doubtful = True  # a second sync would succeed without these bytes
                raise
            content.synced = max(content.synced, end)

    def remove(self) -> None:
        """Delete the files of the group in this partition. OSError."""
        unlink(self.lock.file.path, missing_ok=True)
        unlink(self.path, missing_ok=True)
        sync_directory(os.path.dirname(self.path))


def _is_deleted(lock: FileLock) -> bool:
    """Whether the file of a lock has no name any more."""
    return os.fstat(lock.file.fd).st_nlink == 0


def _forked() -> None:
    for file in list(_files):
        file.after_fork()
    _files.clear()


os.register_at_fork(after_in_child=_forked)
