"""A worker of a share group: records of partitions, each delivered to one worker of the group at a time."""

from __future__ import annotations

import math
import os
import weakref
from contextlib import ExitStack, suppress
from functools import partial
from time import monotonic
from typing import Generic, TypeVar

from kstore.arguments import ISOLATION, ON_ERROR, boolean, choice, instance, integer, number
from kstore.errors import (
    CursorLockedError,
    InvalidRecordStateError,
    KstoreError,
    LogClosedError,
    LogNotFoundError,
)
from kstore.light_typing import TYPE_CHECKING, overload
from kstore.log.cursors.arguments import checked_group, checked_place, checked_timeout
from kstore.log.files.layout import TopicPartition
from kstore.log.follow.readable import wait_readable, wait_readable_async
from kstore.log.follow.waiting import Waitable
from kstore.log.read.left_out import LeftOut
from kstore.log.share.acquired_record import AcknowledgeType, AcquiredRecord
from kstore.log.share.group_partitions import GroupPartitions
from kstore.log.share.shared_partition import SharedPartition, ShareOptions
from kstore.log.threads.async_call import in_thread
from kstore.log.threads.closing import Closing
from kstore.log.threads.resumed import Resumed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
    from datetime import datetime
    from types import TracebackType
    from typing import Any, NoReturn, Self

    from kstore.engine.scan.batch_reader import Skipped
    from kstore.log.follow.sources import Source
    from kstore.log.share.dead_letters import DeadLetterLog
    from kstore.log.share.group_partitions import Wanted

_Given = TypeVar("_Given", bound="AcquiredRecord | None")
_groups: weakref.WeakSet[ShareGroup] = weakref.WeakSet()


