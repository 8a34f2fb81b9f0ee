"""How far any group has read, and in which leader epoch, for who opens a partition for writing: one that ends
before that is an older copy."""

import os
from contextlib import suppress
from typing import NamedTuple

from kstore.errors import CorruptRecordError
from kstore.log.cursors.group_file import groups_in, path_of, read_positions
from kstore.log.files.layout import TopicPartition
from kstore.log.recovery.report import DataLossWarning

_MOST = 16  # directories that are remembered

State = tuple[int, int, int] | None  # inode, size, when it was changed; None: it cannot be looked at


class _Directory(NamedTuple):
    """What was read of a directory, and what tells that it is still so."""

    itself: State
    files: dict[str, State]  # of the groups
    read: dict[tuple[TopicPartition, bytes], tuple[int, int]]


_known: dict[str, _Directory] = {}


def furthest_position(directory: str, tp: TopicPartition, partition_id: bytes) -> tuple[int, int]:
    """The greatest offset that a group has committed for the partition with this id, and the greatest leader
    epoch; -1 if none has. What a file that is damaged, or cannot be read, has to say is not known.

    All partitions of a store ask when it is opened: it is read once, as long as the directory and the files
    stay as they are. OSError.
    """
    known, itself = _known.get(directory), _state_of(directory)
    groups = known.files if known is not None and known.itself == itself else groups_in(directory)
    files = {group: _state_of(path_of(directory, group)) for group in groups}
    if known is None or known.files != files:
        known = _Directory(itself, files, _read(directory, files))
    elif known.itself != itself:
        known = known._replace(itself=itself)
    if len(_known) >= _MOST and directory not in _known:
        _known.clear()
    _known[directory] = known
    return known.read.get((tp, partition_id), (-1, -1))


def _read(directory: str, groups: dict[str, State]) -> dict[tuple[TopicPartition, bytes], tuple[int, int]]:
    found: dict[tuple[TopicPartition, bytes], tuple[int, int]] = {}
    for group in groups:
        with suppress(OSError, CorruptRecordError, DataLossWarning):  # a warning may be an error
            for tp, (commit, _) in read_positions(directory, group).items():
                whose = tp, commit.partition_id
                offset, epoch = found.get(whose, (-1, -1))
                position = commit.position
                found[whose] = max(offset, position.offset), max(epoch, position.leader_epoch)
    return found


def _state_of(path: str) -> State:
    try:
        found = os.stat(path)  # noqa: PTH116 - each partition of a store asks
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
