"""The state file of a check that can be resumed: segments that were found whole."""

from __future__ import annotations

import base64
import json
import os
import threading

from kstore.checking.segment_facts import Place, SegmentFacts, producers_from
from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kstore.engine.segment.segment import Segment

_HEAD = "kstore check 1"
_PLACES = ("gaps", "inner_gaps")


class CheckState:
    """One line for each segment that was found whole, with the size, the time of change and the inode of its
    files. A segment whose files are as they were is not read again."""

    def __init__(self, path: str) -> None:
        """Read the file, or create it. CorruptFileError if it is another one, OSError."""
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, Any]] = {}
        is_new = not os.path.lexists(path)
        self._file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - closed by `close`
        if is_new:
            self._file.write(f"{_HEAD}\n")
            self._file.flush()
        self._file.seek(0)
        lines = self._file.read().splitlines()
        if lines[:1] != [_HEAD]:
            self._file.close()
            raise CorruptFileError(
                "state of a check", file=path, position=0, expected=_HEAD, found="".join(lines[:1])[:80]
            )
        for line in lines[1:]:
            try:
                entry = json.loads(line)
                self._known[entry["path"]] = entry
            except (ValueError, KeyError, TypeError):  # the end of a line is missing after a crash
                continue

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def reader(self, read: Callable[[Segment], SegmentFacts]) -> Callable[[Segment], SegmentFacts]:
        """A function that reads a segment, unless it is known to be whole."""

        def read_or_recall(segment: Segment) -> SegmentFacts:
            stamp = _stamp_of(segment)
            entry = self._known.get(os.path.abspath(segment.path))
            if entry is not None and entry["stamp"] == stamp and entry["size"] == segment.size:
                return _recalled(segment, entry)
            facts = read(segment)
            if facts.is_whole:
                text = json.dumps(_entry_of(facts, stamp))
                with self._lock:
                    self._file.write(f"{text}\n")
                    self._file.flush()
            return facts

        return read_or_recall


def _stamp_of(segment: Segment) -> list[list[int]]:
    stamp = []
    for kind in layout.SEGMENT_KINDS:
        try:
            status = os.stat(segment.path_of(kind))
            stamp.append([status.st_size, status.st_mtime_ns, status.st_ino])
        except OSError:
            stamp.append([-1, -1, -1])
    return stamp


def _entry_of(facts: SegmentFacts, stamp: list[list[int]]) -> dict[str, Any]:
    fields = facts._asdict()
    for name in (
        "segment",
        "skipped",
        "errors",
        "late",
        "early",
        "index_faults",
        "kind",
        "producers",
        "unread",
    ):
        del fields[name]
    rows = facts.producers
    producers = base64.b64encode(rows.tobytes()).decode() if len(rows) else ""
    return {"path": os.path.abspath(facts.segment.path), "stamp": stamp, "producers": producers, **fields}


def _recalled(segment: Segment, entry: dict[str, Any]) -> SegmentFacts:
    fields = {name: value for name, value in entry.items() if name not in ("path", "stamp", "producers")}
    for name in _PLACES:
        fields[name] = tuple(Place(*place) for place in fields[name])
    fields["epochs"] = tuple(tuple(epoch) for epoch in fields["epochs"])
    return SegmentFacts(
        segment=segment,
        skipped=(),
        errors={},
        late=(),
        early=(),
        index_faults=(),
        kind="",
        producers=producers_from(base64.b64decode(entry["producers"])),
        **fields,
    )
