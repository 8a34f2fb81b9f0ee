"""Descriptions of a store: its health, its topics."""

from pathlib import Path
from typing import NamedTuple

from kstore.config import LogConfig
from kstore.log.files.layout import TopicPartition


class TopicDescription(NamedTuple):
    """A topic of a LogStore.

    `partitions` maps the numbers of its partitions to their directories. `config` is the configuration that
    its logs have, `options` what of it is the topic's own, as options of LogConfig; the rest is the store's.
    """

    name: str
    partitions: dict[int, Path]
    config: LogConfig
    options: dict[str, object]


class StoreHealth(NamedTuple):
    """What of a LogStore is out of use, or failed in the background.

    `directories` maps the log directories that failed to the reason, `partitions` the partitions that failed
    by themselves. `missing` are partitions of known topics that are in none of the directories in use.
    `unfinished` says which change of topics is not finished, "" if none is. `not_removed` maps directories of
    deleted partitions that could not be removed to the reason. `background` maps what failed in the
    background, such as "retention of orders-0", to the reason, until it has succeeded.
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
