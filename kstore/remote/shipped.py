"""Manifests of shipped segments: each segment has one beside its files, such as
00000000000000000000.shipped.

It is written last, once the other files were read back and have the right checksums, and is never changed. So
the segments with a manifest are the log, at each moment, whatever other files the directory has; two programs
that ship one log write equal files; and a listing is enough to find the log. The newest manifest also has the
start and the leader epochs of the whole log up to its end.
"""

from __future__ import annotations

from posixpath import join, split

from kstore.errors import CorruptCheckpointError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import checkpoints, layout
from kstore.log.files.checked_json import corrupt, decode, encode, has_checksum
from kstore.log.files.leader_epochs import LeaderEpochs
from kstore.log.files.manifest import read_manifest
from kstore.log.follow.position import Position, are_of_one_topic, checked_position, diverged_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from kstore.log.partition import PartitionLog
    from kstore.log.recovery.loader import Loaded
    from kstore.remote.storage import Storage

_VERSION = 0
_WHAT = "manifest of a shipped segment"


class ShippedFile(NamedTuple):
    """A file of a segment: its size and SHA-256."""

    size: int
    sha256: str


class Shipped(NamedTuple):
    """The manifest of a segment. `start` is the log start offset, `position` the end of the segment as a
    position in the log, `leader_epochs` are those of the log until there. `files` are by name; one is the
    snapshot of producers at the end, if there was one."""

    start: int
    position: Position
    leader_epochs: LeaderEpochs
    files: Mapping[str, ShippedFile]

    @property
    def end(self) -> int:
        """The offset after the segment."""
        return self.position.offset

    def encode(self) -> bytes:
        """The content of its file."""
        return encode(
            {
                "version": _VERSION,
                "start": self.start,
                "position": self.position,
                "leader_epochs": self.leader_epochs.entries,
                "files": self.files,
            }
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> Shipped:
        """From the content of a file. CorruptCheckpointError."""
        try:
            if not has_checksum(path, data, _WHAT):
                raise ValueError("no checksum")
            content: Any = decode(path, data, _WHAT)
            if content["version"] != _VERSION:
                raise ValueError(f"version {content['version']!r:.80}")
            return cls(
                int(content["start"]),
                checked_position("position", Position(*content["position"])),
                LeaderEpochs((int(epoch), int(offset)) for epoch, offset in content["leader_epochs"]),
                {str(name): ShippedFile(int(n), str(sha)) for name, (n, sha) in content["files"].items()},
            )
        except CorruptCheckpointError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise corrupt(path, _WHAT, "version, start, position, leader_epochs and files", e) from None


class ShippedLog(NamedTuple):
    """The shipped segments of one remote directory: their base offsets in order, and the newest manifest."""

    bases: tuple[int, ...]
    newest: Shipped

    def names(self) -> set[str]:
        """The names that the files of these segments may have."""
        stems = [layout.segment_stem(base) for base in self.bases]
        kinds = (*layout.SEGMENT_KINDS, layout.SHIPPED)
        snapshots = {f"{layout.segment_stem(end)}.snapshot" for end in (*self.bases[1:], self.newest.end)}
        return {stem + kind for stem in stems for kind in kinds} | snapshots | {layout.METADATA}


def shipped_bases(names: Iterable[str]) -> list[int]:
    """The base offsets of the segments that have a manifest among these names."""
    stems = [name.removesuffix(layout.SHIPPED) for name in names if name.endswith(layout.SHIPPED)]
    return sorted(int(stem) for stem in stems if layout.segment_offset(f"{stem}.log") is not None)


def shipped_logs(storage: Storage, names: Iterable[str]) -> dict[str, ShippedLog]:
    """The shipped logs by directory, of a listing. CorruptCheckpointError, OSError."""
    directories: dict[str, list[str]] = {}
    for name in names:
        directory, own = split(name)
        directories.setdefault(directory, []).append(own)
    found = {directory: bases for directory, own in directories.items() if (bases := shipped_bases(own))}
    newest = {directory: join(directory, manifest_name(bases[-1])) for directory, bases in found.items()}
    contents = storage.read_all(list(newest.values()))
    return {
        directory: ShippedLog(
            tuple(bases),
            Shipped.decode(f"{storage.url}/{newest[directory]}", contents[newest[directory]]),
        )
        for directory, bases in found.items()
    }


def manifest_name(base_offset: int) -> str:
    """The name of the manifest of a segment."""
    return layout.segment_stem(base_offset) + layout.SHIPPED


def continued(older: LeaderEpochs, newer: LeaderEpochs) -> LeaderEpochs:
    """The leader epochs of a log of which `newer` has lost the beginning, and `older` the end."""
    last = -1 if older.latest is None else older.latest
    return LeaderEpochs([*older.entries, *(entry for entry in newer.entries if entry[0] > last)])


def id_of(log: PartitionLog) -> str:
    """The id of the topic, else that of the log in its manifest; "" if it has neither."""
    topic_id = log.topic_id()
    return checkpoints.topic_id_text(topic_id) if topic_id is not None else read_manifest(log.path).id.hex()


def difference(now: Loaded, own_id: str, newest: Position) -> str:
    """Why a log with this id is not the one that was shipped up to a position; "" if nothing tells so."""
    if not are_of_one_topic(own_id, newest.topic_id):
        return "another log is there"
    if now.log_end_offset < newest.offset:
        return f"it ends at {now.log_end_offset}, and that at {newest.offset}"
    if (diverged := diverged_at(now, newest, "read_uncommitted")) >= 0:
        return f"it was truncated at offset {diverged}, and the old records are there"
    return ""
