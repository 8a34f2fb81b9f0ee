"""How the topics of a store are made, changed and deleted: their table, their logs, and their maintenance."""

from __future__ import annotations

import contextlib

from kstore.arguments import boolean, integer
from kstore.config import in_python
from kstore.errors import LogClosedError, LogFailedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.topic_table import MOST_PARTITIONS
from kstore.store.sharing import Sharing
from kstore.store.topic import checked_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kstore.store.open_partitions import OpenPartitions
    from kstore.store.upkeep.upkeep import Upkeep


class TopicChanges:
    """The changes of topics of one store: one at a time. See the methods of LogStore."""

    def __init__(self, logs: OpenPartitions, upkeep: Upkeep) -> None:
        self._catalog = logs.catalog
        self._logs = logs
        self._upkeep = upkeep
        self._sharing = Sharing(logs, upkeep)

    def load(self) -> None:
        """Reads the topics when the store is opened for writing. CorruptCheckpointError, OSError."""
        self._sharing.load()

    def _check(self) -> None:
        """LogClosedError, LogFailedError unless topics can be changed now."""
        self._logs.check_open()
        self._catalog.check_changeable()
        self._catalog.remove_due(self._catalog.now())

    def create(self, name: str, partitions: int | None, config: Mapping[str, Any], *, exist_ok: bool) -> None:
        """Makes a topic."""
        checked_name(name)
        if partitions is not None:
            partitions = integer("partitions", partitions, 1, MOST_PARTITIONS)
        boolean("exist_ok", exist_ok)
        options = self._catalog.checked_options(config)
        with self._sharing.changing():
            self._check()
            if name == layout.CLUSTER_METADATA:
                raise ValueError(f"{name} is the name of a broker's own log")
            if exist_ok and name in self._catalog.topics:
                self._refuse_difference(name, partitions, config)
                return
            for known in {*self._catalog.topics, *self._catalog.table.topics}:
                if known == name or known.replace(".", "_") == name.replace(".", "_"):
                    raise ValueError(f"topic {name} cannot be made: there is a topic {known}")
            self._catalog.make(name, range(partitions or 1), options)
            self._logs.forget_failures(name)
            self._upkeep.start()

    def _refuse_difference(self, name: str, partitions: int | None, config: Mapping[str, Any]) -> None:
        """ValueError if a topic has not the partitions and options that are asked for."""
        topic = self._catalog.topic(name)
        if partitions not in (None, topic.count):
            advice = "a topic cannot lose partitions"
            if partitions is not None and partitions > topic.count:
                advice = "add_partitions() adds some"
            raise ValueError(f"topic {name} exists with {topic.count} partitions, not {partitions}: {advice}")
        has, asked = self._catalog.config_of(name), self._catalog.config.replace(**config)
        for option in config:
            values = getattr(has, option), getattr(asked, option)
            if values[0] != values[1] and (option != "cleanup_policy" or set(values[0]) != set(values[1])):
                raise ValueError(
                    f"topic {name} exists with {option}={values[0]!r}, not {values[1]!r}: alter_topic() "
                    "changes it"
                )

    def add_partitions(self, name: str, total: int) -> None:
        """Gives a topic so many partitions in all."""
        total = integer("total", total, 1, MOST_PARTITIONS)
        with self._sharing.changing():
            self._check()
            topic = self._catalog.topic(name)
            if total <= topic.count:
                raise ValueError(
                    f"topic {name} has {topic.count} partitions already, so there cannot be {total} in all"
                )
            self._catalog.require_all(topic, "given partitions")
            self._catalog.make(name, range(topic.count, total), self._catalog.own_options(name))
            self._upkeep.start()

    def alter(self, name: str, config: Mapping[str, Any]) -> None:
        """Changes a topic's own options; None gives one back to the store's configuration."""
        catalog = self._catalog
        with self._sharing.changing():
            self._check()
            topic = catalog.topic(name)
            options = catalog.own_options(name)
            for option in [option for option, value in config.items() if value is None]:
                value = getattr(catalog.config, option, None)
                catalog.checked_options({option: value})  # an option that no topic has is refused
                options.pop(option.replace("_", "."), None)
            options |= catalog.checked_options({k: v for k, v in config.items() if v is not None})
            catalog.checked_options(in_python(options))
            self._logs.of_topic(name)  # before it is decided: none is left as it was

            def steps() -> None:
                catalog.set_options(topic, options)
                self._upkeep.forget(topic.partitions)
                after = catalog.config_of(name)
                for log in self._logs.of_topic(name):
                    with contextlib.suppress(LogClosedError, LogFailedError):  # its next opening uses them
                        log.use_config(after)
                self._upkeep.start()
                catalog.spread(catalog.live()[1:])

            catalog.change(f"configuration of topic {name}", steps)

    def delete(self, name: str) -> None:
        """Deletes a topic."""
        catalog = self._catalog
        with self._sharing.changing():
            self._check()
            topic = catalog.topic(name)
            if name == layout.CLUSTER_METADATA:
                raise ValueError(f"{name} is a broker's own log")
            catalog.require_all(topic, "deleted")
            self._logs.of_topic(name)

            def steps() -> None:
                catalog.leave(topic)
                self._logs.drop(name, topic.partitions)
                self._upkeep.forget(topic.partitions)
                catalog.delete(topic.partitions)

            catalog.change(f"deletion of topic {name}", steps)

    def remove_due(self) -> None:
        """Removes the directories of deleted topics whose time has come."""
        with self._catalog.changing:
            self._catalog.remove_due(self._catalog.now())
