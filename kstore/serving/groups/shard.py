"""The groups of one partition of __consumer_offsets: their state in memory, and its records."""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Mapping
from threading import Event, RLock
from typing import TYPE_CHECKING, Final, TypeVar

from kstore.errors import CorruptRecordError
from kstore.log.cursors.offset_commits import Commit, OffsetAndMetadata, encode_key, encode_value
from kstore.log.files.layout import TopicPartition
from kstore.serving.error_codes import ErrorCode
from kstore.serving.failures import Answer
from kstore.serving.groups.group import Group, GroupState
from kstore.serving.groups.offsets import Committed, GroupOffsets
from kstore.serving.groups.rebalance import (
    GroupLimits,
    JoinRequest,
    Rebalance,
    join_error,
    sync_answer,
)
from kstore.serving.groups.records import group_in, group_key, group_record, record_type, subscribed_topics
from kstore.serving.state_topic import Producer, StateRecord, StateTopic, append_marker
from kstore.store.consumer_offsets import commit_of, commits

if TYPE_CHECKING:
    from kstore.engine.record.batch import Record

_T = TypeVar("_T")
_NEWER_CONSUMER: Final = {3, 4, 5, 6, 7, 8, 16}  # types of records of groups of KIP-848; 5 is a member
_MEMBER: Final = 5
_LONGEST_WAIT: Final = 1.0  # seconds, because another request may bring an earlier deadline


class Waiter:
    """A request that waits for its answer."""

    def __init__(self) -> None:
        self._event = Event()
        self._answer: Answer = {}

    def give(self, answer: Answer) -> None:
        """Answer the request."""
        self._answer = answer
        self._event.set()

    def answer(self, seconds: float) -> Answer | None:
        """The answer, None if there is none within so many seconds."""
        return self._answer if self._event.wait(seconds) else None


