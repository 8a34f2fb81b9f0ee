"""The table of topics of a store: their number of partitions, options and ids, and an unfinished change.

Each log directory has a copy in its manifest. The newest copy is used. A change of topics is first written to
the table, atomically, and then carried out. After a crash, the next opening of the store completes it.
"""

from __future__ import annotations

import os
from types import MappingProxyType

from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.later import later

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from typing import Any

    from kstore.config import LogConfig
    from kstore.log.files.layout import TopicPartition
else:
    later(globals(), {"kstore.config": "LogConfig"})

MOST_PARTITIONS = 1 << 20  # of a topic; far more than a broker supports


class KnownTopic(NamedTuple):
    """A topic in the table: its number of partitions, its options in Kafka's notation, and its id. A later
    topic of that name has another id. It is "" if an older version of kstore created the topic."""

    count: int  # type: ignore[assignment]
    options: Mapping[str, str]
    id: str = ""


class Change(NamedTuple):
    """A decided change of the directories of a topic: partitions to create, or to delete, each with its log
    directory."""

    topic: str
    delete: bool
    make: Mapping[int, str] = MappingProxyType({})

    def concerns(self, tp: TopicPartition) -> bool:
        """Whether the change creates or deletes a partition."""
        return tp.topic == self.topic and (self.delete or tp.partition in self.make)

    def __str__(self) -> str:
        return f"{'deletion' if self.delete else 'creation of partitions'} of topic {self.topic}"


class TopicTable(NamedTuple):
    """The table. `number` counts the changes; it is 0 if there is no table."""

    number: int = 0
    topics: Mapping[str, KnownTopic] = MappingProxyType({})
    change: Change | None = None

    def with_topic(self, name: str, topic: KnownTopic, change: Change | None = None) -> TopicTable:
        """The table with a new or changed topic."""
        return TopicTable(self.number + 1, {**self.topics, name: topic}, change)

    def without_topic(self, name: str, places: Mapping[int, str]) -> TopicTable:
        """The table with the decided deletion of a topic, whose partitions are in these log directories."""
        topics = {known: topic for known, topic in self.topics.items() if known != name}
        return TopicTable(self.number + 1, topics, Change(name, delete=True, make=places))

    def finished(self) -> TopicTable:
        """The table after its change is complete."""
        return self._replace(change=None)

    def before(self) -> TopicTable:
        """The table without the partitions of an unfinished creation. It does not contain a topic that is
        being deleted."""
        change = self.change
        if change is None or change.delete:
            return self.finished()
        topics = {name: topic for name, topic in self.topics.items() if name != change.topic}
        known = self.topics.get(change.topic)
        if known is not None and min(change.make, default=0) > 0:
            topics[change.topic] = known._replace(count=min(change.make))
        return self._replace(topics=topics, change=None)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> TopicTable:
        """From the content of a manifest. ValueError, KeyError, TypeError, AttributeError,
        InvalidConfigError."""
        if "topics" not in content:
            return cls()
        topics = {name: _topic_in(name, entry) for name, entry in content["topics"].items()}
        change = content["change"]
        return cls(_count(content["number"]), topics, None if change is None else _change_in(change))

    def content(self) -> dict[str, object]:
        """The table in the content of a manifest: nothing before the first change."""
        if not self.number:
            return {}
        made = self.change
        change = made and {"topic": made.topic, "delete": made.delete, "make": dict(made.make)}
        topics = {
            name: {"partitions": topic.count, "config": dict(topic.options)}
            | ({"id": topic.id} if topic.id else {})
            for name, topic in sorted(self.topics.items())
        }
        return {"number": self.number, "topics": topics, "change": change}


def newest(tables: Iterable[TopicTable]) -> TopicTable:
    """The latest table; among equals, one with an unfinished change."""
    return max(tables, key=lambda table: (table.number, table.change is not None), default=TopicTable())


def merged(tables: Sequence[TopicTable], topics: Container[str]) -> TopicTable:
    """The newest table, with those of `topics` that only older tables have: a directory of another store was
    added."""
    table = newest(tables)
    deleted = table.change.topic if table.change is not None else None
    more: dict[str, KnownTopic] = {}
    for other in sorted(tables, key=lambda other: other.number):
        more |= {
            name: topic
            for name, topic in other.topics.items()
            if name in topics and name not in table.topics and name != deleted
        }
    return table._replace(number=table.number + 1, topics={**table.topics, **more}) if more else table


def options_in(content: Mapping[str, Any]) -> dict[str, str]:
    """The options of a topic or a log in the content of a manifest. TypeError, InvalidConfigError."""
    options = content.get("config", {})
    if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
        raise TypeError(f"the configuration {options!r:.200}")
    if options:
        LogConfig.from_topic(options)
    return options


def new_topic_id() -> str:
    """An id for a new topic, as Kafka gives one to each topic."""
    return os.urandom(16).hex()


def _count(number: object) -> int:
    if type(number) is not int or not 0 <= number < 2**63:
        raise ValueError(f"{number!r} is no count")
    return number


def _name(name: object) -> str:
    if not isinstance(name, str) or not layout.is_valid_topic(name):
        raise ValueError(f"{name!r} is no name of a topic")
    return name


def _topic_in(name: object, entry: Mapping[str, object]) -> KnownTopic:
    _name(name)
    options = options_in(entry)
    count = _count(entry["partitions"])
    if count > MOST_PARTITIONS:
        raise ValueError(f"{count} partitions, more than {MOST_PARTITIONS}")
    topic_id = entry.get("id", "")
    if not isinstance(topic_id, str):
        raise TypeError(f"the id {topic_id!r}")
    if topic_id and len(bytes.fromhex(topic_id)) != 16:
        raise ValueError(f"the id {topic_id!r}")
    return KnownTopic(count, options, topic_id)


def _change_in(change: Mapping[str, object]) -> Change:
    make = change["make"]
    if not isinstance(make, dict) or not all(isinstance(path, str) for path in make.values()):
        raise TypeError(f"the places {make!r}")
    topic, delete = _name(change["topic"]), change["delete"]
    if not isinstance(delete, bool):
        raise TypeError(f"delete {delete!r}")
    numbers = {int(number): path for number, path in make.items()}
    for number in numbers:
        if not 0 <= number < 2**31:
            raise ValueError(f"partition {number}")
    return Change(topic, delete, numbers)
