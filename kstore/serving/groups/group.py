"""A classic group and its members as immutable values (Kafka's ClassicGroup)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from kstore.serving.error_codes import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]  # names with the member's metadata, the preferred one first


class GroupState(StrEnum):
    """The state of a group, by the name that Kafka shows."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Member(NamedTuple):
    """A member of a group.

    `deadline` is the end of its session in ms, None while no heartbeat is expected. `joining` and `syncing`
    identify the request that waits for an answer, if there is one. `is_new` is True until the member knows
    its first generation.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    deadline: int | None = None
    joining: Hashable = None
    syncing: Hashable = None

    def metadata(self, protocol: str | None) -> bytes:
        """The metadata for a protocol; empty if the member does not support it."""
        return dict(self.protocols).get(protocol or "", b"")


class InitialDelay(NamedTuple):
    """The wait for further members of a group that was empty: `delay_ms` now, `remaining_ms` at most after
    it. `has_grown`: a member was added during the delay, so it is extended."""

    delay_ms: int
    remaining_ms: int
    has_grown: bool = False


class Group(NamedTuple):
    """A group. Members are in the order in which they joined; `pending` has the member ids that were assigned
    but have not joined, with the end of their sessions; `unsynced` the members without a SyncGroup request of
    this generation. Times and deadlines are in ms."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_since: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: Mapping[str, Member] = MappingProxyType({})
    pending: Mapping[str, int] = MappingProxyType({})
    unsynced: frozenset[str] = frozenset()
    initial: InitialDelay | None = None
    join_deadline: int | None = None
    sync_deadline: int | None = None

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of a member, at least 1."""
        return max(1, *(member.rebalance_timeout_ms for member in self.members.values()), 1)

    @property
    def is_joined(self) -> bool:
        """Whether every member waits for the next generation."""
        return not self.pending and all(each.joining is not None for each in self.members.values())

    @property
    def next_deadline(self) -> int | None:
        """The earliest deadline."""
        sessions = (each.deadline for each in self.members.values())
        found = (self.join_deadline, self.sync_deadline, *self.pending.values(), *sessions)
        return min((each for each in found if each is not None), default=None)

    def static_member(self, instance_id: str) -> Member | None:
        """The member with a group instance id."""
        return next((each for each in self.members.values() if each.instance_id == instance_id), None)

    def candidates(self) -> set[str]:
        """The protocols that every member supports."""
        names = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*names) if names else set()

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols may join."""
        names = set(names)
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and names)
        common = names & self.candidates() if self.members else names
        return protocol_type == self.protocol_type and bool(common)

    def elected_protocol(self) -> str:
        """The protocol with most votes: each member votes for its preferred one of the candidates."""
        candidates = self.candidates()
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates)
            for member in self.members.values()
        )
        return max(votes, key=votes.__getitem__)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """The error for a request of a member, by its ids."""
        if instance_id is not None:
            known = self.static_member(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool
    ) -> ErrorCode:
        """The error for a commit of offsets. Without a generation it comes from an administrator or from a
        consumer that is no member, and the group must be empty."""
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id or instance_id is not None:
            error = self.check_member(member_id, instance_id)
            if error:
                return error
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is GroupState.COMPLETING and not is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE
