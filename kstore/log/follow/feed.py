"""Reading on from a position of a log: the loop of followers, cursors, share groups and readers of topics."""

from __future__ import annotations

from kstore.errors import LogChangedError, LogClosedError, OffsetOutOfRangeError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.follow.position import diverged_at, position_in
from kstore.log.read.left_out import LeftOut
from kstore.log.view.run import reader_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from kstore.engine.scan.batch_reader import BatchReader, RecordReader, Skipped
    from kstore.engine.scan.column_scanner import CursorBatches
    from kstore.log.follow.position import Position
    from kstore.log.follow.sources import Source
    from kstore.log.view.log_view import LogView

    # Reads a part of a view once. `change` says that it ended early: a file is no longer what the view shows.
    Run: TypeAlias = CursorBatches | RecordReader | BatchReader
    Read: TypeAlias = Callable[[LogView, int, int], Run]  # makes the run of a range of a view


def read_by(kind: type[RecordReader | BatchReader], isolation: str, on_error: str) -> Read:
    """Reads the records, or the batches, of a view."""
    return lambda view, start, stop: reader_of(
        kind, view, start, stop, isolation, on_error, ends_at_change=True
    )


def _hint(offset: int | str) -> str:
    return f"Another reader goes on at {offset} with what is there"


class Feed:
    """Reads on from a position of a log, view after view.

    A view never changes; when it is read to its end, or a file of it is gone, the next one is taken from the
    source. Before that is read, it is compared with the position: see `diverged_at`. `hint(offset)` says in a
    note of an error how to go on at an offset, or at "earliest". For one thread at a time; `close` may be
    called from any.
    """

    def __init__(
        self,
        source: Source,
        position: Position,
        isolation: str,
        left_out: LeftOut | None = None,
        hint: Callable[[int | str], str] = _hint,
    ) -> None:
        self.source = source
        self.view = source.known
        self.isolation = isolation
        self.is_closed = False
        self._left_out = left_out or LeftOut()
        self._hint = hint
        self._position = position
        self._given = position.offset
        self._error_generation: int | None = None  # that of the log when `_check` raised an error last
        self._run: Run | None = None

    # ---- where it is ---------------------------------------------------------------------------------------

    @property
    def offset(self) -> int:
        """The offset of the next record. Any thread may ask while another one reads."""
        run = self._run  # first: stop() sets the position before it drops the run
        if run is not None and run.next_offset >= 0:
            return run.next_offset
        return self._position.offset

    @property
    def position(self) -> Position:
        """The position of the next record."""
        offset = self.offset
        if offset == self._position.offset:
            return self._position
        return position_in(self.view.snapshot, offset)

    @property
    def given(self) -> int:
        """The offset behind the last record that was given; markers of transactions may follow."""
        run = self._run
        return run.next_offset if run is not None and run.next_offset >= 0 else self._given

    @property
    def skipped(self) -> list[Skipped]:
        """The damage that on_error="skip" has passed over so far."""
        if self._run is not None:
            self._left_out.note(self._run.skipped)
        return self._left_out.listed()

    def position_of(self, offset: int) -> Position:
        """The position at an offset that was read. OffsetOutOfRangeError behind the end of the log."""
        view = self.view
        if offset > view.log_end_offset:
            view = self.source.view()
            if offset > view.log_end_offset:
                raise OffsetOutOfRangeError(offset, view.log_start_offset, view.log_end_offset)
        return self.position if offset == self.offset else position_in(view.snapshot, offset)

    def go_to(self, position: Position) -> None:
        """Continues at another position."""
        self.stop()
        self._position, self._given = position, position.offset

    def seek(self, view: LogView, offset: int, *, is_number: bool) -> None:
        """Continues at an offset of a view. `is_number`: the caller may have taken the offset from an error,
        and the log may have been truncated again since."""
        position = position_in(view.snapshot, offset)
        if is_number and self._error_generation is not None:
            position = position._replace(generation=self._error_generation)
        self.stop()
        self.view = view
        self._error_generation = None
        self._position, self._given = position, offset

    def stop(self) -> None:
        """Ends the run of this moment. The position stays."""
        run = self._run
        if run is not None:
            run.stop()
            position, given = self.position, self.given
            self._left_out.note(run.skipped)
            self._position, self._given, self._run = position, given, None

    def close(self) -> None:
        """Ends the reading; from any thread."""
        self.is_closed = True
        run = self._run
        if run is not None:
            run.stop()

    # ---- reading -------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """LogClosedError if it was closed."""
        if self.is_closed:
            raise LogClosedError(f"the reader of {self.source.path} is closed")

    def refresh(self) -> bool:
        """Takes the log as it is now. Whether it has changed. OffsetOutOfRangeError if the position was
        deleted, or records before it were truncated; LogNotFoundError, OSError."""
        view, position = self.source.view(), self.position
        self._check(position, view)
        if view is self.view:
            return False
        self.stop()
        self.view = view
        self._position = position._replace(generation=view.snapshot.truncations.number)
        return True

    def _check(self, position: Position, view: LogView) -> None:
        """OffsetOutOfRangeError unless reading can go on at a position in a view."""
        now = view.snapshot
        first, end = now.log_start_offset, now.log_end_offset
        cut = diverged_at(now, position, self.isolation)
        is_open_again = cut >= 0 and diverged_at(now, position, "read_uncommitted") < 0
        if is_open_again and position.offset <= first:  # what is open again was deleted
            cut = -1
        if cut >= 0:
            is_refilled = cut < end
            cut = max(cut, first)
            error = OffsetOutOfRangeError(
                position.offset,
                first,
                cut,
                is_truncated=is_refilled and not is_open_again,
                is_open_again=is_open_again,
            )
            if is_open_again:
                what = "a transaction is open again: its end was truncated, or recovery found no end of it"
            elif is_refilled:
                what = "the log was truncated, and others have their offsets now"
            else:
                what = (
                    f"the log ends at {cut}: it was truncated if it was longer, or an older copy replaced it"
                )
            error.add_note(f"{what}. {self._hint(cut)}")
        elif position.offset < first:
            error = OffsetOutOfRangeError(position.offset, first, end)
            error.add_note(f"records were deleted before they were read. {self._hint('earliest')}")
        else:
            return
        self._error_generation = now.truncations.number
        error.position = position_in(now, cut if cut >= 0 else first)
        raise error

    def has_more(self, read: Read) -> bool:
        """Whether there is a record at the position or behind it. The position moves behind markers of
        transactions. What runs() raises."""
        self.refresh()
        while self.offset < (stop := self._end()):
            run = read(self.view, self.offset, stop)
            if next(iter(run), None) is not None:
                return True
            if run.change is None:
                self.stop()
                self._left_out.note(run.skipped)
                self._position = position_in(self.view.snapshot, stop)
            elif not self.refresh():
                raise run.change
        return False

    def runs(self, read: Read) -> Iterator[Run]:
        """Runs up to the end of the log as it is now."""
        self.refresh()
        return self.rest(read)

    def rest(self, read: Read) -> Iterator[Run]:
        """Runs up to the end of the view. After one that was stopped, by `seek` or another iteration, comes
        one that goes on at the position of that moment."""
        self.stop()
        while not self.is_closed:
            try:
                stop = self._end()
                if self.offset >= stop:
                    return
                run = self._run = read(self.view, self.offset, stop)
            except LogChangedError:
                if not self.refresh():
                    raise
                continue
            yield run
            if run is not self._run or run.is_stopped:
                self.stop()
                continue
            change = run.change
            self.stop()
            if change is not None:
                if not self.refresh():
                    raise change
            else:
                if self.offset < stop:  # only markers of transactions, or what compaction has left
                    self._position = position_in(self.view.snapshot, stop)
                return

    def _end(self) -> int:
        """Where the view ends for this isolation."""
        end = self.view.log_end_offset
        return min(self.view.last_stable_offset(), end) if self.isolation == "read_committed" else end
