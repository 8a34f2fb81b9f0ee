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


class LogStore:
    """The partitions of a log directory, read-only; a view of the names that were there when it was made.

    `others` holds the names of directories that are no partition in use: those marked -delete, -future or -stray, and
    those whose names Kafka does not accept.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
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

    @property
    def topics(self) -> dict[str, list[int]]:
        """Topic -> the numbers of its partitions that lie here."""
        found: dict[str, list[int]] = {}
        for topic, partition in self.partitions:
            found.setdefault(topic, []).append(partition)
        return found

    @property
    def closed_cleanly(self) -> bool:
        """Whether the broker left its clean-shutdown marker."""
        return (self.path / layout.CLEAN_SHUTDOWN).exists()

    def meta(self) -> dict[str, str]:
        """What meta.properties says: cluster.id, node.id, directory.id, version. Empty where there is none."""
        try:
            return read_properties(self.path / layout.META_PROPERTIES)
        except FileNotFoundError:
            return {}

    def open(self, topic: str, partition: int = 0, **options: Any) -> PartitionLog:
        """Opens one partition for reading; options as in kstore.open. ValueError for what is no name of a topic."""
        if not isinstance(topic, str):
            raise TypeError(f"topic is a str, not {topic!r}")
        if not layout.is_valid_topic(topic):
            raise ValueError(f"Kafka allows no topic of the name {topic!r}: up to 249 of a-z A-Z 0-9 . _ -")
        partition = integer("partition", partition, 0, 2**31 - 1)
        return PartitionLog(self.path / f"{topic}-{partition}", **options)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)

    def __repr__(self) -> str:
        return f"LogStore({str(self.path)!r}, {len(self)} partitions)"
