"""Descriptions of a store: its health, its topics."""

from __future__ import annotations

from pathlib import Path

from kstore.config import in_python
from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from kstore.config import LogConfig
    from kstore.log.files.layout import TopicPartition
    from kstore.store.open_partitions import OpenPartitions
    from kstore.store.topic_catalog import TopicCatalog
    from kstore.store.upkeep.upkeep import Upkeep


class TopicDescription(NamedTuple):
    """A topic of a LogStore.

    `partitions` maps the numbers of its partitions to their directories. `config` is the configuration of its
    logs. `options` are the options that the topic sets; the others are the store's. `id` is the id of the
    topic: a topic that is deleted and created again has another one. It is None for a topic whose partitions
    were created one by one.
    """

    name: str
    partitions: dict[int, Path]
    config: LogConfig
    options: dict[str, object]
    id: UUID | None


class StoreHealth(NamedTuple):
    """The partitions and directories of a LogStore that are unavailable, and the background tasks that
    failed.

    `directories` maps the log directories that failed to the reason, `partitions` the partitions that failed
    by themselves. `missing` are partitions of known topics that are in none of the directories in use.
    `unfinished` names the change of topics that is not finished, "" if there is none. `not_removed` maps
    directories of deleted partitions that could not be removed to the reason. `background` maps tasks that
    failed and have not succeeded since, such as "retention of orders-0", to the reason.
    """

    directories: dict[Path, str]
    partitions: dict[TopicPartition, str]
    missing: list[TopicPartition]
    unfinished: str
    not_removed: dict[Path, str]
    background: dict[str, str]

    @property
    def ok(self) -> bool:
        """Whether everything is in use."""
        return not any(self)


def describe_topic(catalog: TopicCatalog, name: str) -> TopicDescription:
    """The description of a topic as it is now. LogNotFoundError."""
    topic = catalog.topic(name)
    if not catalog.is_writing:
        catalog.read_again()
    options = in_python(catalog.own_options(name))
    paths = {tp.partition: Path(catalog.partitions[tp].path_of(tp)) for tp in topic.partitions}
    return TopicDescription(name, paths, catalog.config_of(name), options, catalog.uuid_of(name))


def health_of(logs: OpenPartitions, upkeep: Upkeep) -> StoreHealth:
    """The health of a store as it is now."""
    catalog = logs.catalog
    directories, gone = catalog.failed_directories()
    return StoreHealth(
        directories,
        gone | logs.refusals(),
        catalog.missing(),
        "" if catalog.is_changing else catalog.unfinished,
        dict(catalog.not_removed),
        upkeep.failures(),
    )
