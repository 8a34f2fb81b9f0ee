"""A log directory: what a broker calls log.dir, with a directory for each partition in it."""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from kstore.arguments import integer
from kstore.errors import LogNotFoundError
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.partition import PartitionLog
from kstore.properties import read_properties

_OPTIONS = tuple(PartitionLog.__init__.__kwdefaults__ or ())


class LogStore:
    """The partitions of a broker's log directory, for reading: a list of names, made when the object is made.

    Nothing is written or locked, so the directory may belong to a running broker. Iterating gives a TopicPartition for
    each partition; `open` opens one of them for reading. To write a partition, use kstore.open with its path.

    `partitions` holds what iterating gives. `others` holds the names of directories that are not partitions in use:
    those marked -delete, -future or -stray, and those with names that Kafka does not accept. LogNotFoundError if there
    is no such directory, or if it is itself a partition.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path).absolute()  # the program may go to another directory
        if not self.path.is_dir():
            raise LogNotFoundError(f"no log directory at {self.path}")
        self.partitions: list[TopicPartition] = []
        self.others: list[str] = []
        for child in sorted(self.path.iterdir()):
            if not child.is_dir():
                continue
            tp = layout.parse_directory(child.name)
            if tp is None or str(tp) != child.name:
                self.others.append(child.name)
            else:
                self.partitions.append(tp)
        self.partitions.sort()
        if not self.partitions and any(
            layout.segment_offset(path.name) is not None for path in self.path.glob("*.log")
        ):
            raise LogNotFoundError(
                f"{self.path} is a partition, not a log directory: open it with kstore.open"
            )

    @property
    def topics(self) -> dict[str, list[int]]:
        """The numbers of the partitions of each topic: {"orders": [0, 1], …}."""
        found: dict[str, list[int]] = {}
        for topic, partition in self.partitions:
            found.setdefault(topic, []).append(partition)
        return found

    @property
    def closed_cleanly(self) -> bool:
        """Whether the broker closed all logs in this directory cleanly: it leaves a marker file then."""
        return (self.path / layout.CLEAN_SHUTDOWN).exists()

    def meta(self) -> dict[str, str]:
        """What meta.properties says, as text: cluster.id, node.id, directory.id, version. Empty if there is no such
        file.

        CorruptCheckpointError if the file cannot be parsed.
        """
        try:
            return read_properties(self.path / layout.META_PROPERTIES)
        except FileNotFoundError:
            return {}

    def open(self, topic: str, partition: int = 0, **options: Any) -> PartitionLog:
        """Opens one partition for reading only, and returns a PartitionLog.

        `options` are those of kstore.open for reading, such as recover=False. To write, use kstore.open(path, "a").
        LogNotFoundError if there is no such partition, ValueError for a name that no topic of Kafka's can have.
        """
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {topic!r}")
        if not layout.is_valid_topic(topic):
            raise ValueError(
                f"{topic!r} cannot be the name of a topic: up to 249 of the characters a-z A-Z 0-9 . _ - are allowed"
            )
        partition = integer("partition", partition, 0, 2**31 - 1)
        named = layout.parse_directory(topic)
        if (
            named is not None
            and named in self.partitions
            and TopicPartition(topic, partition) not in self.partitions
        ):
            raise LogNotFoundError(
                f"no partition {partition} of a topic {topic} in {self.path}; the partition {topic} is "
                f"open({named.topic!r}, {named.partition})"
            )
        for name in options:
            if name not in _OPTIONS:
                raise TypeError(
                    f"{name} is none of the options for reading: they are {', '.join(_OPTIONS)}; to write, use kstore.open"
                )
        return PartitionLog(self.path / f"{topic}-{partition}", **options)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)

    def __repr__(self) -> str:
        return f"LogStore({str(self.path)!r}, {len(self)} partitions)"
