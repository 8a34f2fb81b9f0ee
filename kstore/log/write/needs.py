"""What a group still needs of a log, so that retention keeps it. A group of cursors and a share group may
have one name."""

from __future__ import annotations

from contextlib import suppress

from kstore.light_typing import TYPE_CHECKING
from kstore.log.follow.position import Position
from kstore.log.share.descriptions import state_of
from kstore.log.write.retention import Need

if TYPE_CHECKING:
    from kstore.log.cursors.offset_commits import Commit
    from kstore.log.files.layout import TopicPartition


def needs_of(partition: str, tp: TopicPartition, group: str, commit: Commit | None) -> list[Need]:
    """What a group needs: nothing is known of a group that has neither a commit nor a state as a share group.
    CorruptRecordError, OSError."""
    needs = []
    if commit is not None:
        position = commit.reading_position()
        needs.append(Need(position.offset, position))
    with suppress(FileNotFoundError):
        state = state_of(partition, tp, group)
        needs.append(Need(state.start, Position(state.end, state.leader_epoch, state.generation)))
    return needs
