"""Where a follower gets new batches from: a log written by this process, or a directory written by
another."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kstore.engine.io.file import Traffic
from kstore.engine.io.notification import MODIFY, EventFd, Inotify
from kstore.engine.scan.batch_reader import BatchReader
from kstore.engine.segment.active_segment import followed
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptRecordError, LogChangedError, LogNotFoundError, OffsetOutOfRangeError
from kstore.log.files import layout
from kstore.log.files.log_dir_state import directory_of
from kstore.log.files.truncations import Truncations, read_truncations
from kstore.log.read.changed import MOST_LOOKS, is_being_cut
from kstore.log.recovery.continuity import Mark, kept_before, mark_sought

if TYPE_CHECKING:
    from kstore.log.recovery.loader import Loaded

_INDEX_AFTER = 16 << 20  # so many bytes may lie behind the indexes before they are brought up to date


class Followed(Protocol):
    """What a source asks of the log that is followed."""

    path: str
    _closed: bool
    _truncations: Truncations
    _traffic: Traffic | None

    def last_stable_offset(self) -> int: ...
    def refresh(self) -> bool: ...
    def _now(self) -> "Loaded": ...
    def _truncations_now(self) -> Truncations: ...
    def _remember_told(self, end: int, now: "Loaded") -> None: ...
    def _range(
        self, now: "Loaded", start: int | None, stop: int | None, isolation: str
    ) -> tuple[tuple[Segment, ...], int, int, list[tuple[int, int, int]] | None]: ...


class Found:
    """A reader of new batches, and the offset that is reached with it."""

    def __init__(self, segments: tuple[Segment, ...], reader: BatchReader, stop: int) -> None:
        self.segments = segments
        self.reader = reader
        self.stop = stop


def is_cut(segments: tuple[Segment, ...]) -> bool:
    """Whether a file has become shorter than what its segment shows of it."""
    try:
        return any(s.file().size() < s.origin + s.size for s in segments)
    except FileNotFoundError:
        return True


def change_of_cut(segments: tuple[Segment, ...], offset: int) -> LogChangedError:
    """What to say of the file that has become shorter, for who has come to an offset."""
    segment = next((s for s in segments if is_cut((s,))), segments[-1])
    return LogChangedError(segment.path, offset, segment.base_offset, segment.base_offset, "it was cut off")


def traces_of(segments: tuple[Segment, ...]) -> tuple[tuple[int, int, int], ...]:
    """What tells that files of segments, or what their names stand for, were changed."""
    found = []
    for segment in segments:
        try:
            stat = os.stat(segment.path)  # noqa: PTH116 - the path is a str
        except FileNotFoundError:
            found.append((0, 0, 0))
        else:
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def directory_at(path: str) -> tuple[int, int]:
    """Which directory a name stands for now. LogNotFoundError, OSError."""
    try:
        found = os.stat(path)  # noqa: PTH116 - the path is a str
    except FileNotFoundError:
        raise LogNotFoundError(f"no partition directory at {path}") from None
    return found.st_dev, found.st_ino


def check_directory(path: str, known: tuple[int, int]) -> None:
    """LogNotFoundError where the partition that was followed is another one of that name now: its offsets are
    others."""
    if directory_at(path) != known:
        raise LogNotFoundError(f"{path} was deleted, or made anew, since it was followed")


class Reached:
    """Up to where a log is what a follower has read of it."""

    def __init__(self, log: Followed, isolation: str) -> None:
        self._log = log
        self._isolation = isolation
        self.seen = log._truncations.number  # the truncations that were before what was read
        self._is_noted = False  # that there was another one since the last comparison
        self._kept = -1  # it is only known up to there, if that is not -1
        self._is_exact = False  # and from there on it is not
        self._unsettled = 0  # how many comparisons said nothing

    def take_in(self, position: int) -> None:
        """What the log tells of its truncations."""
        truncations = self._log._truncations
        if truncations.number == self.seen:
            return
        self._is_noted = self._is_noted or truncations.number > self.seen
        cut = truncations.since(self.seen, self._isolation)
        if 0 <= cut < position and (self._kept < 0 or cut < self._kept):
            self._kept, self._is_exact = cut, True
        self.seen = truncations.number

    def compare(
        self, position: int, before: Sequence[Segment], end: int, now: "Loaded", mark: Mark | None
    ) -> bool:
        """What was read with what is there now: nobody tells of an older copy, or of what a broker has done.
        False if the log was truncated meanwhile: then it says nothing, and the log has to be looked at again.
        OSError."""
        if self._kept >= 0:
            return True
        cut = self._log._truncations.shown_by(now.log_end_offset, self._isolation)
        if 0 <= cut < position:
            self._kept, self._is_exact = cut, True
            return True
        is_noted, self._is_noted = self._is_noted, False
        # the note tells more than files that were written over
        if is_noted and position <= now.log_end_offset:
            return True
        kept = kept_before(position, before, end, now, mark)
        if kept >= 0 and self._unsettled < MOST_LOOKS and is_being_cut(self._log):
            self._unsettled += 1
            return False
        self._kept, self._unsettled = kept, 0
        return True

    @property
    def is_lost(self) -> bool:
        """Whether the log is known to be another one below a position that was asked of."""
        return self._kept >= 0

    def check(self, position: int, now: "Loaded") -> None:
        """OffsetOutOfRangeError if the position was deleted or truncated away, or if what lies before it was
        replaced."""
        first, end = now.log_start_offset, now.log_end_offset
        kept = max(self._kept, first) if self._kept >= 0 else -1
        is_replaced = 0 <= kept < min(position, end)
        if not is_replaced and first <= position <= end:
            # What was replaced, if anything, has been deleted since, and nothing of it is read from here on.
            self._kept = -1
            return
        # the log was cut below the position, and may have grown since: nobody knows where the cut was
        ends_before = end < position and not self._is_exact
        error = OffsetOutOfRangeError(position, first, kept if is_replaced and not ends_before else end)
        error._is_exact = self._is_exact
        self._log._remember_told(error.end, now)
        if is_replaced:
            error.add_note(
                f"the log, which ends at {end}, was cut off after more of it had been read. Up to offset {kept} it is what it "
                "was; behind it there may be others: to miss none of them, go on there"
            )
        raise error


def _found(
    log: Followed,
    now: "Loaded",
    offset: int,
    isolation: str,
    on_error: str,
    mark: Mark | None,
    *,
    is_in_doubt: bool,
) -> Found | None:
    """What a view of a log has from an offset on for this isolation. Who skips what is damaged has to know
    what came before."""
    is_behind = mark is not None and mark[0] == offset - 1
    begin = offset
    # from the batch before on: else one whose last offset is wrong would not be looked at
    if is_in_doubt and is_behind and on_error == "raise":
        begin, is_behind = offset - 1, False
    segments, begin, stop, aborted = log._range(now, begin, None, isolation)
    if stop <= offset:
        return None
    reader = BatchReader(
        segments,
        begin,
        stop,
        end_offset=now.log_end_offset,
        aborted=aborted,
        on_error=on_error,
        traffic=log._traffic,
        after=offset - 1 if on_error == "skip" and is_behind else -1,
    )
    return Found(segments, reader, stop)


class FollowSource(Protocol):
    """What a follower asks of either."""

    @property
    def path(self) -> str:
        """The directory of the log."""

    @property
    def watch(self) -> Inotify | None:
        """What tells of changes beside the event; None where nothing does."""

    @property
    def told(self) -> bool:
        """Whether the event or the watch tells of every change; where not, it must be asked again and
        again."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""

    @property
    def truncations_seen(self) -> int:
        """The number of the last truncation that was before all that is read now."""

    def arm(self, event: EventFd) -> None:
        """Has the event set at the next change, unless the watch tells of it."""

    def look(self) -> None:
        """Takes in what the watch tells."""

    def doubt(self) -> None:
        """Something may have changed of which nobody told."""

    def is_truncated(self) -> bool:
        """Whether the log was truncated since `read` gave a reader: what it reads from a file now may be what
        came instead. OSError."""

    def read(
        self, offset: int, on_error: str = "raise", mark: Mark | None = None, *, is_in_doubt: bool = False
    ) -> Found | None:
        """What there is from an offset on that was reached, behind the batch that the mark tells, if one was
        read; None for nothing. If that is in doubt, because of an error, from the batch before it on.
        OffsetOutOfRangeError."""

    def mark_sought(self, offset: int) -> Mark | None:
        """Of the batch before the offset at which a follower begins; None if nobody asks for it."""


