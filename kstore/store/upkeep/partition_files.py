"""The files of partitions that are closed: their names and sizes, and what was found out from them."""

from __future__ import annotations

import contextlib
import os

from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.listing import list_directory

if TYPE_CHECKING:
    from kstore.log.files.layout import TopicPartition


class FileFacts:
    """What was found out from the files of partitions, by question: two numbers each.

    A fact holds until its partition is opened. Another thread may open it while one looks at the files, so
    that one takes the `moment` before it looks.
    """

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self.moment = object()  # another one after each opening
        self._known: dict[TopicPartition, dict[str, tuple[int, int]]] = {}

    def get(self, question: str, tp: TopicPartition) -> tuple[int, int] | None:
        """The fact, if one is known."""
        return self._known.get(tp, {}).get(question)

    def keep(self, question: str, tp: TopicPartition, fact: tuple[int, int], moment: object) -> None:
        """Keeps a fact, unless a partition was opened since that moment."""
        # entered first, then compared: the other thread may come in between
        self._known.setdefault(tp, {})[question] = fact
        if moment is not self.moment or not self._keeps:
            self.drop(question, tp)

    def drop(self, question: str, tp: TopicPartition) -> None:
        """One fact holds no longer."""
        self._known.get(tp, {}).pop(question, None)

    def opened(self, tp: TopicPartition) -> None:
        """No fact of a partition holds any longer."""
        self.moment = object()
        self._known.pop(tp, None)


def bases_of(path: str) -> list[int]:
    """The base offsets of the .log files in a directory, oldest first: no file is looked at. OSError."""
    offsets = map(layout.segment_offset, list_directory(path))
    return sorted(offset for offset in offsets if offset is not None)


def files_of(path: str) -> list[tuple[int, int]]:
    """The base offsets and sizes of the .log files in a directory, oldest first. OSError."""
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            base = layout.segment_offset(entry.name)
            if base is not None:
                with contextlib.suppress(FileNotFoundError):  # another thread has just removed it
                    found.append((base, entry.stat().st_size))
    return sorted(found)
