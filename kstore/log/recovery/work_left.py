"""The amount of work for recovery in a log whose directory was not closed cleanly: often none.

A store closes idle logs. If it is killed, most of its logs were closed before. A broker would open and close
each of them, which writes and syncs new files without need.
"""

from __future__ import annotations

from bisect import bisect_right

from kstore.arguments import INDEX_INTERVAL_BYTES
from kstore.engine.io.file import read_whole
from kstore.engine.segment.active_segment import walk_on
from kstore.errors import CorruptFileError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import checkpoints, layout
from kstore.log.files.listing import scan_directory
from kstore.log.recovery.segment_factory import SegmentFactory

if TYPE_CHECKING:
    from kstore.engine.segment.segment import Segment
    from kstore.log.files.log_dir_state import State

_SMALL = 1 << 16  # bytes of a segment that is checked as a whole
_WIDTHS = {".index": 8, ".timeindex": 12}
_LEFT_BEHIND = (".deleted", ".cleaned", ".swap", ".tmp")


def work_left(path: str, state: State, index_interval_bytes: int = INDEX_INTERVAL_BYTES) -> int:
    """The number of bytes that recovery must read. 0 if it would change nothing and the log is synced: the
    log ends at its recovery point, and nothing follows. Batches below it were flushed and are not checked, as
    after a clean stop. A partition that was moved into the log directory is opened once in any case, to get a
    line in the checkpoints. OSError."""
    sizes: dict[str, int] = {}
    is_tidy = True
    with scan_directory(path) as entries:
        for entry in entries:
            is_tidy = is_tidy and not entry.name.endswith(_LEFT_BEHIND)
            if entry.name.endswith((*layout.SEGMENT_KINDS, ".snapshot")):
                sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
    if not sizes and is_tidy and not state.by_itself and state.recovery_point == state.log_start_offset == 0:
        return 0  # it was created and never opened
    bases = sorted(
        base for name in sizes if name.endswith(".log") and (base := layout.segment_offset(name)) is not None
    )
    if is_tidy and bases and not state.by_itself and _is_complete(sizes, bases):
        stem = layout.segment_stem(bases[-1])
        last = SegmentFactory(path, index_interval_bytes)(stem, bases[-1])
        if _is_as_closed(path, last, sizes, state):
            return 0
    if state.clean:
        return 1  # recovery reads no batch
    first = max(bisect_right(bases, state.recovery_point) - 1, 0)
    return 1 + sum(sizes[f"{layout.segment_stem(base)}.log"] for base in bases[first:])


def _is_complete(sizes: dict[str, int], bases: list[int]) -> bool:
    """Whether each segment has its indexes, and each index its segment."""
    stems = set(map(layout.segment_stem, bases))
    return all(f"{stem}{kind}" in sizes for stem in stems for kind in _WIDTHS) and all(
        name.endswith(".snapshot") or name.partition(".")[0] in stems for name in sizes
    )


def _is_as_closed(path: str, last: Segment, sizes: dict[str, int], state: State) -> bool:
    """Whether the log ends at its recovery point, and its last segment has the files that closing writes."""
    point = state.recovery_point
    if point > state.log_start_offset and f"{layout.segment_stem(point)}.snapshot" not in sizes:
        return False
    if any(sizes[last.stem + kind] % width for kind, width in _WIDTHS.items()):
        return False
    try:
        found = last.recovery_walk() if last.size <= _SMALL else walk_on(last, point)
        epochs = (
            checkpoints.read_epochs(f"{path}/{layout.LEADER_EPOCHS}") if found and found.leader_epochs else []
        )
    except (CorruptFileError, FileNotFoundError):
        return False
    if found is None or found.error is not None or max(found.next_offset, state.log_start_offset) != point:
        return False
    indexes = {".index": found.offset_index, ".timeindex": found.time_index}
    return (
        all(sizes[last.stem + kind] == _WIDTHS[kind] * len(index) for kind, index in indexes.items())
        and all(read_whole(last.path_of(kind)) == index.to_bytes() for kind, index in indexes.items())
        and {epoch for epoch, _ in found.leader_epochs} <= {epoch for epoch, _ in epochs}
    )