class ShareGroup(Closing, Waitable):
    """A worker of a share group. log.share_group() and store.share_group() create one.

    Iterating acquires one record after the other, as an AcquiredRecord, for this worker alone. The worker
    acknowledges each with `acknowledge(record)`. A record is delivered again if its worker closes the group
    or dies, if its lock expires, or if it is released.

    Threads and tasks may share the object: each record is delivered to one of them. Workers in other
    processes open the group there. In a forked child all methods raise LogClosedError.
    """

    def __init__(
        self,
        wanted: Wanted,
        source_of: Callable[[str], Source],
        topics: list[str],
        group: str,
        start: str | int | datetime,
        *,
        follow: bool,
        timeout: float | None,
        isolation: str,
        on_error: str,
        record_lock_ms: int,
        max_delivery_attempts: int,
        max_record_locks: int,
        durable: bool,
        dead_letter_log_of: Callable[[AcquiredRecord], DeadLetterLog] | None,
    ) -> None:
        self.group = checked_group(group)
        start = checked_place("start", start)
        self._follow = boolean("follow", follow)
        self._timeout = checked_timeout(timeout, follow)
        options = ShareOptions(
            group,
            choice("isolation", isolation, ISOLATION),
            choice("on_error", on_error, ON_ERROR),
            integer("record_lock_ms", record_lock_ms, 1, 1 << 40),
            integer("max_delivery_attempts", max_delivery_attempts, 1, 1 << 14),
            integer("max_record_locks", max_record_locks, 1, 10_000),
            boolean("durable", durable),
            dead_letter_log_of,
        )
        worker = 1 + (int.from_bytes(os.urandom(8), "big") >> 3)
        left_out = LeftOut()

        def open_one(tp: TopicPartition, path: str) -> SharedPartition:
            place = start if wanted.was_there(tp) else "earliest"
            return SharedPartition(tp, source_of(path), worker, options, place, left_out)

        self._left_out = left_out
        self._partitions = GroupPartitions(wanted, topics, f"share group {group!r}", open_one)
        self._is_of_parent = False  # this is a child of fork
        _groups.add(self)
        with ExitStack() as undo:
            undo.callback(self.close)  # an exception keeps this object, whose records are for others
            self._partitions.update()
            undo.pop_all()

    # ---- partitions ----------------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that the group reads now."""
        return sorted(self._partitions.open)

    @property
    def skipped(self) -> list[Skipped]:
        """The damage that on_error="skip" has skipped: for each, the file, the byte, the size and the
        error."""
        for shared in self._partitions:
            self._left_out.note(shared.skipped)
        return self._left_out.listed()

    # ---- taking --------------------------------------------------------------------------------------------

    def _await(self, timeout: float | None) -> AcquiredRecord | None:
        """Acquire the next record, and wait for it: None after so many seconds, or if the group is closed."""
        self._check_process()
        record = self._partitions.take()
        until = math.inf if timeout is None else monotonic() + timeout
        while record is None and not self._partitions.is_closed and (left := until - monotonic()) > 0:
            self._partitions.waiting_count += 1
            try:
                wait_readable(self.signals(), min(left, self._partitions.pause()))
            finally:
                self._partitions.waiting_count -= 1
            record = self._partitions.take()
        return record

    async def _await_async(self, timeout: float | None) -> AcquiredRecord | None:
        self._check_process()
        record = self._partitions.take()
        until = math.inf if timeout is None else monotonic() + timeout
        while record is None and not self._partitions.is_closed and (left := until - monotonic()) > 0:
            self._partitions.waiting_count += 1
            try:
                with ExitStack() as copies:  # an event loop waits for a descriptor once
                    sources = [copies.enter_context(_Copy(source)) for source in self.signals() if source]
                    await wait_readable_async(sources, min(left, self._partitions.pause()))
            finally:
                self._partitions.waiting_count -= 1
            record = self._partitions.take()
        return record

    def _records(self) -> Iterator[AcquiredRecord]:
        timeout = self._timeout if self._follow else 0.0
        while (record := self._partitions.take() or self._await(timeout)) is not None:
            yield record

    async def _records_async(self) -> AsyncGenerator[AcquiredRecord, None]:
        import asyncio

        timeout = self._timeout if self._follow else 0.0
        while (record := await self._await_async(timeout)) is not None:
            yield record
            await asyncio.sleep(0)  # for other workers in this loop

    def __iter__(self) -> Iterator[AcquiredRecord]:
        self._check_open()
        return self._records()

    def __aiter__(self) -> AsyncIterator[AcquiredRecord]:
        self._check_open()
        return Resumed(self._records_async)

    @overload
    def next(self, timeout: None = None) -> NextRecord[AcquiredRecord]: ...

    @overload
    def next(self, timeout: float) -> NextRecord[AcquiredRecord | None]: ...

    def next(self, timeout: float | None = None) -> NextRecord[Any]:
        """Return the next record, for a `with` statement: `with group.next() as job: …`. `async with` works
        too.

        The end of the block acknowledges the record; an exception that leaves the block releases it, unless
        the block has acknowledged it. timeout: how many seconds to wait for a record; then the block gets
        None. Default: no limit. LogClosedError if the group is closed meanwhile.
        """
        timeout = None if timeout is None else number("timeout", timeout, 0)
        self._check_open()
        take: Callable[[], Any] = partial(self._next, timeout)
        return NextRecord(self, take, partial(self._next_async, timeout))

    def _next(self, timeout: float | None) -> AcquiredRecord | None:
        record = self._await(timeout)
        if record is None:
            self._check_open()
        return record

    async def _next_async(self, timeout: float | None) -> AcquiredRecord | None:
        record = await self._await_async(timeout)
        if record is None:
            self._check_open()
        return record

    def looks(self) -> Iterator[float]:
        """Yield how many seconds to wait before the next check for a record, for `kstore.wait`. Internal."""
        with suppress(KstoreError, OSError):  # iterating raises it
            while not self._partitions.is_closed:
                self._partitions.take_changes()
                if self._partitions.first(SharedPartition.has_record):
                    return
                yield self._partitions.pause()

    def signals(self) -> tuple[Any, ...]:
        """Return the files that become readable when there may be a record, for `kstore.wait`. Internal."""
        return self._partitions.signals()

    # ---- acknowledging -------------------------------------------------------------------------------------

    def acknowledge(self, record: AcquiredRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge, release or reject a record that this group object has delivered.

        type: AcknowledgeType.ACCEPT (the default): the work is done. RELEASE: the record is delivered again.
            REJECT: it is not delivered again; a dead letter gets a copy if the group has a topic or a log for
            them. After max_delivery_attempts deliveries, RELEASE is REJECT.

        When this returns, the acknowledgement survives the end of the process, and with durable=True a power
        cut. InvalidRecordStateError if this worker no longer has the record: its lock expired, and another
        worker has acquired it, or it was acknowledged before. OSError: the acknowledgement may have been
        saved.
        """
        shared = self._partition_of(record)
        if type is AcknowledgeType.ACCEPT:
            shared.accept(record)
        elif instance("type", type, AcknowledgeType) is AcknowledgeType.REJECT:
            shared.reject(record)
        else:
            self.release(record)

    def release(self, record: AcquiredRecord, delay_ms: int = 0) -> None:
        """Have a record delivered again, after `delay_ms` milliseconds. acknowledge() has the errors.

        A delayed record counts towards max_record_locks.
        """
        delay_ms = integer("delay_ms", delay_ms, 0, 1 << 48)
        self._partition_of(record).release(record, delay_ms)
        self._partitions.wake()

    def renew(self, record: AcquiredRecord) -> None:
        """Extend the lock of a record: it expires record_lock_ms after this call. acknowledge() has the
        errors."""
        self._partition_of(record).renew(record)

    async def acknowledge_async(
        self, record: AcquiredRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledge a record, as acknowledge() does, in another thread, without blocking the event loop. A
        task that is cancelled ends when this is done or has not begun."""
        await in_thread(partial(self.acknowledge, record, type))

    def holds(self, record: AcquiredRecord) -> bool:
        """Whether this group object has delivered a record, and has neither acknowledged nor released it."""
        instance("record", record, AcquiredRecord)
        shared = self._partitions.open.get(record[:2])  # type: ignore[call-overload]
        return shared is not None and shared.has_acquired(record)

    def _partition_of(self, record: AcquiredRecord) -> SharedPartition:
        if not isinstance(record, AcquiredRecord):
            instance("record", record, AcquiredRecord)
        if self._partitions.is_closed:
            self._check_open()
        shared: SharedPartition | None = self._partitions.open.get(record[:2])  # type: ignore[call-overload]
        if shared is None:
            tp = TopicPartition(record.topic, record.partition)
            raise LogNotFoundError(f"share group {self.group!r} reads no partition {tp}: it was deleted")
        return shared

    # ---- the end -------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Delete the state of the group in all its partitions, and close it. The next worker begins at
        `start`.

        CursorLockedError if another worker has the group open; then nothing is deleted. OSError.
        """
        self._check_open()
        for shared in self._partitions:
            if shared.is_shared:
                raise CursorLockedError(f"{shared.tp} of share group {self.group!r}", None)
        for shared in self._partitions:
            shared.forget()
        self.close()

    def _check_process(self) -> None:
        if self._is_of_parent:
            raise LogClosedError(
                f"share group {self.group!r} belongs to the parent process: open it again here"
            )

    def _check_open(self) -> None:
        self._check_process()
        if self._partitions.is_closed:
            raise LogClosedError(f"share group {self.group!r} is closed")

    @property
    def is_closed(self) -> bool:
        """Whether the group was closed."""
        return self._partitions.is_closed

    def close(self) -> None:
        """Leave the group: records that were not acknowledged are delivered to other workers. Iterations end,
        also in threads that wait in them."""
        if not self._is_of_parent:
            self._partitions.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a share group cannot be pickled: open one in the other process")

    def __repr__(self) -> str:
        state = ", closed" if self._partitions.is_closed else ""
        return f"<ShareGroup {self.group!r}: {len(self.partitions)} partitions{state}>"


class NextRecord(Generic[_Given]):
    """The next record of a share group, which the end of a `with` block accepts. group.next() makes one."""

    def __init__(
        self,
        group: ShareGroup,
        take: Callable[[], _Given],
        take_async: Callable[[], Awaitable[_Given]],
    ) -> None:
        self._group = group
        self._take = take
        self._take_async = take_async
        self._record: _Given | None = None

    def __enter__(self) -> _Given:
        record = self._record = self._take()
        return record

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        record, self._record = self._record, None
        if record is None or not self._group.holds(record):
            return
        if error is None:
            self._group.acknowledge(record)
        else:
            with suppress(InvalidRecordStateError):  # another worker has it
                self._group.release(record)

    async def __aenter__(self) -> _Given:
        record = self._record = await self._take_async()
        return record

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(partial(self.__exit__, kind, error, trace))


class _Copy:
    """A descriptor of its own for what another one is for."""

    def __init__(self, source: Any) -> None:
        self._fd = os.dup(source.fileno())

    def fileno(self) -> int:
        return self._fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)


def _forked() -> None:
    """In a child of fork the groups are those of its parent."""
    for group in list(_groups):
        group._is_of_parent = group._partitions.is_closed = True
    _groups.clear()


os.register_at_fork(after_in_child=_forked)
