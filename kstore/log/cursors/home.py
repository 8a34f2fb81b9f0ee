"""The directory with the positions of a partition, and the id of the partition in them."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kstore.engine.io.file import read_whole, write_whole
from kstore.engine.record.batch import crc32c
from kstore.errors import CorruptCheckpointError, LogNotFoundError
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.files.log_dir_state import located, name_of
from kstore.log.later import later

if TYPE_CHECKING:
    from kstore.log.cursors.group_file import Entry, groups_in, read_durable_positions, read_positions
    from kstore.log.cursors.member_lock import LockFile, byte_of, explain_refusal
    from kstore.log.cursors.offset_commits import Commit, OffsetAndMetadata
else:
    later(
        globals(),
        {
            "kstore.log.cursors.group_file": "Entry groups_in read_durable_positions read_positions",
            "kstore.log.cursors.member_lock": "LockFile byte_of explain_refusal",
            "kstore.log.cursors.offset_commits": "Commit OffsetAndMetadata",
        },
    )

_ID = "kstore-cursors.id"


class Home(NamedTuple):
    """The directory with the positions of a partition: the directory around it if it has a partition's name,
    else the partition itself.

    Unlike the directory of the checkpoints, it does not depend on other files. A link in a log directory is a
    partition of that directory; any other link is resolved.
    """

    partition: str
    directory: str
    tp: TopicPartition

    @classmethod
    def of(cls, path: str) -> "Home":
        """The Home of the partition at a path. LogNotFoundError."""
        parent, name = os.path.split(located(path))
        parent = os.path.realpath(parent)
        real = os.path.join(parent, name)  # noqa: PTH118
        if not os.path.isdir(real):  # noqa: PTH112
            raise LogNotFoundError(f"no partition directory at {path}, so it has no cursors")
        return cls(real, parent if layout.is_partition_name(name) else real, name_of(Path(real)))

    def known_id(self) -> bytes | None:
        """The id of the partition in commits, or None. A later directory of this name has another id, so
        it does not get these positions. CorruptCheckpointError, OSError."""
        path = f"{self.partition}/{_ID}"
        try:
            text = read_whole(path)
        except FileNotFoundError:
            return None
        with suppress(ValueError):
            found = bytes.fromhex(text.decode())[:16]
            if len(found) == 16 and text == _text(found):
                return found
        expected = "32 hexadecimal digits, and 8 that are their CRC-32C"
        error = CorruptCheckpointError(
            "id of the partition", file=path, position=1, expected=expected, found=text[:80]
        )
        error.add_note("put it back from a backup. Without it, no group has a position here: move it away")
        raise error

    def id_file(self) -> tuple[int, int]:
        """The inode and the change time of the file with the id; (0, 0) if there is none."""
        try:
            found = os.stat(f"{self.partition}/{_ID}")  # noqa: PTH116 - each commit calls it
        except OSError:
            return 0, 0
        return found.st_ino, found.st_ctime_ns

    def make_id(self, lock: LockFile) -> bytes:
        """The id of the partition in commits, created durably if it is missing. CorruptCheckpointError,
        OSError."""
        found = self.known_id()
        if found is None:
            byte = byte_of("id", self.tp)
            with lock.mutex:
                lock.mutex.later(lock.unlocker(byte))
                lock.lock(byte, wait=True)
                found = self.known_id()
                if found is None:
                    found = os.urandom(16)
                    try:
                        write_whole(f"{self.partition}/{_ID}", _text(found))
                    except OSError as e:
                        explain_refusal(e)
                        raise
        return found

    def committed(self, group: str) -> OffsetAndMetadata | None:
        """The position that a group has committed. CorruptRecordError, OSError."""
        return self.position_in(read_positions(self.directory, group))

    def durable_commit(self, group: str) -> Commit | None:
        """The last commit of a group, synced first. CorruptRecordError, OSError."""
        return self.commit_in(read_durable_positions(self.directory, group))

    def commit_in(self, entries: Mapping[TopicPartition, Entry]) -> Commit | None:
        """The commit for this partition among those of a group. CorruptCheckpointError, OSError."""
        entry = entries.get(self.tp)
        return None if entry is None or entry.commit.partition_id != self.known_id() else entry.commit

    def position_in(self, entries: Mapping[TopicPartition, Entry]) -> OffsetAndMetadata | None:
        """The position of this partition among those of a group. CorruptCheckpointError, OSError."""
        commit = self.commit_in(entries)
        return None if commit is None else commit.position

    def all_committed(self) -> dict[str, OffsetAndMetadata]:
        """The committed position of each group. CorruptRecordError, OSError."""
        found = {group: self.committed(group) for group in groups_in(self.directory)}
        return {group: position for group, position in found.items() if position is not None}


def _text(partition_id: bytes) -> bytes:
    return b"%s%08x\n" % (partition_id.hex().encode(), crc32c(partition_id))
