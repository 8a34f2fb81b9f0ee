"""Producer ids: no id is given out twice in a log directory, by kstore or by a broker."""

from __future__ import annotations

import os
from threading import Lock
from typing import Final

from kstore.engine.io.directory import write_whole
from kstore.engine.io.file import read_whole
from kstore.errors import CorruptCheckpointError

NAME: Final = "kstore-producer-ids"  # the first id that is not reserved, as text; a broker ignores the file
FIRST: Final = 2**62  # a broker counts from 0, and its count is in the metadata of the cluster
_BLOCK: Final = 1_000


class ProducerIds:
    """The producer ids of a log directory. They are reserved in blocks: a file has the end of the last block
    before one of its ids is used, so a crash skips ids."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._path = os.path.join(directory, NAME)
        self._lock = Lock()
        self._next = self._end = 0

    def next(self, above: int = 0) -> int:
        """An id that was never used, and that is greater than `above`. CorruptCheckpointError, OSError."""
        with self._lock:
            if not self._next:
                self._next = self._end = self._reserved()
            self._next = max(self._next, above + 1)
            if self._next >= self._end:
                end = self._next + _BLOCK
                write_whole(self._path, b"%d\n" % end)
                self._end = end
            self._next += 1
            return self._next - 1

    def _reserved(self) -> int:
        try:
            text = read_whole(self._path, 100)
        except FileNotFoundError:  # perhaps it is lost, so begin where hardly any id was given out
            from secrets import randbelow  # rarely needed, and slow to import

            return FIRST + randbelow(2**61)
        try:
            found = int(text)
        except ValueError:
            found = -1
        if not FIRST <= found < 2**63 - _BLOCK:
            raise CorruptCheckpointError(
                "producer ids", file=self._path, expected="one number of at least 2^62", found=text
            )
        return found
