"""The decisions about a group, without files and threads: tables of requests, and random lives of members."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore.serving.error_codes import ErrorCode
from kstore.serving.groups.group import Group, GroupState
from kstore.serving.groups.rebalance import Answer, GroupLimits, JoinRequest, Rebalance, SyncRequest
from tests.helpers.effort import times

RANGE = (("range", b"r"), ("sticky", b"s"))
SESSION, REBALANCE = 10_000, 30_000


class Life:
    """A group in time: each request has a number, and the answers are kept by it."""

    def __init__(self, **limits: int) -> None:
        self.group = Group("g")
        self.now = 1_000_000
        self.limits = GroupLimits(**limits)
        self.answers: dict[int, Answer] = {}
        self.waiting = 0
        self.written: list[Group] = []

    def step(self) -> Rebalance:
        step = Rebalance(self.group, self.now, self.limits)
        step.expire()
        return step

    def take(self, step: Rebalance) -> None:
        self.group = step.group
        for waiter, answer in step.answers:
            assert isinstance(waiter, int)
            assert waiter not in self.answers, "a request was answered twice"
            self.answers[waiter] = answer
        if step.is_written:
            self.written.append(step.group)

    def join(
        self, member: str = "", instance: str | None = None, protocols=RANGE, kind="consumer", **others: bool
    ) -> int:
        self.waiting += 1
        new_id = f"{instance or 'm'}-{self.waiting}"
        step = self.step()
        request = JoinRequest(
            member, instance, "c", "/h", kind, protocols, SESSION, REBALANCE, new_id, **others
        )
        step.join(request, self.waiting)
        self.take(step)
        return self.waiting

    def enter(self, instance: str | None = None) -> str:
        """A member that joins with the id that it gets; it may have to wait."""
        waiter = self.join(instance=instance)
        if instance is None:
            assert self.answers[waiter]["errorCode"] == ErrorCode.MEMBER_ID_REQUIRED
            member: str = self.answers[waiter]["memberId"]
            self.last = self.join(member)
            return member
        self.last = waiter
        return f"{instance}-{waiter}"

    def sync(
        self, member: str, generation: int | None = None, instance: str | None = None, **others: str
    ) -> int:
        self.waiting += 1
        step = self.step()
        assigned = {each: f"{self.group.generation}:{each}".encode() for each in self.group.members}
        generation = self.group.generation if generation is None else generation
        step.sync(SyncRequest(member, instance, generation, assigned, **others), self.waiting)
        self.take(step)
        return self.waiting

    def heartbeat(self, member: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        step = self.step()
        error = step.heartbeat(member, instance, self.group.generation if generation is None else generation)
        self.take(step)
        return error

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        step = self.step()
        errors = step.leave(members)
        self.take(step)
        return errors

    def pass_on(self, ms: int) -> None:
        self.now += ms
        self.take(self.step())

    def error(self, waiter: int) -> int:
        code: int = self.answers[waiter]["errorCode"]
        return code


def stable(*instances: str | None, **limits: int) -> tuple[Life, list[str]]:
    """A stable group with members."""
    life = Life(**limits)
    members = [life.enter(each) for each in instances]
    for _ in range(2):  # those that wait for a rebalance, and those that must join again
        for member, instance in zip(members, instances, strict=True):
            if life.group.state is GroupState.PREPARING and life.group.members[member].joining is None:
                life.join(member, instance)
    assert life.group.state is GroupState.COMPLETING
    leader = life.group.leader
    for member in sorted(members, key=lambda each: each == leader):
        life.sync(member)
    assert life.group.state is GroupState.STABLE
    return life, members


# ---- tables ------------------------------------------------------------------------------------------------


def test_a_first_member_leads_the_first_generation() -> None:
    life = Life()
    member = life.enter()
    answer = life.answers[life.last]
    assert (answer["errorCode"], answer["generationId"], answer["leader"]) == (0, 1, member)
    assert answer["members"] == [{"memberId": member, "groupInstanceId": None, "metadata": b"r"}]
    assert life.group.state is GroupState.COMPLETING
    waiter = life.sync(member)
    assert life.answers[waiter]["assignment"] == f"1:{member}".encode()
    assert life.written == [life.group]
    assert life.heartbeat(member) == ErrorCode.NONE


def test_a_second_member_makes_the_first_join_again() -> None:
    life, (first,) = stable(None)
    second = life.enter()
    joining = life.last
    assert joining not in life.answers
    assert life.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    again = life.join(first)
    assert [life.answers[each]["generationId"] for each in (joining, again)] == [2, 2]
    assert len(life.answers[again]["members"]) == 2
    assert life.answers[joining]["members"] == []
    waiting = life.sync(second)
    assert waiting not in life.answers
    life.sync(first)
    assert life.answers[waiting]["assignment"] == f"2:{second}".encode()


def test_old_versions_join_without_an_id_of_their_own() -> None:
    life = Life()
    assert life.error(life.join(requires_id=False)) == 0


@pytest.mark.parametrize(
    ("state", "expected"),
    [("stable", ErrorCode.NONE), ("completing", ErrorCode.NONE), ("preparing", 27), ("empty", 25)],
)
def test_heartbeats_in_each_state(state: str, expected: int) -> None:
    life, (member,) = stable(None)
    if state == "completing":
        life.join(member)  # the leader forces a rebalance
    elif state == "preparing":
        life.enter()
    elif state == "empty":
        life.leave((member, None))
    assert life.group.state.lower().startswith(state)
    assert life.heartbeat(member) == expected


@pytest.mark.parametrize("generation", [0, 2])
def test_another_generation_is_refused(generation: int) -> None:
    life, (member,) = stable(None)
    assert life.heartbeat(member, generation) == ErrorCode.ILLEGAL_GENERATION
    assert life.error(life.sync(member, generation)) == ErrorCode.ILLEGAL_GENERATION
    commit = life.group.check_commit(member, None, generation, is_transactional=False)
    assert commit == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("kind", "protocols", "expected"),
    [
        ("connect", RANGE, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", (("other", b""),), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", (), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", (("sticky", b""), ("other", b"")), ErrorCode.MEMBER_ID_REQUIRED),
    ],
)
def test_protocols_must_have_one_in_common(kind: str, protocols: object, expected: ErrorCode) -> None:
    life, _ = stable(None)
    assert life.error(life.join(protocols=protocols, kind=kind)) == expected


def test_members_vote_for_a_protocol() -> None:
    life, members = stable(None, None, None)
    for number, member in enumerate(members):
        preferred = ("range", "sticky") if number == 0 else ("sticky", "range")
        life.join(member, protocols=tuple((name, name.encode()) for name in preferred))
    assert life.group.protocol == "sticky"


def test_protocol_in_a_sync() -> None:
    life, (member,) = stable(None)
    assert life.error(life.sync(member, protocol_type="connect")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert life.error(life.sync(member, protocol="sticky")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert life.error(life.sync(member, protocol="range")) == ErrorCode.NONE


def test_a_member_that_lost_its_answer_gets_it_again() -> None:
    life, (first, second) = stable(None, None)
    written = len(life.written)
    answer = life.answers[life.join(second)]  # unchanged, and no leader
    assert (answer["generationId"], answer["members"]) == (life.group.generation, [])
    assert life.error(life.sync(second)) == 0
    assert life.group.state is GroupState.STABLE
    assert len(life.written) == written
    life.join(second, protocols=(("range", b"new"),))
    assert life.group.state is GroupState.PREPARING
    life.join(first)
    assert life.group.generation == 3


def test_a_session_that_ends() -> None:
    life, (first, second) = stable(None, None)
    life.pass_on(SESSION - 1)
    assert life.heartbeat(first) == ErrorCode.NONE
    life.pass_on(1)
    assert life.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert life.heartbeat(second) == ErrorCode.UNKNOWN_MEMBER_ID
    assert life.error(life.join(second)) == ErrorCode.UNKNOWN_MEMBER_ID
    life.join(first)
    assert list(life.group.members) == [first]


def test_a_member_that_does_not_join_again_is_left_behind() -> None:
    life, (first, second) = stable(None, None)
    waiter = life.join(first)
    for _ in range(REBALANCE // 1000):
        assert waiter not in life.answers
        life.pass_on(1000)
        life.heartbeat(second)
    assert life.answers[waiter]["generationId"] == 3
    assert list(life.group.members) == [first]


def test_members_that_do_not_sync_are_removed() -> None:
    life, (first, second) = stable(None, None)
    life.join(first)
    life.join(second)
    life.sync(first)
    for _ in range(REBALANCE // 1000):
        life.pass_on(1000)
        errors = life.heartbeat(first), life.heartbeat(second)
    assert errors == (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_member_that_never_uses_its_id_does_not_hold_up_others() -> None:
    life, (first,) = stable(None)
    life.join()  # gets an id, and is gone
    waiter = life.join(first)
    assert waiter not in life.answers
    life.pass_on(SESSION)
    assert life.answers[waiter]["generationId"] == 2


def test_leaving() -> None:
    life, (first, second) = stable(None, "static")
    assert life.leave(("nobody", None), (second, "static"), ("", "static"), ("", None)) == [25, 0, 25, 25]
    assert life.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    life.join(first)
    life.sync(first)
    assert life.leave((first, None)) == [0]
    assert life.group.state is GroupState.EMPTY
    assert life.written[-1].members == {}
    assert life.leave((first, None)) == [25]


def test_requests_of_a_member_that_leaves_are_answered() -> None:
    life, (first, second) = stable(None, None)
    joining = life.join(first)
    life.leave((first, None))
    assert life.error(joining) == ErrorCode.UNKNOWN_MEMBER_ID
    life.join(second)
    life.enter()
    life.join(second)
    third = next(each for each in life.group.members if each != life.group.leader)
    syncing = life.sync(third)
    life.leave((third, None))
    assert life.error(syncing) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_a_static_member() -> None:
    life, (member,) = stable("static")
    assert life.leave(("", "static")) == [0]
    assert life.heartbeat(member, instance="static") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_restarts_without_a_rebalance() -> None:
    life, (first, second) = stable(None, "static")
    written = len(life.written)
    answer = life.answers[life.join(instance="static")]
    renewed = answer["memberId"]
    assert (answer["errorCode"], answer["generationId"]) == (0, life.group.generation)
    assert renewed != second
    assert life.group.state is GroupState.STABLE
    assert len(life.written) == written + 1
    assert life.answers[life.sync(renewed, instance="static")]["assignment"] == f"2:{second}".encode()
    for call in (life.heartbeat(second, instance="static"), life.leave((second, "static"))[0]):
        assert call == ErrorCode.FENCED_INSTANCE_ID
    assert life.error(life.join(second, "static")) == ErrorCode.FENCED_INSTANCE_ID
    assert life.error(life.sync(second, instance="static")) == ErrorCode.FENCED_INSTANCE_ID
    commit = life.group.check_commit(second, "static", life.group.generation, is_transactional=False)
    assert commit == ErrorCode.FENCED_INSTANCE_ID
    assert life.heartbeat(first) == ErrorCode.NONE


def test_a_static_leader_restarts() -> None:
    life, (leader, _) = stable("one", "two")
    answer = life.answers[life.join(instance="one")]
    assert answer["leader"] == leader  # which it is not, so it assigns nothing
    assert life.group.leader == answer["memberId"]
    answer = life.answers[life.join(instance="one", skips_assignment=True)]
    assert (answer["leader"], answer["skipAssignment"]) == (answer["memberId"], True)
    assert len(answer["members"]) == 2


def test_a_static_member_restarts_with_other_protocols() -> None:
    life, _ = stable("one")
    waiter = life.join(instance="one", protocols=(("sticky", b""),))
    assert life.answers[waiter]["generationId"] == 2
    assert life.group.protocol == "sticky"


def test_a_static_member_stays_while_it_is_away() -> None:
    life, (first, static) = stable(None, "static")
    waiter = life.join(first)
    life.now += SESSION - 1
    life.heartbeat(static, instance="static")
    for _ in range(4):
        life.pass_on(SESSION - 1)
        life.heartbeat(static, instance="static")
    assert life.answers[waiter]["generationId"] == 3
    assert list(life.group.members) == [first, static]


def test_the_initial_delay_waits_for_more_members() -> None:
    life = Life(initial_rebalance_delay_ms=3000)
    life.enter()
    first = life.last
    life.pass_on(2000)
    life.enter()
    second = life.last
    life.pass_on(1000)
    assert not {first, second} & set(life.answers)
    life.pass_on(3000)
    assert [life.answers[each]["generationId"] for each in (first, second)] == [1, 1]
    assert life.group.generation == 1


def test_a_group_has_a_largest_size() -> None:
    pending = Life(max_size=2)
    assert [pending.error(pending.join()) for _ in range(3)] == [79, 79, ErrorCode.GROUP_MAX_SIZE_REACHED]
    life, (first, second) = stable(None, None, max_size=2)
    assert life.error(life.join()) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert life.heartbeat(first) == life.heartbeat(second) == ErrorCode.NONE


def test_a_repeated_request_replaces_the_first() -> None:
    life, (first, second) = stable(None, None)
    waiters = [life.join(second, protocols=(("range", b"new"),)), life.join(second)]
    assert life.error(waiters[0]) == ErrorCode.REBALANCE_IN_PROGRESS
    life.join(first)
    assert life.error(waiters[1]) == 0
    syncs = [life.sync(second), life.sync(second)]
    life.sync(first)
    assert [life.error(each) for each in syncs] == [ErrorCode.REBALANCE_IN_PROGRESS, 0]


@pytest.mark.parametrize(
    ("member", "generation", "state", "expected", "in_transaction"),
    [
        ("own", 1, "stable", 0, 0),
        ("own", 0, "stable", 22, 22),
        ("other", 1, "stable", 25, 25),
        ("", -1, "stable", 25, 0),
        ("", -1, "empty", 0, 0),
        ("own", 2, "completing", 27, 0),
        ("own", 1, "preparing", 0, 0),
    ],
)
def test_who_may_commit(member: str, generation: int, state: str, expected: int, in_transaction: int) -> None:
    life, (own,) = stable(None)
    if state == "completing":
        life.join(own)
    elif state == "preparing":
        life.enter()
    elif state == "empty":
        life.leave((own, None))
    member = own if member == "own" else member
    checks = [
        life.group.check_commit(member, None, generation, is_transactional=each) for each in (False, True)
    ]
    assert checks == [expected, in_transaction]


# ---- random lives ------------------------------------------------------------------------------------------


@dataclass
class Client:
    """A consumer, which does what its last answers ask for, if it is its turn."""

    instance: str | None
    member: str = ""
    generation: int = -1
    joining: int | None = None
    syncing: int | None = None
    assigned: bytes | None = None
    history: list[str] = field(default_factory=list)

    def hear(self, life: Life) -> None:
        """Takes the answers that have come."""
        for kind in ("joining", "syncing"):
            waiter = getattr(self, kind)
            if waiter is None or waiter not in life.answers:
                continue
            setattr(self, kind, None)
            answer = life.answers[waiter]
            error = answer["errorCode"]
            self.assigned = None
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.member, self.generation = "", -1
            elif error == ErrorCode.MEMBER_ID_REQUIRED:
                self.member = answer["memberId"]
            elif error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
                self.generation = -1
            elif kind == "joining":
                assert error == 0, answer
                self.member, self.generation = answer["memberId"], answer["generationId"]
            else:
                assert error == 0, answer
                self.assigned = answer["assignment"]

    def act(self, life: Life, what: str) -> None:
        if what == "restart":
            self.member, self.generation, self.joining, self.syncing, self.assigned = "", -1, None, None, None
        if what == "leave" and self.member:
            life.leave((self.member, self.instance))
            self.member, self.generation, self.assigned = "", -1, None
        elif what == "again" and self.joining is not None:
            self.joining = life.join(self.member, self.instance)
        elif self.joining is None and self.syncing is None:
            if self.generation < 0 or what == "rejoin":
                protocols = RANGE if what != "change" else RANGE[::-1]
                self.joining = life.join(self.member, self.instance, protocols)
            elif self.assigned is None:
                self.syncing = life.sync(self.member, self.generation, self.instance)
            else:
                error = life.heartbeat(self.member, self.generation, self.instance)
                if error:
                    self.generation, self.assigned = -1, None
                    if error != ErrorCode.REBALANCE_IN_PROGRESS:
                        self.member = ""


ACTIONS = st.sampled_from(["go", "go", "go", "go", "rejoin", "change", "again", "leave", "restart", "time"])


@settings(max_examples=times(150))
@given(
    st.lists(
        st.tuples(ACTIONS, st.integers(0, 4), st.sampled_from([1, 500, 4000, 9999, 31_000])), max_size=60
    ),
    st.sampled_from([0, 3000]),
)
def test_random_lives(actions: list[tuple[str, int, int]], delay: int) -> None:
    """At each moment one generation counts, whose members have the leader's assignments; a member of another
    is refused; no request waits for ever."""
    life = Life(initial_rebalance_delay_ms=delay)
    clients = [Client(None), Client(None), Client(None), Client("one"), Client("two")]

    def check() -> None:
        for each in clients:
            each.hear(life)
        group = life.group
        assert not (group.unsynced or group.sync_deadline) or group.state not in (
            "Empty",
            "PreparingRebalance",
        )
        assert (group.state == GroupState.EMPTY) == (not group.members) or group.state == GroupState.PREPARING
        assert group.leader in group.members or not group.members
        for each in clients:
            error = group.check_commit(each.member, each.instance, each.generation, is_transactional=False)
            if each.generation >= 0 and each.member:
                is_current = each.generation == group.generation and each.member in group.members
                if group.state is not GroupState.COMPLETING:
                    assert (error == ErrorCode.NONE) == is_current
            if group.state is GroupState.STABLE and each.generation == group.generation and each.assigned:
                assert each.assigned == group.members[each.member].assignment
        for waiter in range(1, life.waiting + 1):
            assert waiter in life.answers or group.next_deadline is not None

    for what, number, ms in actions:
        if what == "time":
            life.pass_on(ms)
        else:
            clients[number].act(life, what)
        check()
    for _ in range(40):  # with members that all do their part, a generation of all of them becomes stable
        for each in clients:
            each.act(life, "go")
            check()
        life.pass_on(2000)
        check()
    assert life.group.state is GroupState.STABLE
    current = {each.member for each in clients if each.generation == life.group.generation}
    assert current == set(life.group.members)
    assert len({each.assigned for each in clients}) == len(clients)
    life.pass_on(10**9)  # and if all of them are gone, the group is empty
    assert life.group.state is GroupState.EMPTY
    assert set(life.answers) == set(range(1, life.waiting + 1))
    assert life.group.next_deadline is None
