"""The table of topics of a store: their number of partitions, options and ids, and an unfinished change.

Each log directory has a copy, which a broker ignores. The newest copy is used. A change of topics is first
written to this file, atomically, and then carried out. After a crash, the next opening of the store completes
it.
"""

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kstore.engine.io.file import File, read_whole, write_whole
from kstore.errors import CorruptCheckpointError, InvalidConfigError
from kstore.log.files import layout
from kstore.log.files.checked_json import corrupt, decode, encode
from kstore.log.files.layout import TopicPartition
from kstore.log.later import later

if TYPE_CHECKING:
    from kstore.config import LogConfig
else:
    later(globals(), {"kstore.config": "LogConfig"})

NAME = "kstore-topics.json"
_VERSION = 1
MOST_PARTITIONS = 1 << 20  # of a topic; far more than a broker supports
_WHAT = "table of topics"
_NO_CHANGE = b'"change": null\n}\n'  # the end of a file without a change


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
    """The content of the file. `number` counts the changes."""

    number: int = 0
    topics: Mapping[str, KnownTopic] = MappingProxyType({})
    change: Change | None = None

    def with_topic(self, name: str, topic: KnownTopic, change: Change | None = None) -> "TopicTable":
        """The table with a new or changed topic."""
        return TopicTable(self.number + 1, {**self.topics, name: topic}, change)

    def without_topic(self, name: str, places: Mapping[int, str]) -> "TopicTable":
        """The table with the decided deletion of a topic, whose partitions are in these log directories."""
        topics = {known: topic for known, topic in self.topics.items() if known != name}
        return TopicTable(self.number + 1, topics, Change(name, delete=True, make=places))

    def finished(self) -> "TopicTable":
        """The table after its change is complete."""
        return self._replace(change=None)

    def before(self) -> "TopicTable":
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

    def encode(self) -> bytes:
        """Encode the content of the file."""
        change = None
        if self.change is not None:
            make = {str(number): path for number, path in self.change.make.items()}
            change = {"topic": self.change.topic, "delete": self.change.delete, "make": make}
        topics = {
            name: {"partitions": topic.count, "config": dict(topic.options)}
            | ({"id": topic.id} if topic.id else {})
            for name, topic in sorted(self.topics.items())
        }
        content = {"version": _VERSION, "number": self.number, "topics": topics, "change": change}
        return encode(content)


def read_table(directory: Path) -> TopicTable:
    """The table in a log directory; an empty one if there is no such file. CorruptCheckpointError,
    OSError."""
    path = directory / NAME
    try:
        data = read_whole(str(path))
    except FileNotFoundError:
        if path.is_symlink():
            raise corrupt(path, _WHAT, "a file", "a link that leads nowhere") from None
        return TopicTable()
    try:
        return _table_in(path, data)
    except CorruptCheckpointError as e:
        e.add_note(
            "copy it from another log directory of the store, or from a backup. Without it, the topics are "
            "what the directories say, without options of their own: move it away"
        )
        raise


def _table_in(path: Path, data: bytes) -> TopicTable:
    try:
        content = decode(path, data, _WHAT)
        if content["version"] != _VERSION:
            raise corrupt(path, _WHAT, f"version {_VERSION}", content["version"])
        topics = {name: _topic_in(name, entry) for name, entry in content["topics"].items()}
        change = content["change"]
        return TopicTable(_count(content["number"]), topics, None if change is None else _change_in(change))
    except (ValueError, KeyError, TypeError, AttributeError, InvalidConfigError) as e:
        raise corrupt(path, _WHAT, "a table of topics", f"{type(e).__name__}: {e}") from None


def topic_being_deleted(directory: Path) -> str | None:
    """The topic of an unfinished deletion, or None. CorruptCheckpointError, OSError."""
    try:
        file = File(str(directory / NAME))
    except FileNotFoundError:
        return None
    size = file.size()
    end = min(size, len(_NO_CHANGE))
    if file.read(size - end, end) == _NO_CHANGE:  # the common case: do not parse a long file
        return None
    change = read_table(directory).change
    return change.topic if change is not None and change.delete else None


def write_table(directory: Path, table: TopicTable) -> None:
    """Replace the table in a log directory, durably and atomically. OSError."""
    write_whole(str(directory / NAME), table.encode())


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
    options = entry["config"]
    if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
        raise TypeError(f"the configuration {options!r}")
    LogConfig.from_topic(options)
    count = _count(entry["partitions"])
    if count > MOST_PARTITIONS:
        raise ValueError(f"{count} partitions, more than {MOST_PARTITIONS}")
    topic_id = entry.get("id", "")
    if not isinstance(topic_id, str):
        raise TypeError(f"the id {topic_id!r}")
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
