"""A cursor over the partitions of topics, which the members of a group share."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from os import getpid
from time import monotonic
from weakref import ref

from kstore.arguments import integer, number
from kstore.engine.scan.column_builder import ColumnBuilder
from kstore.engine.scan.column_scanner import CursorBatches
from kstore.errors import CursorLockedError, KstoreError, LogClosedError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.cursors.arguments import (
    check_commit,
    check_delivered,
    checked_group,
    checked_partition,
    checked_place,
    offset_of,
)
from kstore.log.cursors.cursor import feed_of
from kstore.log.cursors.cursor_batch import Block, CursorBatch, start_again
from kstore.log.cursors.cursor_columns import BATCH_BYTES, BATCH_ROWS, ColumnOptions
from kstore.log.cursors.offset_commits import lag_behind
from kstore.log.cursors.offset_committer import OffsetCommitter, commit_all
from kstore.log.files.layout import TopicPartition
from kstore.log.threads.async_call import in_thread
from kstore.page import notebook_table
from kstore.store.read.membership import Membership
from kstore.store.read.topic_reader import QUANTUM, PartitionReader, TopicReader, TopicRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Any, NoReturn

    from kstore.engine.columns.array import ColumnBatch
    from kstore.log.cursors.group_file import GroupFile
    from kstore.log.cursors.offset_commits import Commit
    from kstore.log.follow.feed import Feed
    from kstore.log.follow.position import Position
    from kstore.store.open_partitions import OpenPartitions
    from kstore.store.read.read_queue import ReadQueue
    from kstore.typed import Column


class TopicColumns(NamedTuple):
    """Records of a topic as columns, and where they come from."""

    topic: str
    partition: int
    batch: ColumnBatch


class _CommittedReader(PartitionReader):
    """The position in a partition, and what commits it."""

    def __init__(self, feed: Feed, topic_id: str, committer: OffsetCommitter) -> None:
        super().__init__(feed, topic_id)
        self.committer = committer
        self.first = feed.position
        self.settled = feed.offset  # up to where all is committed; -1 after a seek

    def close(self) -> None:
        super().close()
        self.committer.close()


class _StoreBatchSlot:
    """The open batch of a cursor of many partitions."""

    def __init__(self, readers: Mapping[TopicPartition, _CommittedReader], queue: ReadQueue) -> None:
        self._readers = readers
        self._queue = queue
        self._block: Block | None = None

    def check_free(self) -> None:
        """Raise RuntimeError if a batch is open."""
        self.drop_dead()
        if self._block is not None:
            raise RuntimeError("a batch of this cursor is open: leave its `with` block first")

    def drop_dead(self) -> None:
        """Give up a batch whose `__exit__` did not run."""
        if self._block is not None and self._block.batch() is None:
            self.give_up()

    def begin(self, batch: CursorBatch[Any]) -> None:
        """Open a batch. RuntimeError if another one is open."""
        self.check_free()
        self._block = Block(ref(batch), {each: each.feed.position for each in self._readers.values()})

    @property
    def has_moved(self) -> bool:
        """Whether the cursor has moved in a partition since the batch was opened."""
        return any(each.position != self._start_of(each).offset for each in self._readers.values())

    def behind(self, completed: Sequence[TopicRecord]) -> dict[TopicPartition, int] | None:
        """The offset behind the last of these records in each partition where it is not committed."""
        readers = self._readers
        offsets = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in completed}
        found = {
            tp: offset
            for tp, offset in offsets.items()
            if tp in readers and offset > readers[tp].committer.floor
        }
        return found or None

    def end(self) -> None:
        """End the batch, and leave the cursor at its position."""
        self._block = None

    def give_up(self) -> None:
        """End the batch, and return to the positions before it, but not below the last commits."""
        if self._block is not None:
            for tp, reader in self._readers.items():
                start_again(reader.feed, reader.committer, self._start_of(reader))
                self._queue.ask(tp)
            self._block = None

    def _start_of(self, reader: _CommittedReader) -> Position:
        """The position before the batch, in a partition that may have been taken since."""
        start: Position = reader.first if self._block is None else self._block.start.get(reader, reader.first)
        return start


class StoreCursor(TopicReader):
    """A reader of the partitions of some topics whose positions are saved on disk for a group. store.cursor()
    creates one.

    Iterating yields a TopicRecord for each record from the committed positions on. `commit()` saves the
    positions of all partitions. The cursors of one group, in any threads and processes, are its members. They
    divide the partitions evenly, and no partition has two members. A member releases partitions beyond its
    share when all records that it has yielded from them are committed, and takes over those of a member that
    has died. It does so while it is iterated, and in `commit()`.

    One thread or task at a time may use it; any may call `close`.
    """

    topics: list[str]
    _readers: dict[TopicPartition, _CommittedReader]  # type: ignore[assignment]

    def __init__(
        self,
        logs: OpenPartitions,
        group: str,
        topics: Iterable[str],
        start: str | int | datetime,
        *,
        follow: bool,
        timeout: float | None,
        isolation: str,
        on_error: str,
    ) -> None:
        self.group = checked_group(group)
        self._who = f"the cursor of group {group!r}"
        self._start = checked_place("start", start)
        if topics is None:
            raise TypeError("topics must be a list of names of topics, not None")
        super().__init__(logs, topics, follow=follow, timeout=timeout, isolation=isolation, on_error=on_error)
        self._pid = getpid()
        self._undurable: set[TopicPartition] = set()  # those committed since the last durable commit
        self._slot = _StoreBatchSlot(self._readers, self._queue)
        if not follow:
            self._wanted.refuse_missing(self.topics)
        self._members = self._new_member()
        self._closed = False
        with ExitStack() as undo:
            undo.callback(self.close)  # an exception keeps this object, whose partitions are for others
            self._members.join()
            self._update()
            undo.pop_all()

    # ---- members -------------------------------------------------------------------------------------------

    def _new_member(self) -> Membership:
        paths = [str(path) for path in self._logs.catalog.paths() if path.is_dir()]
        return Membership(self.group, self.topics, paths)

    def _choose(self) -> None:
        """Takes partitions that no member has, and gives up what is more than a fair share, or is gone."""
        try:
            self._members.check()
        except CursorLockedError:
            self._members = self._new_member()
            self._members.join()
        self._leave_deleted()
        share = self._members.share_of(len(self._wanted.paths))
        for tp in [tp for tp, reader in self._readers.items() if reader.feed.given <= reader.settled]:
            if len(self._readers) <= share:
                break
            self._leave(tp)
        self._take(share)
        if self._watch.source is not None:
            self._watch_all()
        if self._follow:
            self._sweep()
        if self._closed:  # meanwhile
            self.close()

    def _sweep(self) -> None:
        """Asks a few partitions though no change was reported: the system may have dropped the lock."""
        for tp in self._queue.sweep(self._readers):
            try:
                self._readers[tp].committer.check_lock()
            except CursorLockedError:
                self._leave(tp)

    def _take(self, share: int) -> None:
        """Takes partitions that no other member has, up to a share."""
        fresh: list[tuple[OffsetCommitter, Commit]] = []
        for tp, path in self._wanted.paths.items():
            if len(self._readers) >= share:
                break
            if tp in self._readers:
                continue
            start = self._start if self._wanted.was_there(tp) else "earliest"
            topic_id = self._wanted.topic_id(tp) or ""
            with ExitStack() as stack:
                try:
                    committer = OffsetCommitter(path, self.group)
                    stack.callback(committer.close)
                    committer.open()
                    log = self._wanted.opened(tp)
                    log.traffic = self._logs.traffic_of(tp.topic)
                    feed = feed_of(
                        committer, log.source(), start, self._isolation, self._left_out, is_member=True
                    )
                    committer.check_place()  # after the log was opened: so it is that of the position
                except (CursorLockedError, LogNotFoundError):  # another member has it; it is being deleted
                    continue
                stack.pop_all()
            self._queue.ask(tp)
            self._readers[tp] = _CommittedReader(feed, topic_id, committer)
            if committer.last is None and start != "earliest":
                fresh.append((committer, committer.commit_of(feed.position, "")))
        commit_all(fresh, durable=True)  # or who takes over from this member would begin elsewhere

    def _leave_lost(self) -> None:
        """Those for which another member reads, or has read."""
        for tp, reader in list(self._readers.items()):
            try:
                reader.committer.check(reader.committer.file.read())
            except (CursorLockedError, LogNotFoundError):
                self._leave(tp)

    # ---- columns -------------------------------------------------------------------------------------------

    def scan(
        self,
        columns: Iterable[Column] | None = None,
        *,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> StoreColumns:
        """Read the records from the positions on as columns, each batch of one partition: `for topic,
        partition, batch in cursor.scan(["key", "value"]): …; cursor.commit()`.

        Each batch advances the position of its partition. `async for` works too. With follow=True the
        iteration waits for more records, as iterating the cursor does.

        columns, batch_rows, batch_bytes: as in PartitionLog.scan.
        """
        self._check_open()
        options = ColumnOptions(columns, batch_rows, batch_bytes)
        ColumnBuilder(options.read, 1, 1, False)  # which checks the names
        of = partial(self._columns_of, options)

        def there() -> Iterator[TopicColumns]:
            self._check_open()
            return self._on_one_thread(of)

        def for_tasks() -> AsyncIterator[TopicColumns]:
            self._check_open()
            return self._asked_by_tasks(of)

        return StoreColumns(f"{self!r}: {', '.join(options.columns)}", there, for_tasks)

    def _columns_of(
        self, options: ColumnOptions, tp: TopicPartition, reader: PartitionReader
    ) -> Iterator[TopicColumns]:
        """What a partition has, up to a quantum."""
        return chain.from_iterable(self._batches_of(options, tp, reader))

    def _batches_of(
        self, options: ColumnOptions, tp: TopicPartition, reader: PartitionReader
    ) -> Iterator[CursorBatches]:
        failed = partial(self._failed, tp)
        make = partial(TopicColumns, *tp)
        try:
            for run in reader.runs(options.reader(self._isolation, self._on_error, make, failed, QUANTUM)):
                assert isinstance(run, CursorBatches)
                yield run
                if run.is_done:
                    return
        except Exception as e:  # noqa: BLE001 - what is not dealt with is raised again
            failed(e)

    def batch(self, count: int, timeout: float = 0.0) -> CursorBatch[TopicRecord]:
        """Read up to `count` records as a list, and commit them when the `with` block ends:
        `with cursor.batch(100, timeout=1) as records:`. `async with` works too.

        The list has the records that are in the partitions of this member. If there are none, the call waits
        up to `timeout` seconds for the first one, and may return an empty list. If `break`, `return` or an
        exception leaves a loop over the list, only the records before the present one are committed: a record
        is done when the loop asks for the next one, or ends. An exception outside of such a loop commits
        nothing. The cursor then continues with the first record of each partition that is not committed. A
        cursor has one open batch at a time: another one raises RuntimeError.
        """
        count = integer("count", count, 1)
        timeout = number("timeout", timeout, 0)
        self._check_open()
        return CursorBatch(
            self._slot,
            partial(self._take_batch, count, timeout),
            partial(self._take_batch_async, count, timeout),
            self.commit,
            self.commit_async,
        )

    def _take_batch(self, count: int, timeout: float) -> list[TopicRecord]:
        self._check_open()
        return self._gather(count, timeout)

    async def _take_batch_async(self, count: int, timeout: float) -> list[TopicRecord]:
        self._check_open()
        return await self._gather_async(count, timeout)

    # ---- positions -----------------------------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record, for each partition of this member."""
        self._check_open()
        return {tp: self._readers[tp].position for tp in self.partitions}

    def lag(self) -> dict[TopicPartition, int]:
        """Return the number of offsets from the position, or the log start offset if that is above it, to the
        end of the log, for each partition of this member: {("orders", 0): 17, …}."""
        self._check_open()
        return {
            tp: max(lag_behind(reader.feed.source.view(), reader.position), 0)
            for tp, reader in sorted(self._readers.items())
        }

    def seek(
        self, place: str | int | datetime, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Move to "earliest", "latest", an offset or a datetime, in all partitions of this member, in those
        of a topic, or in one partition.

        The next commit() saves the positions. The errors are those of Cursor.seek. After an error no
        partition was moved: an offset must be in all of them. ValueError for a topic that the cursor does not
        read, LogNotFoundError for a partition that does not exist, CursorLockedError for a partition of
        another member, RuntimeError in the block of a batch().
        """
        place = checked_place("place", place)
        if partition is not None:
            partition = integer("partition", partition, 0, 2**31 - 1)
        self._check_open()
        self._slot.check_free()
        found = {}
        for tp in self._named(topic, partition):
            try:
                view = self._readers[tp].feed.source.view()
                found[tp] = view, offset_of(view, place, self._isolation)
            except KstoreError as e:
                self._name_partition(tp, e)
                raise
        for tp, (view, offset) in found.items():
            known = self._readers[tp]
            known.feed.seek(view, offset, is_number=isinstance(place, int))
            known.committer.floor = offset
            known.settled = -1  # it is under way until it is committed
            self._queue.ask(tp)
            self._queue.moved[tp] = None

    def commit(
        self,
        record: TopicRecord | Mapping[TopicPartition, int] | None = None,
        *,
        durable: bool = True,
        metadata: str = "",
    ) -> None:
        """Save the positions behind all yielded records: all partitions in one step for each log directory,
        with one sync.

        record: a TopicRecord, to commit only it and those before it in its partition; or a mapping from
            partitions to the offset of the next record to read, as in Kafka: {("orders", 0): record.offset +
            1}, or positions().

        The other arguments, and errors, are those of Cursor.commit. ValueError for a topic that the cursor
        does not read, LogNotFoundError for a partition that does not exist. CursorLockedError if another
        member has taken the partition: nothing in its log directory is committed, and the next commit covers
        the other partitions.
        """
        check_commit(durable, metadata)
        self._check_open()
        if record is None:
            readers = self._readers
            moved = [
                (tp, readers[tp].position)
                for tp in list(self._queue.moved)
                if tp in readers and readers[tp].position != readers[tp].settled
            ]
        elif isinstance(record, TopicRecord):
            tp = TopicPartition(record.topic, record.partition)
            moved = [(tp, self._delivered("record", tp, record.offset + 1))]
        elif isinstance(record, Mapping):
            moved = [self._next_offset(tp, offset) for tp, offset in record.items()]
        else:
            raise TypeError(
                "record must be a TopicRecord, as this cursor yields it, or the next offsets by (topic, "
                f"partition), not {record!r:.80}: for each in cursor: …; cursor.commit(each)"
            )
        try:
            commit_all([self._commit_of(tp, offset, metadata) for tp, offset in moved], durable)
            names = {tp for tp, _ in moved}
            if durable:
                self._bring_to_disk(self._undurable - names)
                self._undurable.clear()
            else:
                self._undurable |= names
        except (CursorLockedError, LogNotFoundError):
            self._leave_lost()
            raise
        for tp, offset in moved:
            self._readers[tp].settled = offset
        if record is None:  # no other was read since
            self._queue.settle()
        if monotonic() >= self._next_update:
            self._update()

    def _bring_to_disk(self, earlier: set[TopicPartition]) -> None:
        """What was committed before, in partitions that the member has still. What Cursor.commit raises."""
        by_file: dict[GroupFile, list[OffsetCommitter]] = {
            reader.committer.file: [] for reader in self._readers.values()
        }
        for tp in earlier & self._readers.keys():
            committer = self._readers[tp].committer
            by_file[committer.file].append(committer)
        for file, committers in by_file.items():
            if committers:
                entries = file.read()
                for committer in committers:
                    committer.check(entries)
            file.sync()

    def _commit_of(self, tp: TopicPartition, offset: int, metadata: str) -> tuple[OffsetCommitter, Commit]:
        reader = self._readers[tp]
        return reader.committer, reader.committer.commit_of(reader.feed.position_of(offset), metadata)

    def _next_offset(self, tp: object, offset: object) -> tuple[TopicPartition, int]:
        """An item of a mapping that is committed. What Cursor.commit raises."""
        known = checked_partition("record", tp)
        name = f"record[{known.topic!r}, {known.partition}]"
        return known, self._delivered(name, known, integer(name, offset))

    def _delivered(self, name: str, tp: TopicPartition, offset: int) -> int:
        """The offset of a commit, checked."""
        if tp not in self._readers:
            self._named(*tp)  # which says why
        check_delivered(name, offset, self._readers[tp].position)
        return offset

    async def commit_async(
        self, record: TopicRecord | Mapping[TopicPartition, int] | None = None, *, metadata: str = ""
    ) -> None:
        """Commit durably in another thread, without blocking the event loop. A task that is cancelled ends
        when the commit is done or has not begun."""
        await in_thread(partial(self.commit, record, metadata=metadata))

    def _named(self, topic: str | None, partition: int | None) -> list[TopicPartition]:
        """The partitions of this member that a caller names; None: all. ValueError for a topic that the
        cursor does not read, LogNotFoundError for a partition that there is not, CursorLockedError for one
        that is not this member's."""
        if topic is not None and topic not in self.topics:
            raise ValueError(f"{self._who} reads {', '.join(self.topics)}, not {topic!r:.80}")

        def among(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
            return [
                tp for tp in partitions if topic in (None, tp.topic) and partition in (None, tp.partition)
            ]

        found = among(self._readers)
        if not found and partition is not None:
            name = f"{topic or 'any topic'}-{partition}"
            if not among(self._wanted.paths):
                raise LogNotFoundError(f"{self._who} knows of no partition {name}")
            raise CursorLockedError(f"{name} of group {self.group!r}", None)
        return found

    # ---- closing -------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        super()._check_open()
        self._slot.drop_dead()
        if self._pid != getpid():
            raise LogClosedError(f"the cursor of group {self.group!r} belongs to process {self._pid}")

    def close(self) -> None:
        """Release the partitions for the other members. Nothing is committed. OSError."""
        super().close()
        failure: OSError | None = None
        for reader in list(self._readers.values()):
            try:
                reader.close()
            except OSError as e:
                failure = failure or e
        self._readers = {}
        self._members.leave()
        if failure is not None:
            raise failure

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self.close)

    def _repr_html_(self) -> str:
        if self.is_closed:
            return repr(self)
        lag = self.lag()
        rows = [(tp, offset, lag.get(tp, "-")) for tp, offset in sorted(self.positions().items())]
        return notebook_table(f"StoreCursor of group {self.group}", ("partition", "position", "lag"), rows)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a cursor cannot be pickled: open one in the other process")


class StoreColumns:
    """The records of a cursor over many partitions as TopicColumns. StoreCursor.scan() makes one.

    `for` and `async for` both work, and go on from where the cursor is.
    """

    def __init__(
        self,
        name: str,
        there: Callable[[], Iterator[TopicColumns]],
        for_tasks: Callable[[], AsyncIterator[TopicColumns]],
    ) -> None:
        self._name = name
        self._there = there
        self._for_tasks = for_tasks

    def __iter__(self) -> Iterator[TopicColumns]:
        return self._there()

    def __aiter__(self) -> AsyncIterator[TopicColumns]:
        return self._for_tasks()

    def __repr__(self) -> str:
        return f"<StoreColumns of {self._name}>"
