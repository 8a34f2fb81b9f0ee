"""What a request or a passed deadline does to a group: a group and the present time in, the new group and the
answers to waiting requests out (Kafka's GroupMetadataManager, classic groups). There is no I/O here."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from kstore.serving.error_codes import ErrorCode
from kstore.serving.failures import Answer
from kstore.serving.groups.group import Group, GroupState, InitialDelay, Member, Protocols

_REBALANCES = (GroupState.EMPTY, GroupState.COMPLETING, GroupState.STABLE)  # from these


class GroupLimits(NamedTuple):
    """Settings of the coordinator, with Kafka's names without `group.`. The delay and the largest size differ
    from Kafka's defaults, 3 s and no limit; ids that were assigned but have not joined count in the size."""

    initial_rebalance_delay_ms: int = 0
    max_size: int = 1_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    new_member_join_timeout_ms: int = 300_000


class JoinRequest(NamedTuple):
    """A JoinGroup request. `new_id` is the member id for a member that has none yet; `requires_id` and
    `skips_assignment` depend on the version of the request."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    new_id: str
    requires_id: bool = True
    skips_assignment: bool = False


class SyncRequest(NamedTuple):
    """A SyncGroup request; only the leader's has assignments."""

    member_id: str
    instance_id: str | None
    generation: int
    assignments: Mapping[str, bytes]
    protocol_type: str | None = None
    protocol: str | None = None


def join_answer(group: Group, member_id: str, **others: Any) -> Answer:
    """The answer to a member that has joined the group's generation."""
    return {
        "errorCode": 0,
        "generationId": group.generation,
        "protocolType": group.protocol_type,
        "protocolName": group.protocol,
        "leader": group.leader or "",
        "skipAssignment": False,
        "memberId": member_id,
        "members": [],
        **others,
    }


def join_error(error: ErrorCode, member_id: str = "") -> Answer:
    """The answer to a member that has not joined."""
    return {
        "errorCode": int(error),
        "generationId": -1,
        "protocolType": None,
        "protocolName": None,
        "leader": "",
        "skipAssignment": False,
        "memberId": member_id,
        "members": [],
    }


def sync_answer(error: ErrorCode, group: Group | None = None, assignment: bytes = b"") -> Answer:
    """The answer to a SyncGroup request."""
    return {
        "errorCode": int(error),
        "protocolType": None if group is None else group.protocol_type,
        "protocolName": None if group is None else group.protocol,
        "assignment": assignment,
    }


def _described(group: Group) -> list[Answer]:
    """The members, for the leader."""
    return [
        {
            "memberId": each.member_id,
            "groupInstanceId": each.instance_id,
            "metadata": each.metadata(group.protocol),
        }
        for each in group.members.values()
    ]


