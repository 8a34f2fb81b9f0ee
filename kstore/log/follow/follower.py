"""Following a log: what is there, and then what comes, as it comes."""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from threading import get_ident
from time import monotonic, sleep
from typing import Generic, Self, TypeVar, cast

from kstore.engine.io.notification import EventFd
from kstore.engine.record.batch import Record, RecordBatch
from kstore.engine.scan.batch_reader import BatchReader, Skipped
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptRecordError, LogNotFoundError
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import directory_of
from kstore.log.follow.follow_source import FollowSource, change_of_cut, is_cut, traces_of
from kstore.log.follow.readable import wait_readable, wait_readable_async
from kstore.log.read.left_out import LeftOut
from kstore.log.recovery.continuity import Mark
from kstore.log.threads.closing import Closing
from kstore.log.threads.one_thread import BUSY

Item = TypeVar("Item", bound=RecordBatch | Record)

_HEARTBEAT = (
    1.0  # s: for changes that inotify does not tell, such as those that another machine makes to a share
)
_POLLS = (0.001, 0.05)  # s: how often to ask at first and at last, where nothing tells of changes
_LOOKS = 20  # at a place that keeps changing while it is read
_TURNS = 32  # items that one asyncio task takes before the others have a turn


class Follower(Closing, Generic[Item]):
    """An iterator of the records (or batches) from an offset on, which waits for more at the end.
    log.follow() makes one.

    `for` and `async for` both work. It ends if nothing was appended for `timeout` seconds, when it is closed,
    and when it follows a writer of this process that is closed and has been read to its end. If the offset is
    deleted or truncated before it gets there, it raises OffsetOutOfRangeError: `first` and `end` of the error
    say what the log holds, `offset` of the follower says where it was. One thread or task at a time may
    iterate; any may call `close`.
    """

    def __init__(
        self, feed: FollowSource, offset: int, timeout: float | None, records: bool, on_error: str = "raise"
    ) -> None:
        self._reached = offset
        self.timeout = timeout
        self._source = feed
        self._first = offset
        self._records = records
        self._reader: BatchReader | None = None
        self._mark = feed.mark_sought(offset)  # of the batch before the offset, if it is known
        self._stop = offset
        self._pending: deque[Record] = deque()
        self.leader_epoch = -1  # of the batch that holds what was given last
        self.given_mark: Mark | None = None  # of that batch
        self._segments: tuple[Segment, ...] = ()
        self._fresh = False  # nothing was read of it yet
        self._reads = 0  # from files, of which it is known that no truncation came before them
        self._empty = (-1, -1)  # where a look found nothing before an offset that is said to be reached
        self._doubts = 0  # how many looks have failed since one did not
        self._fault: tuple[object, ...] | None = None  # what the last of them met
        self._left_out = LeftOut() if on_error == "skip" else None
        self._is_passing = False  # damage
        self._closed = False
        self._taken = 0
        self._busy = 0  # the thread that looks for the next one, or waits for it, if any
        self._event = EventFd()
        self._sources = self._event, feed.watch

    # ---- taking what is there ------------------------------------------------------------------------------

    def take(self) -> Item | None:
        """The next record (or batch) if there is one, else None, without waiting.

        OffsetOutOfRangeError if the position was deleted; CorruptRecordError, OSError.
        """
        me = get_ident()
        if self._busy and self._busy != me:
            raise RuntimeError(BUSY)
        try:
            self._busy = me
            return self._look(_Wait(0))
        finally:
            self._busy = 0

    def _take(self) -> Item | None:
        """The same, of what was there when the source was looked at last."""
        while not self._pending:
            reached, mark = self._reached, self._mark
            try:
                batch = self._take_batch()
                if batch is None or not self._records:
                    return cast("Item | None", batch)
                if not batch.is_control:
                    self._pending, self._first = (
                        deque(self._records_of(batch)),
                        self._reached,  # a batch written after a truncation may begin below
                    )
                    self.leader_epoch, self.given_mark = batch.leader_epoch, self._mark
            except BaseException:  # it was not passed: who asks again meets it again
                self._reached, self._reader, self._mark = reached, None, mark
                raise
        return cast(Item, self._pending.popleft())

    def _records_of(self, batch: RecordBatch) -> Iterator[Record]:
        """Those from the first that is wanted on."""
        records, error = batch._readable()
        if error is not None:
            if self._left_out is None:
                raise error
            self._left_out.note([Skipped(batch.file, batch.position, batch.size, error)])
        return (record for record in records if record.offset >= self._first)

    @property
    def offset(self) -> int:
        """Where it goes on: everything before was given, or is not there."""
        try:
            return self._pending[0].offset
        except IndexError:
            return self._reached

    @property
    def skipped(self) -> list[Skipped]:
        """What on_error="skip" has left out so far."""
        return [] if self._left_out is None else self._left_out.listed()

    def _take_batch(self) -> RecordBatch | None:
        while not self._closed:
            try:
                if self._reader is None:
                    on_error = "skip" if self._is_passing else "raise"
                    found = self._source.read(
                        self._reached, on_error, self._mark, is_in_doubt=self._fault is not None
                    )
                    if found is None:
                        return None
                    self._reader, self._stop, self._fresh = found.reader, found.stop, True
                    self._segments, self._reads = found.segments, 0
                batch = next(self._reader, None)
                if batch is not None and batch.last_offset < self._reached:
                    continue  # the one before what is in doubt
                if batch is not None and self._reads != self._reader._reads:
                    if self._source.is_truncated():  # another look tells whether this is what came instead
                        self._reader = None
                        continue
                    self._reads = self._reader._reads
                if batch is not None and batch.magic < 2 and (error := self._overlap(batch)) is not None:
                    if self._left_out is None:
                        raise error
                    self._left_out.note([Skipped(batch.file, batch.position, batch.size, error)])
                    self._reached = batch.last_offset + 1
                    continue
            except (FileNotFoundError, CorruptRecordError) as e:
                self._reader = None
                try:
                    if not self._doubt(e):
                        return None
                except CorruptRecordError:  # it is none of a moment
                    if self._left_out is None or self._is_passing:  # nobody knows the last stable offset, say
                        raise
                    self._is_passing = True
                continue
            if self._is_passing and self._left_out is not None:
                self._left_out.note(self._reader.skipped)
                self._is_passing = False  # what comes then may be of a moment again
                self._reader = None
                if batch is None:  # the damage reaches to the end of what is there
                    self._reached = self._stop
                    continue
            if batch is not None:
                self._fresh = False
                self._doubts = 0
                self._fault = None
                self._reached = batch.last_offset + 1
                self._mark = batch.last_offset, batch.crc
                return batch
            self._reader = None
            if self._fresh:
                # All of it was compacted away, or aborted? Or truncated away? Then another look tells, but
                # not before who truncates is done.
                if is_cut(self._segments):
                    if not self._doubt(change_of_cut(self._segments, self._reached)):
                        return None
                    continue
                if self._empty == (self._reached, self._stop):
                    self._reached = self._stop
                else:
                    self._empty = (self._reached, self._stop)
                    self._source.doubt()
        return None

    def _overlap(self, batch: RecordBatch) -> CorruptRecordError | None:
        """What is wrong if a message of an old format holds offsets of the batch that was given last: of a
        compressed one, the header does not tell where it begins."""
        if self._mark is None or self._mark[0] + 1 != self._reached:
            return None
        first = batch._first_offset()
        if first >= self._reached:
            return None
        return CorruptRecordError(
            "first offset in a compressed message",
            file=batch.file,
            position=batch.position,
            offset=batch.last_offset,
            expected=f"at least {self._reached}",
            found=first,
        )

    def _doubt(self, error: Exception) -> bool:
        """Whether to look again at once, after an error. Raises it where nothing has changed since it was met
        before.

        Deleted before it was opened, or truncated and written anew under the reader? Then another look finds
        something else there, but not before who truncates is done: one who waits is told when that is."""
        if isinstance(error, LogNotFoundError):
            raise error
        # if nobody writes the log, nobody is truncating it
        cut = is_cut(self._segments) and is_locked(directory_of(Path(self._source.path)))
        fault = (self._reached, str(error), traces_of(self._segments))
        same = fault == self._fault
        self._fault = fault
        self._doubts += 1
        if self._doubts > _LOOKS or (same and not cut):
            raise error
        self._source.doubt()
        if same:
            return False
        if self._doubts > 1:
            sleep(_POLLS[0])
        return True

    # ---- waiting -------------------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        try:
            if self._pending:
                return self._pending.popleft()  # type: ignore[return-value] # records, if any
        except IndexError:
            pass  # another thread took it
        me = get_ident()
        if self._busy and self._busy != me:
            raise RuntimeError(BUSY)
        try:
            self._busy = me
            wait = _Wait(self.timeout)
            while (item := self._look(wait)) is None:
                if wait.pause is None:
                    raise StopIteration
                self._heard(wait_readable(self._sources, wait.pause), wait)
            return item
        finally:
            self._busy = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        import asyncio

        wait = _Wait(self.timeout)
        self._taken += 1
        if self._taken % _TURNS == 0:
            await asyncio.sleep(0)
        me = get_ident()
        if self._busy and self._busy != me:
            raise RuntimeError(BUSY)
        try:
            self._busy = me
            while (item := self._look(wait)) is None:
                if wait.pause is None:
                    raise StopAsyncIteration
                self._heard(await wait_readable_async(self._sources, wait.pause), wait)
            return item
        finally:
            self._busy = 0

    def _look(self, wait: "_Wait") -> Item | None:
        """The next one; None where `wait.pause` says how long to sleep before the next look, or that there is
        none."""
        ended = self._source.ended
        item = self._take()
        if item is None and not self._closed and not ended:
            # Armed first and looked at then, or what comes between the look and the arming would be slept
            # through.
            ended = self._source.ended
            self._source.arm(self._event)
            self._source.look()
            item = self._take()
        if item is None:
            wait.pause = None if self._closed or ended else wait.seconds(self._source.told)
        return item

    def _heard(self, told: bool, wait: "_Wait") -> None:
        if told:
            self._event.clear()
        elif not self._source.told or wait.beat():
            self._source.doubt()

    # ---- closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the iteration, also in a thread that is waiting in it."""
        self._closed = True
        self._event.set()

    @property
    def _truncations_seen(self) -> int:
        """The number of the last truncation that was before all that is read now."""
        return self._source.truncations_seen

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<Follower of {self._source.path}: at offset {self.offset}{state}>"


class _Wait:
    """How long one wait for the next item may last, and how much of it at a time."""

    def __init__(self, timeout: float | None) -> None:
        self.pause: float | None = None
        self._deadline = None if timeout is None else monotonic() + timeout
        self._poll = _POLLS[0]

    def seconds(self, told: bool) -> float | None:
        """How long to sleep now; None when the time is over."""
        most = _HEARTBEAT
        if not told:
            most = self._poll
            self._poll = min(2 * most, _POLLS[1])
        if self._deadline is None:
            return most
        left = self._deadline - monotonic()
        return min(left, most) if left > 0 else None

    def beat(self) -> bool:
        """Whether a silence is one to doubt: not where it is the time that has run out."""
        return self._deadline is None or self._deadline > monotonic()
