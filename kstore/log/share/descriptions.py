"""What share groups have done in a partition, for those who ask without working for them."""

from __future__ import annotations

import time
from contextlib import suppress

from kstore.engine.io.file import File
from kstore.engine.share.share_state import ACQUIRED
from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.cursors.offset_commits import lag_behind
from kstore.log.files.checkpoints import read_topic_id
from kstore.log.files.layout import METADATA
from kstore.log.files.lock import conflict_in
from kstore.log.share.state_content import encode_keys, read_state
from kstore.log.share.state_file import groups_in, lock_path_of, path_of

if TYPE_CHECKING:
    from kstore.engine.share.share_state import ShareState
    from kstore.log.files.layout import TopicPartition
    from kstore.log.view.log_view import LogView


class ShareGroupState(NamedTuple):
    """What a share group has done in a partition.

    `start_offset`: the offset of the first record that is not done. `end_offset`: the offset behind the last
    record that was delivered. Between them are records that are done and records in flight. `acquired`: how
    many of these a worker has locked. `available`: how many are to be delivered again. `lag`: how many
    offsets up to the end of the log are not done. It is negative if `end_offset` is beyond the end of the
    log.
    """

    start_offset: int
    end_offset: int
    acquired: int
    available: int
    lag: int

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


def share_groups_in(log: LogView, partition: str, tp: TopicPartition) -> dict[str, ShareGroupState]:
    """What each share group has done in a log. CorruptRecordError, OSError."""
    found = {}
    for group in groups_in(partition):
        with suppress(FileNotFoundError):
            state = state_of(partition, tp, group)
            known = [entry for offset, entry in state.in_flight.items() if offset >= log.log_start_offset]
            living = _living(lock_path_of(partition, group), state)
            now = time.time_ns() // 1_000_000
            acquired = sum(
                kind == ACQUIRED and until > now and who in living for kind, _, who, until in known
            )
            available = len(known) - acquired
            lag = lag_behind(log, state.end) + len(known)
            found[group] = ShareGroupState(state.start, state.end, acquired, available, lag)
    return found


def state_of(partition: str, tp: TopicPartition, group: str) -> ShareState:
    """The state of a share group in a partition. FileNotFoundError if it has none. CorruptRecordError,
    OSError."""
    return read_state(path_of(partition, group), encode_keys(group, topic_id_at(partition), tp.partition))


def _living(lock_path: str, state: ShareState) -> set[int]:
    """The workers with acquired records that have the group open in any process. OSError."""
    workers: set[int] = state.workers()
    if not workers:
        return workers
    try:
        lock = File(lock_path)
    except FileNotFoundError:  # a copy of a partition
        return set()
    return {worker for worker in workers if conflict_in(lock.fd, worker, 1) is not None}
