"""A .log file that another log wrote, taken into the directory of this one, with the offsets and the leader
epoch that it has there.

It is moved under a name of its own first, then changed, and gets the name of a segment last. So the file that
others know is there unchanged, or gone; and whoever finds one that is half changed can go on, for what it
becomes does not depend on what offsets it has.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

from kstore.arguments import INDEX_INTERVAL_BYTES
from kstore.engine.io.directory import rename, sync_directory
from kstore.engine.io.file import File
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, InvalidRecordError
from kstore.libraries import library
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.listing import is_there, read_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kstore.engine.segment.walks import RecoveryWalk

_PLACE = struct.Struct(">qii")  # base offset, length, leader epoch: no checksum covers them
_NAME = r"kstore-adopting-(\d{1,19})-(\d{1,10})\.log\.moved"


class AdoptedFile:
    """The file of another log on its way into a partition directory, to be the segment that begins with a
    base offset."""

    def __init__(self, path: str) -> None:
        """Looks at it, and changes nothing. Only batches of format v2 without producers, which need not
        account for, in a file that has no other name. CorruptRecordError, InvalidRecordError, ValueError,
        OSError."""
        if _has_links(path):
            raise ValueError(f"{path} has other names (hard links), and what they name would be changed too")
        self.path, self.draft = path, ""
        self.headers = headers = _headers(path)
        found = _segment(path, int(headers["base_offset"][0]) if len(headers) else 0).recovery_walk()
        if found.error is not None:
            raise found.error
        if (headers["magic"] != 2).any() or (headers["producer_id"] >= 0).any():
            raise InvalidRecordError(f"{path} has batches of a producer, or of an old format")
        if not len(headers):
            raise InvalidRecordError(f"{path} has no records")

    def become(
        self, directory: str, base_offset: int, leader_epoch: int, index_interval_bytes: int
    ) -> RecoveryWalk:
        """Makes it a segment of the log in this directory, durably, and returns what is in it. If this
        process dies meanwhile, `finish_adoptions` goes on. OSError."""
        self.draft = f"{directory}/kstore-adopting-{base_offset}-{leader_epoch}.log{layout.MOVED}"
        rename(self.path, self.draft)
        # Whoever finds it under its old name after a power cut must find it as it was.
        sync_directory(directory)
        sync_directory(os.path.dirname(self.path) or ".")
        _renumber(self.draft, self.headers, base_offset, leader_epoch)
        path = _final_path(directory, base_offset)
        rename(self.draft, path)
        # Before anything is appended to it: `finish_adoptions` takes in what is whole.
        sync_directory(directory)
        return _segment(path, base_offset, index_interval_bytes).recovery_walk(verify=False)

    def put_back(self) -> bool:
        """Gives it its offsets and its name back, if it was on its way. Whether it is where it was: else it
        is a segment. OSError."""
        if is_there(self.draft):
            bases, epochs = (self.headers[name].tolist() for name in ("base_offset", "leader_epoch"))
            _write_places(self.draft, self.headers, bases, epochs)
            rename(self.draft, self.path)
        return is_there(self.path)


def _renumber(path: str, headers: Any, base_offset: int, leader_epoch: int) -> None:
    """Changes the headers of the batches in place, durably. Done again, also after it was broken off, it
    gives the same: of `headers` it takes what it does not change. OSError."""
    numpy = library("numpy")  # only for those who ask for this
    nexts = base_offset + numpy.cumsum(headers["last_offset_delta"] + numpy.int64(1))
    bases = nexts - headers["last_offset_delta"] - 1
    _write_places(path, headers, bases.tolist(), [leader_epoch] * len(bases))


def finish_adoptions(directory: str) -> Iterator[tuple[str, CorruptFileError | None]]:
    """Takes the files in that a dead process was moving into this log, whose writer asks. The path of each,
    and why it was not taken, if it was not. OSError."""
    for name in sorted(read_directory(directory, (".log",))[1]):
        known = re.fullmatch(_NAME, name)
        if known is None:
            continue
        draft, base_offset, leader_epoch = f"{directory}/{name}", int(known[1]), int(known[2])
        path = _final_path(directory, base_offset)
        try:
            if _is_in_use(directory, base_offset):
                raise CorruptFileError("its offsets have been given to other records since", file=draft)
            if _has_links(draft):  # its old name, if that came back after a power cut
                raise CorruptFileError("it has other names (hard links)", file=draft)
            _renumber(draft, _headers(draft), base_offset, leader_epoch)
        except CorruptFileError as e:
            yield draft, e
            continue
        rename(draft, path)
        sync_directory(directory)
        yield path, None


def _has_links(path: str) -> bool:
    return os.stat(path).st_nlink > 1


def _is_in_use(directory: str, base_offset: int) -> bool:
    """Whether there are records from that offset on, or segments."""
    newest = max(read_directory(directory, (".log",))[0], default=-1)
    return newest > base_offset or (
        newest == base_offset and Path(_final_path(directory, newest)).stat().st_size > 0
    )


def _final_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{layout.segment_stem(base_offset)}.log"


def _segment(path: str, base_offset: int, index_interval_bytes: int = INDEX_INTERVAL_BYTES) -> Segment:
    directory, name = os.path.split(path)
    suffixes = {".log": layout.MOVED} if name.endswith(layout.MOVED) else None
    stem = name.removesuffix(layout.MOVED).removesuffix(".log")
    return Segment(directory, stem, base_offset, suffixes=suffixes, index_interval_bytes=index_interval_bytes)


def _headers(path: str) -> Any:
    """Of all its batches. CorruptRecordError, OSError."""
    return _segment(path, 0).read_headers()


def _write_places(path: str, headers: Any, bases: list[int], epochs: list[int]) -> None:
    file = File(path, "r+")
    sizes, positions = headers["size"].tolist(), headers["position"].tolist()
    for position, size, base, epoch in zip(positions, sizes, bases, epochs, strict=True):
        file.write(position, _PLACE.pack(base, size - 12, epoch))
    file.sync()
