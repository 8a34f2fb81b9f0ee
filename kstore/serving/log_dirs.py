"""DescribeLogDirs: the directories and the sizes of their partitions."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from kstore.errors import KstoreError

if TYPE_CHECKING:
    from pathlib import Path

    from kstore.serving.connection import Connection
    from kstore.serving.partitions import Partitions


def _size_of(path: Path) -> int:
    """The bytes of all segments of a partition, as far as they are still there."""
    with os.scandir(path) as entries:
        return sum(each.stat().st_size for each in entries if each.name.endswith(".log"))


class LogDirs:
    """Describes the log directories."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def describe_log_dirs(
        self, values: dict[str, Any], version: int, connection: Connection
    ) -> dict[str, Any]:
        """Each directory with the partitions that a client names, or all, and the space of its file
        system."""
        known = self._partitions.topics()
        wanted = (
            known
            if values["topics"] is None
            else {topic["topic"]: set(topic["partitions"]) for topic in values["topics"]}
        )
        found: dict[Path, dict[str, list[dict[str, Any]]]] = {
            path: defaultdict(list) for path in self._partitions.store.paths
        }
        for topic in wanted.keys() & known.keys():
            try:
                for number, path in self._partitions.paths(topic).items():
                    if number in wanted[topic]:
                        partition = {"partitionIndex": number, "partitionSize": _size_of(path)}
                        found[path.parent][topic].append(partition)
            except (KstoreError, OSError):
                continue  # it is being deleted
        return {"results": [_directory(path, topics) for path, topics in found.items()]}


def _directory(path: Path, topics: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    space = os.statvfs(path)
    return {
        "logDir": str(path.absolute()),
        "topics": [{"name": name, "partitions": topics[name]} for name in sorted(topics)],
        "totalBytes": space.f_blocks * space.f_frsize,
        "usableBytes": space.f_bavail * space.f_frsize,
    }