class Rebalance:
    """One step of a group. `group` is the group after it, `answers` the answers to waiting requests,
    `is_written` whether the group must be in the log before the answers are sent."""

    def __init__(self, group: Group, now: int, limits: GroupLimits) -> None:
        self.group = group
        self.answers: list[tuple[Hashable, Answer]] = []
        self.is_written = False
        self._now = now
        self._limits = limits

    # ---- requests ------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: Hashable) -> None:
        """Let a member join; `waiter` identifies the request in `answers`, now or in a later step."""
        group, member_id = self.group, request.member_id
        if not self._accepts(member_id):
            self._remove(member_id)
            self._answer(waiter, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(request.protocol_type, (name for name, _ in request.protocols)):
            self._answer(waiter, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif not member_id:
            self._join_new(request, waiter)
        elif member_id in group.pending and request.instance_id is None:
            self._add(request, member_id, waiter)
        elif error := group.check_member(member_id, request.instance_id):
            self._answer(waiter, join_error(error, member_id))
        else:
            self._join_again(request, group.members[member_id], waiter)

    def sync(self, request: SyncRequest, waiter: Hashable) -> None:
        """Take the leader's assignments, or wait for them."""
        group = self.group
        error = self._check_sync(request)
        if error:
            self._answer(waiter, sync_answer(error))
            return
        member = group.members[request.member_id]
        self._set(unsynced=group.unsynced - {member.member_id})
        if not self.group.unsynced:
            self._set(sync_deadline=None)
        if group.state is GroupState.STABLE:
            self._answer(waiter, sync_answer(ErrorCode.NONE, group, member.assignment))
            return
        self._give_up(member.syncing, sync_answer(ErrorCode.REBALANCE_IN_PROGRESS))
        self._put(member._replace(syncing=waiter))
        if member.member_id == group.leader:
            given = request.assignments
            self._put(
                *(
                    each._replace(assignment=given.get(each.member_id, b""))
                    for each in self.group.members.values()
                )
            )
            self._answer_syncing(ErrorCode.NONE)
            self._enter(GroupState.STABLE)
            self.is_written = True

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Extend the session of a member."""
        group = self.group
        error = group.check_member(member_id, instance_id)
        if error:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.extend_session(member_id)
        rebalances = group.state is GroupState.PREPARING
        return ErrorCode.REBALANCE_IN_PROGRESS if rebalances else ErrorCode.NONE

    def extend_session(self, member_id: str) -> None:
        """Note that a member is alive."""
        member = self.group.members[member_id]
        self._put(member._replace(deadline=self._now + member.session_timeout_ms))

    def leave(self, leaving: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """Remove members, given by member id and group instance id; without a member id an administrator
        removes a static one. Returns the error of each."""
        errors = [self._leave(member_id, instance_id) for member_id, instance_id in leaving]
        if ErrorCode.NONE in errors:
            if self.group.state is GroupState.PREPARING:
                self._maybe_complete()
            elif self.group.state is not GroupState.EMPTY:
                self._prepare()
        return errors

    def expire(self) -> None:
        """Do what is due at the present time."""
        while (due := self.group.next_deadline) is not None and due <= self._now:
            if self.group.join_deadline == due:
                self._end_join()
            elif self.group.sync_deadline == due:
                self._end_sync()
            else:
                self._end_session(due)

    # ---- joining -------------------------------------------------------------------------------------------

    def _accepts(self, member_id: str) -> bool:
        group = self.group
        member = group.members.get(member_id)
        if not member_id and len(group.members) + len(group.pending) >= self._limits.max_size:
            return False
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING:  # the last to rejoin a group that has become too large leave
            waiting = sum(each.joining is not None for each in group.members.values())
            return (member is not None and member.joining is not None) or waiting < self._limits.max_size
        return member is not None or len(group.members) < self._limits.max_size

    def _join_new(self, request: JoinRequest, waiter: Hashable) -> None:
        known = None if request.instance_id is None else self.group.static_member(request.instance_id)
        if known is not None:
            self._replace_static(known, request, waiter)
        elif request.instance_id is None and request.requires_id:
            deadline = self._now + request.session_timeout_ms
            self._set(pending={**self.group.pending, request.new_id: deadline})
            self._answer(waiter, join_error(ErrorCode.MEMBER_ID_REQUIRED, request.new_id))
        else:
            self._add(request, request.new_id, waiter)

    def _add(self, request: JoinRequest, member_id: str, waiter: Hashable) -> None:
        """A new member cannot send heartbeats before it knows its id, so it has a limit of its own."""
        group = self.group
        if not group.members:
            self._set(protocol_type=request.protocol_type)
        if group.initial is not None:
            self._set(initial=group.initial._replace(has_grown=True))
        self._set(
            pending={each: at for each, at in group.pending.items() if each != member_id},
            leader=group.leader or member_id,
        )
        self._put(
            Member(
                member_id,
                request.instance_id,
                request.client_id,
                request.client_host,
                request.rebalance_timeout_ms,
                request.session_timeout_ms,
                request.protocols,
                is_new=True,
                deadline=self._now + self._limits.new_member_join_timeout_ms,
                joining=waiter,
            )
        )
        self._rebalance()

    def _join_again(self, request: JoinRequest, member: Member, waiter: Hashable) -> None:
        """A member of the present generation joins. If nothing about it has changed it gets the present
        generation again, except the leader of a stable group, which joins to force a rebalance."""
        group = self.group
        is_leader = member.member_id == group.leader
        is_unchanged = member.protocols == request.protocols
        if group.state is GroupState.COMPLETING and is_unchanged:
            members = _described(group) if is_leader else []
            self._answer(waiter, join_answer(group, member.member_id, members=members))
        elif group.state is GroupState.STABLE and is_unchanged and not is_leader:
            self._answer(waiter, join_answer(group, member.member_id))
        else:
            self._update(member, request, waiter)
            self._rebalance()

    def _update(self, member: Member, request: JoinRequest, waiter: Hashable) -> None:
        self._give_up(member.joining, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self._put(
            member._replace(
                protocols=request.protocols,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                session_timeout_ms=request.session_timeout_ms,
                joining=waiter,
            )
        )

    def _replace_static(self, known: Member, request: JoinRequest, waiter: Hashable) -> None:
        """A static member has restarted: it replaces the one of its instance id, which is fenced. A stable
        group goes on without a rebalance if its protocol does not change."""
        leader = self.group.leader
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._give_up(known.joining, join_error(fenced, known.member_id))
        self._give_up(known.syncing, sync_answer(fenced))
        deadline = self._now + known.session_timeout_ms
        member = known._replace(member_id=request.new_id, joining=None, syncing=None, deadline=deadline)
        others = {each: at for each, at in self.group.members.items() if each != known.member_id}
        unsynced = self.group.unsynced - {known.member_id}
        self._set(members=others, leader=request.new_id if leader == known.member_id else leader)
        self._set(unsynced=unsynced)
        self._update(member, request, waiter)
        group = self.group
        if group.state is not GroupState.STABLE:
            self._rebalance()
        elif group.elected_protocol() != group.protocol:
            self._prepare()
        else:
            self.is_written = True
            self._put(group.members[request.new_id]._replace(joining=None))
            if request.skips_assignment and group.leader == request.new_id:
                others_of = {"members": _described(group), "skipAssignment": True}
                self._answer(waiter, join_answer(group, request.new_id, **others_of))
            else:  # under its old id it does not take itself for the leader, and so assigns nothing
                self._answer(waiter, join_answer(group, request.new_id, leader=leader or ""))

    # ---- generations ---------------------------------------------------------------------------------------

    def _rebalance(self) -> None:
        if self.group.state in _REBALANCES:
            self._prepare()
        else:
            self._maybe_complete()

    def _prepare(self) -> None:
        """Begin a rebalance: members that wait for an assignment must join again."""
        group = self.group
        if group.state is GroupState.COMPLETING:
            self._put(*(each._replace(assignment=b"") for each in group.members.values()))
            self._answer_syncing(ErrorCode.REBALANCE_IN_PROGRESS)
        self._set(unsynced=frozenset(), sync_deadline=None)
        is_initial = group.state is GroupState.EMPTY
        self._enter(GroupState.PREPARING)
        if is_initial:
            delay = self._limits.initial_rebalance_delay_ms
            remaining = max(group.rebalance_timeout_ms - delay, 0)
            self._set(initial=InitialDelay(delay, remaining), join_deadline=self._now + delay)
            if not delay:
                self._complete()
        elif self.group.is_joined:
            self._complete()
        else:
            self._set(join_deadline=self._now + group.rebalance_timeout_ms)

    def _maybe_complete(self) -> None:
        group = self.group
        if group.state is GroupState.PREPARING and group.initial is None and group.is_joined:
            self._complete()

    def _end_join(self) -> None:
        """The time to join is over; the initial delay is extended while members are added."""
        initial = self.group.initial
        if initial is not None and initial.has_grown and initial.remaining_ms:
            delay = min(self._limits.initial_rebalance_delay_ms, initial.remaining_ms)
            remaining = max(initial.remaining_ms - initial.delay_ms, 0)
            self._set(initial=InitialDelay(delay, remaining), join_deadline=self._now + delay)
        else:
            self._complete()

    def _complete(self) -> None:
        """Begin the next generation, of the members that have joined. Static ones that have not joined stay;
        if there are only such, their sessions are waited for."""
        for each in list(self.group.members.values()):
            if each.joining is None and each.instance_id is None:
                self._remove(each.member_id)
        group = self.group
        joined = [each.member_id for each in group.members.values() if each.joining is not None]
        if group.members and not joined:
            self._set(join_deadline=self._now + group.rebalance_timeout_ms)
            return
        generation = group.generation + 1
        self._set(generation=generation, initial=None, join_deadline=None, unsynced=frozenset())
        if not joined:
            self._set(protocol=None)
            self._enter(GroupState.EMPTY)
            self.is_written = True
            return
        if group.leader not in joined:
            self._set(leader=joined[0])
        self._set(protocol=group.elected_protocol(), unsynced=frozenset(group.members))
        self._set(sync_deadline=self._now + group.rebalance_timeout_ms)
        self._enter(GroupState.COMPLETING)
        group = self.group
        for each in group.members.values():
            members = _described(group) if each.member_id == group.leader else []
            if each.joining is not None:
                self._answer(each.joining, join_answer(group, each.member_id, members=members))
        self._put(
            *(
                each._replace(joining=None, is_new=False, deadline=self._now + each.session_timeout_ms)
                for each in group.members.values()
            )
        )

    def _end_sync(self) -> None:
        """Members that have joined but did not send SyncGroup leave."""
        unsynced = self.group.unsynced
        self._set(sync_deadline=None)
        for member_id in unsynced:
            self._remove(member_id)
        self._prepare()

    def _end_session(self, due: int) -> None:
        group = self.group
        for member_id, deadline in group.pending.items():
            if deadline == due:
                self._remove(member_id)
                if group.state is GroupState.PREPARING and self.group.is_joined:
                    self._complete()
                return
        member = next(each for each in group.members.values() if each.deadline == due)
        if not member.is_new and (member.joining is not None or member.syncing is not None):
            self._put(member._replace(deadline=None))  # its request waits, so it cannot send a heartbeat
            return
        self._remove(member.member_id)
        if group.state is not GroupState.PREPARING:
            self._prepare()
        elif self.group.is_joined:
            self._complete()

    # ---- syncing and leaving -------------------------------------------------------------------------------

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        group = self.group
        error = group.check_member(request.member_id, request.instance_id)
        if error:
            return error
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        pairs = ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol))
        if any(None not in pair and pair[0] != pair[1] for pair in pairs):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        rebalances = group.state is GroupState.PREPARING
        return ErrorCode.REBALANCE_IN_PROGRESS if rebalances else ErrorCode.NONE

    def _leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if not member_id:
            known = None if instance_id is None else self.group.static_member(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = known.member_id
        elif member_id not in self.group.pending:
            error = self.group.check_member(member_id, instance_id)
            if error:
                return error
        self._remove(member_id)
        return ErrorCode.NONE

    def _remove(self, member_id: str) -> None:
        group = self.group
        member = group.members.get(member_id)
        members = {each: at for each, at in group.members.items() if each != member_id}
        leader = next(iter(members), None) if group.leader == member_id else group.leader
        pending = {each: at for each, at in group.pending.items() if each != member_id}
        self._set(members=members, leader=leader, pending=pending, unsynced=group.unsynced - {member_id})
        if member is not None:
            self._give_up(member.joining, join_error(ErrorCode.UNKNOWN_MEMBER_ID))
            self._give_up(member.syncing, sync_answer(ErrorCode.UNKNOWN_MEMBER_ID))

    # ---- changes -------------------------------------------------------------------------------------------

    def _answer_syncing(self, error: ErrorCode) -> None:
        """Answer members that wait for an assignment; their sessions begin anew."""
        waiting = [each for each in self.group.members.values() if each.syncing is not None]
        for each in waiting:
            known = None if error else self.group
            self._answer(each.syncing, sync_answer(error, known, each.assignment))
        self._put(
            *(each._replace(syncing=None, deadline=self._now + each.session_timeout_ms) for each in waiting)
        )

    def _give_up(self, waiter: Hashable, answer: Answer) -> None:
        if waiter is not None:
            self._answer(waiter, answer)

    def _answer(self, waiter: Hashable, answer: Answer) -> None:
        self.answers.append((waiter, answer))

    def _enter(self, state: GroupState) -> None:
        self._set(state=state, state_since=self._now)

    def _put(self, *members: Member) -> None:
        self._set(members={**self.group.members, **{each.member_id: each for each in members}})

    def _set(self, **changes: Any) -> None:
        self.group = self.group._replace(**changes)