class WriterSource:
    """A log that this process writes: every change sets the event."""

    watch: Inotify | None = None
    told = True

    def __init__(
        self,
        log: Followed,
        current: "Callable[[], Loaded]",
        notify: Callable[[EventFd], None],
        isolation: str,
    ) -> None:
        self._log = log
        self._reached = Reached(log, isolation)
        self._current = current
        self._notify = notify
        self._isolation = isolation

    @property
    def path(self) -> str:
        return self._log.path

    @property
    def ended(self) -> bool:
        return self._log._closed

    @property
    def truncations_seen(self) -> int:
        return self._reached.seen

    def arm(self, event: EventFd) -> None:
        self._notify(event)

    def look(self) -> None:
        pass

    def doubt(self) -> None:
        pass

    def is_truncated(self) -> bool:
        return self._log._truncations.number != self._reached.seen

    def read(
        self, offset: int, on_error: str = "raise", mark: Mark | None = None, *, is_in_doubt: bool = False
    ) -> Found | None:
        now = self._current()
        self._reached.take_in(offset)  # behind it: what it shows was not cut before
        self._reached.check(offset, now)
        if offset == now.log_end_offset:
            return None
        return _found(self._log, now, offset, self._isolation, on_error, mark, is_in_doubt=is_in_doubt)

    def mark_sought(self, offset: int) -> Mark | None:
        return None


