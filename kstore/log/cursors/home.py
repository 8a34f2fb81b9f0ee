"""The directory with the positions of a partition, and the id of the partition in them."""

from __future__ import annotations

import os
from functools import lru_cache

from kstore.errors import LogNotFoundError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.checked_json import corrupt
from kstore.log.files.log_dir_state import located, name_of
from kstore.log.files.manifest import NAME, create, read_manifest, stamp_of
from kstore.log.later import later

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kstore.log.cursors.group_file import Entry, groups_in, read_durable_positions, read_positions
    from kstore.log.cursors.member_lock import explain_refusal
    from kstore.log.cursors.offset_commits import Commit, OffsetAndMetadata
    from kstore.log.files.layout import TopicPartition
    from kstore.log.files.manifest import Stamp
else:
    later(
        globals(),
        {
            "kstore.log.cursors.group_file": "Entry groups_in read_durable_positions read_positions",
            "kstore.log.cursors.member_lock": "explain_refusal",
            "kstore.log.cursors.offset_commits": "Commit OffsetAndMetadata",
        },
    )


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
    def of(cls, path: str) -> Home:
        """The Home of the partition at a path. LogNotFoundError."""
        parent, name = os.path.split(located(path))
        parent = os.path.realpath(parent)
        real = os.path.join(parent, name)
        if not os.path.isdir(real):
            raise LogNotFoundError(f"no partition directory at {path}, so it has no cursors")
        return cls(real, parent if layout.is_partition_name(name) else real, name_of(real))

    def known_id(self) -> bytes:
        """The id of the partition in commits; empty if it has none. A later directory of this name has
        another id, so it does not get these positions. CorruptCheckpointError, OSError."""
        manifest = stamp_of(self.partition)
        return read_manifest(self.partition).id if manifest is None else _id_in(self.partition, manifest)

    def make_id(self) -> bytes:
        """The id of the partition in commits, created durably if it is missing. CorruptCheckpointError,
        OSError."""
        manifest = read_manifest(self.partition)
        if not manifest.id:
            try:
                manifest = create(self.partition, manifest)
            except FileNotFoundError:
                raise LogNotFoundError(f"{self.partition} was deleted") from None
            except OSError as e:
                explain_refusal(e)
                raise
        if not manifest.id:
            raise corrupt(f"{self.partition}/{NAME}", "manifest", "an id of the partition", "none")
        return manifest.id

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


@lru_cache(maxsize=4096)  # each commit, and each position of a group, needs it
def _id_in(partition: str, manifest: Stamp) -> bytes:
    return read_manifest(partition).id
