"""How far a group of cursors is behind in the topics that it reads."""

from collections.abc import Mapping

from kstore.errors import LogNotFoundError
from kstore.log.files.layout import TopicPartition
from kstore.log.partition import PartitionLog
from kstore.store.consumer_offsets import committed_here


def lag_of(paths: Mapping[TopicPartition, str], group: str) -> dict[TopicPartition, int]:
    """See LogStore.lag. CorruptRecordError, OSError."""
    committed = committed_here(paths, [group]).get(group, {})
    topics = {tp.topic for tp in committed}
    found = {}
    for tp in sorted(tp for tp in paths if tp.topic in topics):
        try:
            log = PartitionLog(paths[tp])
        except LogNotFoundError:
            continue  # it was deleted meanwhile
        with log:
            start = committed[tp].offset if tp in committed else log.log_start_offset
            found[tp] = log.log_end_offset - max(start, log.log_start_offset)
    return found