class DirectorySource:
    """A directory that any process may write. inotify says what has changed.

    Where it is only that the last segment has grown, the new bytes alone are looked at; everything else makes
    the log refresh its view. So do transactions where only what is committed is read.
    """

    def __init__(self, log: Followed, isolation: str, path: "Path") -> None:
        self.path = log.path
        self._log = log  # a view of the follower's own
        self._shown = log._now()  # what of it was compared last with what was read
        self._reached = Reached(log, isolation)
        self._directory = directory_at(str(path))
        self._isolation = isolation
        self._settled = False  # no transaction is open, or none matters
        self._stale = True  # what happened before the watch began
        self._grown = False
        self._truncated = False  # says the watch
        self._unindexed = 0
        self._segment: Segment | None = None
        self._end = -1
        self.ended = False
        self.watch: Inotify | None = None
        self._partition = -1
        try:
            watch = Inotify()
            self._partition = watch.add(str(path))
            home = directory_of(path)  # the log start offset is kept there
            if home != path:
                watch.add(str(home))
            self.watch = watch
        except FileNotFoundError:
            raise LogNotFoundError(f"no partition directory at {path}") from None
        except OSError:
            pass  # no inotify, or all of it taken: the follower asks again and again

    @property
    def told(self) -> bool:
        return self.watch is not None

    @property
    def truncations_seen(self) -> int:
        return self._reached.seen

    def arm(self, event: EventFd) -> None:
        pass

    def doubt(self) -> None:
        self._stale = True

    def look(self) -> None:
        if self.watch is None:
            self._grown = True
            return
        last = None if self._segment is None else f"{self._segment.stem}.log"
        try:
            for directory, bits, name in self.watch.read_events():
                if directory == self._partition and name.endswith(".log"):
                    if name == last and bits == MODIFY:
                        self._grown = True
                    else:
                        self._stale = True
                elif name == layout.TRUNCATIONS or not name or directory < 0:
                    self._stale = self._truncated = True
                elif name in (layout.LOG_STARTS, layout.RECOVERY_POINTS):
                    self._stale = True
        except BaseException:  # an interrupt: nobody tells the rest once more
            self._stale = self._truncated = True
            raise

    def is_truncated(self) -> bool:
        if self.watch is None:
            return read_truncations(Path(self.path)).number != self._reached.seen
        self.look()
        return self._truncated

    def read(
        self, offset: int, on_error: str = "raise", mark: Mark | None = None, *, is_in_doubt: bool = False
    ) -> Found | None:
        if on_error == "skip" or (self._grown and not self._settled):
            self._grown, self._stale = False, True
        if not self._stale and self._grown:
            found = self._read_grown(offset)
            if found is not None or not self._stale:
                return found
        is_new = self._stale
        if is_new:
            self._refresh(offset, mark)
        if is_new or self._reached.is_lost:
            self._reached.check(offset, self._log._now())
        if offset >= self._end:
            return None
        return _found(
            self._log, self._log._now(), offset, self._isolation, on_error, mark, is_in_doubt=is_in_doubt
        )

    def mark_sought(self, offset: int) -> Mark | None:
        return mark_sought(self._shown, offset)

    def _read_grown(self, offset: int) -> Found | None:
        """What was appended to the last segment."""
        segment = self._segment
        if segment is None or offset != self._end:
            self._stale = True
            return None
        position = segment.size
        try:
            grown, last = followed(segment, offset - 1)
        except LogChangedError:  # it was truncated, and has grown again
            self._stale = True
            return None
        if grown is segment:
            self._grown = False
            # it was truncated; or it was preallocated
            self._stale = segment.file().size() != segment.origin + position
            return None
        if self._is_committed() and not self._is_plain(
            BatchReader((grown,), offset, first_position=position)
        ):
            self._grown, self._stale = False, True
            return None
        self.look()  # behind it: it may be cut off, and what was read be new
        self._stale = self._stale or (self.watch is None and self.is_truncated())
        if self._stale:
            return None
        self._segment, self._end = grown, last + 1
        self._unindexed += grown.size - position
        if self._unindexed > _INDEX_AFTER:
            self._stale = True
        reader = BatchReader(
            (grown,), offset, first_position=position, end_offset=self._end, traffic=self._log._traffic
        )
        return Found((grown,), reader, self._end)

    def _refresh(self, offset: int, mark: Mark | None) -> None:
        before = self._shown
        segments, end = before.segments, before.log_end_offset
        if self._segment is not None:
            segments, end = (*segments[:-1], self._segment), self._end
        is_settled = False
        while not is_settled:
            self._truncated = False  # before it: what is told from here on may come after what is shown then
            self._log.refresh()
            check_directory(self.path, self._directory)  # after it: what was read is of this directory
            now = self._log._now()
            self._reached.take_in(offset)
            is_settled = now is before or self._reached.compare(offset, segments, end, now, mark)
        last = now.segments[-1] if now.segments else None
        # at once: one tells of the others
        self._shown, self._segment, self._end = now, last, now.log_end_offset
        self._unindexed = 0
        self._settled = not self._is_committed() or self._log.last_stable_offset() == self._end
        self._stale = self._grown = False  # last: who is interrupted before looks again

    def _is_plain(self, reader: BatchReader) -> bool:
        """Whether no batch belongs to a transaction."""
        try:
            return not any(batch.is_transactional for batch in reader)
        except (FileNotFoundError, CorruptRecordError):
            return False  # something has changed: another look tells what

    def _is_committed(self) -> bool:
        return self._isolation == "read_committed"
