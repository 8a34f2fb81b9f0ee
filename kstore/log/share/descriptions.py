"""What share groups have done in a partition, for those who ask without working for them."""

from __future__ import annotations

from contextlib import suppress

from kstore.engine.share.share_state import ACQUIRED
from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files.checkpoints import read_topic_id
from kstore.log.files.layout import METADATA
from kstore.log.share.state_content import encode_keys, read_state
from kstore.log.share.state_file import groups_in, path_of

if TYPE_CHECKING:
    from kstore.log.files.layout import TopicPartition


class ShareGroupState(NamedTuple):
    """What a share group has done in a partition.

    `start_offset`: the offset of the first record that is not done. `end_offset`: the offset behind the last
    record that was delivered. Between them are records that are done and records in flight. `acquired`: how
    many of these a worker has, or had when it died. `available`: how many are to be delivered again.
    """

    start_offset: int
    end_offset: int
    acquired: int
    available: int

    @property
    def in_flight(self) -> int:
        """How many records were delivered and are not done."""
        return self.acquired + self.available


def topic_id_at(partition: str) -> bytes:
    """The id of the topic, if a broker has given it one; else zeros."""
    try:
        return read_topic_id(f"{partition}/{METADATA}").bytes
    except (FileNotFoundError, CorruptFileError):
        return bytes(16)


def share_groups_in(partition: str, tp: TopicPartition) -> dict[str, ShareGroupState]:
    """What each share group has done in a partition. CorruptRecordError, OSError."""
    found = {}
    for group in groups_in(partition):
        with suppress(FileNotFoundError):
            state = read_state(
                path_of(partition, group), encode_keys(group, topic_id_at(partition), tp.partition)
            )
            acquired = sum(known[0] == ACQUIRED for known in state.in_flight.values())
            available = len(state.in_flight) - acquired
            found[group] = ShareGroupState(state.start, state.end, acquired, available)
    return found
