"""Share groups over the topics of a store."""

from __future__ import annotations

from contextlib import suppress

from kstore.arguments import instance
from kstore.errors import LogClosedError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files.layout import TopicPartition
from kstore.log.partition import PartitionLog, source_at
from kstore.log.share.descriptions import share_groups_in
from kstore.log.share.share_group import ShareGroup
from kstore.log.share.state_file import groups_in
from kstore.store.read.topic_reader import checked_topics
from kstore.store.read.wanted_partitions import WantedPartitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from kstore.log.share.acquired_record import AcquiredRecord
    from kstore.log.share.dead_letters import DeadLetterLog
    from kstore.log.share.descriptions import ShareGroupState
    from kstore.store.open_partitions import OpenPartitions


def open_share_group(
    logs: OpenPartitions,
    group: str,
    topics: Iterable[str],
    dead_letter_topic: str | None,
    options: dict[str, Any],
) -> ShareGroup:
    """A worker of a share group that reads topics of a store. What LogStore.share_group raises."""
    logs.check_open()
    names = checked_topics(topics)
    wanted = WantedPartitions(logs.catalog, names)
    if not options["follow"]:
        wanted.refuse_missing(names)
    to: Callable[[AcquiredRecord], DeadLetterLog] | None = None
    if dead_letter_topic is not None:
        if instance("dead_letter_topic", dead_letter_topic, str) in names:
            raise ValueError(f"dead_letter_topic is not one of the topics of the group: {dead_letter_topic}")
        to = _dead_letters(logs, dead_letter_topic)
    return ShareGroup(wanted, source_at, names, group, dead_letter_log_of=to, **options)


def _dead_letters(logs: OpenPartitions, topic: str) -> Callable[[AcquiredRecord], DeadLetterLog]:
    """The log for each dead letter: the partition of the number of its own, as in Kafka. LogNotFoundError."""
    if not logs.catalog.is_writing:
        raise LogClosedError(
            f"dead_letter_topic={topic!r} needs a store that is open for writing: "
            "LogStore(dir, mode='a', shared=True)"
        )
    logs.catalog.topic(topic)

    def log_of(record: AcquiredRecord) -> DeadLetterLog:
        found = logs.catalog.topic(topic)
        return logs.get(TopicPartition(topic, record.partition % found.count))

    return log_of


def share_groups_here(
    paths: Mapping[TopicPartition, str],
) -> dict[str, dict[TopicPartition, ShareGroupState]]:
    """What share groups have done in these partitions. CorruptRecordError, OSError."""
    found: dict[str, dict[TopicPartition, ShareGroupState]] = {}
    for tp, path in sorted(paths.items()):
        if not groups_in(path):
            continue
        with suppress(LogNotFoundError), PartitionLog(path) as log:  # it was deleted meanwhile
            for group, state in share_groups_in(log, path, tp).items():
                found.setdefault(group, {})[tp] = state
    return found
