"""Making the .keys files of sealed segments: a file beside each that tells where the last record of every key
is."""

from __future__ import annotations

import contextlib
import time

from kstore.arguments import MAX32
from kstore.engine.compact.last_offsets import KeyFile, MapBuilder, OffsetMap, packed
from kstore.engine.io.directory import new_draft, rename, unlink
from kstore.errors import CorruptFileError, LogChangedError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.later import later
from kstore.log.read.key_index import SLOT_BYTES, Everything, index_of, marks_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kstore.engine.segment.segment import Segment
    from kstore.log.compact.segment_rewriter import SegmentRewriter
    from kstore.log.compact.throttle import Throttle
else:
    later(globals(), {"kstore.log.compact.throttle": "Throttle"})

_TICK_NS = 20_000_000  # two changes of a file that lie so far apart have different times on every file system


class KeyFileReport(NamedTuple):
    """The result of make_key_files() for one segment, the one at `base_offset`.

    `keys` is the number of keys in its .keys file, `size` the bytes of that file. If there is no file, `keys`
    is -1 and `reason` is the reason, such as too many keys for log_cleaner_dedupe_buffer_size, or a damaged
    batch. `made`: whether the file was made by this call.
    """

    base_offset: int
    keys: int
    size: int
    made: bool
    reason: str


def make_key_files(rewriter: SegmentRewriter) -> list[KeyFileReport]:
    """Makes those that are missing. What is made of a segment must not outlive bytes that are not on the disk
    yet, so these are brought there first. OSError, LogClosedError."""
    return list(filter(None, (_made(rewriter, segment, rewriter.check) for segment in _ready(rewriter))))


def make_missing(rewriter: SegmentRewriter, check: Callable[[], None]) -> None:
    """Like `make_key_files`, for repeated maintenance: a file that fits counts without being read as a whole,
    and segments that could not get one are skipped. `check` is called now and then, and raises what ends
    it."""
    check()
    for segment in _ready(rewriter):
        index = index_of(segment)
        if not index.gets_none and not index.has_file(segment):
            done = _made(rewriter, segment, check)
            index.gets_none = done is not None and done.keys < 0


def _ready(rewriter: SegmentRewriter) -> list[Segment]:
    rewriter.check()
    rewriter.segments.log_end.sync_sealed()
    return rewriter.segments.sealed()


def _made(rewriter: SegmentRewriter, segment: Segment, check: Callable[[], None]) -> KeyFileReport | None:
    """None of a segment that was deleted meanwhile."""
    with rewriter.alone():  # a compaction need not wait for more than one segment, nor who closes the log
        check()
        with contextlib.suppress(LogChangedError):
            return _Making(rewriter, segment, check).run()
    return None


class _Making:
    """Of one file."""

    def __init__(self, rewriter: SegmentRewriter, segment: Segment, check: Callable[[], None]) -> None:
        self._log = rewriter.segments
        self._check = check
        self._segment = segment
        self._path = segment.path_of(layout.KEYS)
        self._marks = marks_of(segment)

    def run(self) -> KeyFileReport:
        there = self._there()
        if there is not None:
            return there
        ahead = self._marks.ctime_ns + _TICK_NS - time.time_ns()
        if ahead > _TICK_NS:
            return self._none("its .log was changed later than now, by the clock")
        if ahead > 0:  # a change while it is read gives it another time then
            time.sleep(ahead / 1e9)
        try:
            keys = self._read()
        except CorruptFileError as e:
            return self._none(str(e))
        if keys is None:
            return self._none("its keys do not fit into log_cleaner_dedupe_buffer_size")
        content = packed(keys, self._marks)
        if not self._put(content):
            return self._none("it was changed meanwhile")
        return KeyFileReport(self._marks.base_offset, len(keys), len(content), True, "")

    def _none(self, reason: str) -> KeyFileReport:
        return KeyFileReport(self._marks.base_offset, -1, 0, False, reason)

    def _there(self) -> KeyFileReport | None:
        """Of a file that is there and sound."""
        with contextlib.suppress(OSError, CorruptFileError):
            file = KeyFile(self._path)
            if file.marks == self._marks and (keys := file.count()) >= 0:
                return KeyFileReport(self._marks.base_offset, keys, file.size, False, "")
        return None

    def _read(self) -> OffsetMap | None:
        """The keys of the segment; None if they do not fit. CorruptFileError."""
        config, segment = self._log.config, self._segment
        throttle = Throttle(config.log_cleaner_io_max_bytes_per_second, self._check)
        keys = OffsetMap(
            min(config.log_cleaner_dedupe_buffer_size, MAX32) // SLOT_BYTES,
            most_keys=segment.end_offset - segment.base_offset,
            places=True,
        )
        builder = MapBuilder(keys, Everything(), segment.base_offset)
        builder.open(segment, 0)
        while done := builder.run(throttle.step):
            throttle.passed(done)
        return None if builder.is_full or builder.is_far else keys

    def _put(self, content: bytes) -> bool:
        """Writes the file, and gives it its name if the segment is what it was. OSError."""
        draft = self._segment.path_of(layout.KEYS_DRAFT)
        try:
            file = new_draft(draft, self._segment.path)
            file.write(0, content)
            file.sync()
            with self._log.log_end.held():
                self._log.check_place()
                sealed = any(segment is self._segment for segment in self._log.sealed())
                if sealed and marks_of(self._segment) == self._marks:
                    rename(draft, self._path)
                    index_of(self._segment).use(KeyFile(self._path))
                    return True
            return False
        finally:
            with contextlib.suppress(OSError):  # the next opening does it too
                unlink(draft, missing_ok=True)