class GroupShard:
    """The groups of one partition. Each method is one step: its records are appended before the new state
    counts and before a request is answered. If appending fails, the error is raised and nothing has changed.

    Threads may call the methods; one step runs at a time.
    """

    def __init__(
        self, topic: StateTopic, partition: int, clock: Callable[[], int], limits: GroupLimits
    ) -> None:
        self.partition = partition
        self._topic = topic
        self._clock = clock
        self._limits = limits
        self._lock = RLock()
        self._groups: dict[str, Group] = {}
        self._offsets = GroupOffsets()
        self._newer: dict[str, set[bytes]] = {}  # keys of records of groups that are not classic
        self._load()

    # ---- loading -------------------------------------------------------------------------------------------

    def _load(self) -> None:
        now = self._clock()
        for batch in self._topic.batches(self.partition):
            if batch.is_control:
                self._offsets.end(batch.producer_id, commits=commits(batch))
                continue
            producer_id = batch.producer_id if batch.is_transactional else -1
            for record in batch.records():
                self._replay(record, producer_id, batch.file, now)

    def _replay(self, record: Record, producer_id: int, file: str, now: int) -> None:
        offset = commit_of(record, file)
        group = group_in(record, file, now) if offset is None else None
        if offset is not None:
            group_id, tp, position = offset
            committed = None if position is None else Committed(position, record.offset)
            self._offsets.apply(group_id, tp, committed, producer_id)
        elif group is not None:
            if group[1] is None:
                self._groups.pop(group[0], None)
            else:
                self._groups[group[0]] = group[1]
        elif record.key and record_type(record) > 2:
            keys = self._newer.setdefault(_group_of_newer(record, file), set())
            (keys.discard if record.value is None else keys.add)(record.key)

    # ---- groups --------------------------------------------------------------------------------------------

    def find(self, group_id: str) -> Group | None:
        """The group, or None. One that has only committed offsets is empty."""
        with self._lock:
            if group_id in self._groups:
                return self._step(self._groups[group_id], lambda step: step.group)
            return Group(group_id) if group_id in self._offsets.groups() else None

    def groups(self) -> list[Group]:
        """All groups."""
        with self._lock:
            found = [self.find(group_id) for group_id in {*self._groups, *self._offsets.groups()}]
            return [group for group in found if group is not None]

    def join(self, group_id: str, request: JoinRequest) -> Answer:
        """Let a member join, and wait for the answer. A group is created for a member without an id."""
        waiter = Waiter()
        with self._lock:
            group = self.find(group_id)
            if group is None and request.member_id:
                return join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            newer = self._newer.get(group_id, set())
            if any(int.from_bytes(key[:2], "big") not in _NEWER_CONSUMER - {_MEMBER} for key in newer):
                return join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
            first: list[StateRecord] = [(key, None) for key in newer]
            if group_id not in self._groups:
                first.append(group_record(Group(group_id, state_since=self._clock())))
            self._step(group or Group(group_id), lambda step: step.join(request, waiter), first)
            self._newer.pop(group_id, None)
        return self._wait(group_id, waiter)

    def sync(self, group_id: str, act: Callable[[Rebalance, Hashable], None]) -> Answer:
        """Let a member sync, and wait for the answer."""
        waiter = Waiter()
        with self._lock:
            group = self.find(group_id)
            if group is None:
                return sync_answer(ErrorCode.UNKNOWN_MEMBER_ID)
            self._step(group, lambda step: act(step, waiter))
        return self._wait(group_id, waiter)

    def change(self, group_id: str, act: Callable[[Rebalance], _T], missing: _T) -> _T:
        """A step of a group that waits for nothing; `missing` is returned if there is no such group."""
        with self._lock:
            group = self.find(group_id)
            return missing if group is None else self._step(group, act)

    def tick(self) -> None:
        """Do what is due: sessions that have ended, rebalances whose time is over."""
        with self._lock:
            now = self._clock()
            for group in list(self._groups.values()):
                if group.next_deadline is not None and group.next_deadline <= now:
                    self._step(group, lambda step: None)

    def close(self) -> None:
        """Answer all waiting requests: the coordinator ends."""
        with self._lock:
            for group in self._groups.values():
                for member in group.members.values():
                    for waiter, answer in ((member.joining, join_error), (member.syncing, sync_answer)):
                        if isinstance(waiter, Waiter):
                            waiter.give(answer(ErrorCode.NOT_COORDINATOR))

    def _step(self, group: Group, act: Callable[[Rebalance], _T], first: Iterable[StateRecord] = ()) -> _T:
        step = Rebalance(group, self._clock(), self._limits)
        step.expire()
        result = act(step)
        records = [*first, *((group_record(step.group),) if step.is_written else ())]
        if records:
            self._topic.append(self.partition, records, self._clock())
        if step.group is not group or first:
            self._groups[group.group_id] = step.group
        for waiter, answer in step.answers:
            if isinstance(waiter, Waiter):
                waiter.give(answer)
        return result

    def _wait(self, group_id: str, waiter: Waiter) -> Answer:
        while True:
            with self._lock:
                group = self._groups.get(group_id)
                due = None if group is None else group.next_deadline
                seconds = _LONGEST_WAIT if due is None else max((due - self._clock()) / 1000, 0.001)
            answer = waiter.answer(min(seconds, _LONGEST_WAIT))
            if answer is not None:
                return answer
            self.find(group_id)

    # ---- offsets -------------------------------------------------------------------------------------------

    def offsets(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group."""
        with self._lock:
            return {tp: committed.position for tp, committed in self._offsets.of(group_id).items()}

    def pending(self, group_id: str) -> set[TopicPartition]:
        """The partitions of which open transactions have offsets of a group."""
        with self._lock:
            return self._offsets.pending_of(group_id)

    def commit(
        self,
        group_id: str,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
        check: Callable[[Group | None], ErrorCode],
        *,
        member_id: str = "",
        producer: Producer | None = None,
    ) -> ErrorCode:
        """Commit offsets unless `check` returns an error for the group; in a transaction of `producer`."""
        with self._lock:
            group = self.find(group_id)
            error = check(group)
            if error:
                return error
            if group is not None and member_id in group.members and producer is None:
                self._step(group, lambda step: step.extend_session(member_id))
            records = [
                (encode_key(group_id, tp), encode_value(Commit(position, b"")))
                for tp, position in positions.items()
            ]
            if records:
                at = self._topic.append(self.partition, records, self._clock(), producer)
                producer_id = -1 if producer is None else producer.producer_id
                for number, (tp, position) in enumerate(positions.items()):
                    self._offsets.apply(group_id, tp, Committed(position, at + number), producer_id)
            return error

    def end_transaction(self, producer: Producer, *, commits: bool, epoch: int, version: int) -> None:
        """Append the marker that ends a transaction with offsets. `epoch` is that of the coordinator."""
        with self._lock:
            log = self._topic.log(self.partition)
            append_marker(log, producer, commits=commits, epoch=epoch, now=self._clock(), version=version)
            self._offsets.end(producer.producer_id, commits=commits)

    def remove_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Remove committed offsets, and those of open transactions."""
        with self._lock:
            known = set(self._offsets.of(group_id)) | self._offsets.pending_of(group_id)
            self._remove(group_id, [tp for tp in partitions if tp in known], removes_group=False)

    def delete(self, group_id: str) -> bool:
        """Delete an empty group with its offsets. False if it is not empty."""
        with self._lock:
            group = self.find(group_id)
            if group is not None and group.state is not GroupState.EMPTY:
                return False
            known = set(self._offsets.of(group_id)) | self._offsets.pending_of(group_id)
            self._remove(group_id, known, removes_group=True)
            return True

    def expire_offsets(self, retention_ms: int) -> None:
        """Remove offsets that are older: since the group is empty, or since the commit if the group has no
        protocol, or has members that do not subscribe to the topic. A group without any is removed too."""
        with self._lock:
            before = self._clock() - retention_ms
            for group in self.groups():
                is_empty = group.state is GroupState.EMPTY
                subscribed = set() if is_empty else subscribed_topics(group)
                if subscribed is None or group.state not in (GroupState.EMPTY, GroupState.STABLE):
                    continue
                since = (
                    group.state_since if is_empty and group.protocol_type and group.state_since >= 0 else None
                )
                expired = self._offsets.expired(group.group_id, before, since=since, kept_topics=subscribed)
                others = set(self._offsets.of(group.group_id)) - set(expired)
                is_over = is_empty and not others and not self._offsets.pending_of(group.group_id)
                removes = is_over and not group.pending and group.state_since <= before
                if expired or removes:
                    self._remove(group.group_id, expired, removes_group=removes)

    def _remove(self, group_id: str, partitions: Iterable[TopicPartition], *, removes_group: bool) -> None:
        partitions = list(partitions)
        records: list[StateRecord] = [(encode_key(group_id, tp), None) for tp in partitions]
        if removes_group:
            records.append((group_key(group_id), None))
        if records:
            self._topic.append(self.partition, records, self._clock())
        for tp in partitions:
            self._offsets.apply(group_id, tp, None, -1)
        if removes_group:
            self._groups.pop(group_id, None)


def _group_of_newer(record: Record, file: str) -> str:
    """The group of a record of a group that is not classic. CorruptRecordError."""
    key = record.key or b""
    try:
        (size,) = struct.unpack_from(">h", key, 2)
        if not 0 <= size <= len(key) - 4:
            raise ValueError(f"a name of {size} bytes")
        return key[4 : 4 + size].decode()
    except (struct.error, ValueError) as e:
        raise CorruptRecordError(
            "record of a group", file=file, offset=record.offset, expected="a group id", found=str(e)
        ) from None
