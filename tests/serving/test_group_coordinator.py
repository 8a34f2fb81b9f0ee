"""The coordinator of groups over a store: requests, their records, and what a restart finds."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.messages.topics import decode_offsets
from kstore.serving.error_codes import ErrorCode
from kstore.serving.groups.coordinator import GroupCoordinator
from kstore.serving.groups.rebalance import GroupLimits
from kstore.store.consumer_offsets import committed_in
from tests.helpers.clock import Clock
from tests.helpers.waiting import until
from tests.serving.requests import Connection, call

SESSION = 10_000
DAY = 86_400_000


class Server:
    """A store with a coordinator, which may be started again."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.pool = ThreadPoolExecutor(8)
        self.start()

    def start(self) -> None:
        self.store = kstore.LogStore(self.path, mode="a", clock=self.clock, background=False)
        self.groups = GroupCoordinator(self.store, self.clock, partitions=3, limits=GroupLimits())

    def stop(self) -> None:
        self.groups.close()
        self.store.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def join(self, member: str = "", instance: str | None = None, group: str = "g") -> dict[str, Any]:
        return call(
            self.groups.join_group,
            groupId=group,
            sessionTimeoutMs=SESSION,
            rebalanceTimeoutMs=SESSION,
            memberId=member,
            groupInstanceId=instance,
            protocolType="consumer",
            protocols=[
                {"name": "range", "metadata": b"\0\0" + b"\0\0\0\1\0\x06orders" + b"\xff\xff\xff\xff"}
            ],
        )

    def enter(self, group: str = "g") -> Future[dict[str, Any]]:
        member = self.join(group=group)["memberId"]
        return self.pool.submit(self.join, member, group=group)

    def sync(self, joined: dict[str, Any], group: str = "g", **assigned: bytes) -> dict[str, Any]:
        assignments = [{"memberId": each["memberId"], "assignment": each["memberId"].encode()}
                       for each in joined["members"]]  # fmt: skip
        return call(
            self.groups.sync_group,
            groupId=group,
            generationId=joined["generationId"],
            memberId=joined["memberId"],
            assignments=assignments,
        )

    def heartbeat(self, joined: dict[str, Any], group: str = "g") -> int:
        answer = call(
            self.groups.heartbeat,
            groupId=group,
            generationId=joined["generationId"],
            memberId=joined["memberId"],
        )
        code: int = answer["errorCode"]
        return code

    def commit(
        self, offset: int, member: str = "", generation: int = -1, group: str = "g", topic: str = "orders"
    ) -> int:
        position = {"partitionIndex": 0, "committedOffset": offset, "committedMetadata": "m"}
        answer = call(
            self.groups.offset_commit,
            groupId=group,
            generationIdOrMemberEpoch=generation,
            memberId=member,
            topics=[{"name": topic, "partitions": [position]}],
        )
        code: int = answer["topics"][0]["partitions"][0]["errorCode"]
        return code

    def committed(self, group: str = "g") -> dict[str, int]:
        answer = call(self.groups.offset_fetch, groupId=group, topics=None)
        return {
            f"{topic['name']}-{each['partitionIndex']}": each["committedOffset"]
            for topic in answer["topics"]
            for each in topic["partitions"]
        }

    def describe(self, group: str = "g") -> dict[str, Any]:
        (found,) = call(self.groups.describe_groups, groups=[group])["groups"]
        return dict(found)

    def records(self) -> list[tuple[str | None, str | None]]:
        """The records of __consumer_offsets, as Kafka's dump tool prints them."""
        return [
            decode_offsets(record.key, record.value)
            for number in range(3)
            for record in self.store.open("__consumer_offsets", number).records()
        ]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, Clock())
    server.store.create_topic("orders")
    yield server
    server.stop()
    server.pool.shutdown()


def test_two_members_share_a_group_and_a_restart_keeps_it(server: Server) -> None:
    first = server.enter().result(10)
    assert server.sync(first)["assignment"] == first["memberId"].encode()
    joining = server.enter()
    until(lambda: server.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS)
    first = server.join(first["memberId"])
    second = joining.result(10)
    assert first["generationId"] == second["generationId"] == 2
    assert len(first["members"]) == 2
    waiting = server.pool.submit(server.sync, second)
    server.sync(first)
    assert waiting.result(10)["assignment"] == second["memberId"].encode()
    assert server.commit(7, first["memberId"], 2) == 0
    assert server.commit(6, first["memberId"], 1) == ErrorCode.ILLEGAL_GENERATION
    before = server.describe()
    assert before["groupState"] == "Stable"
    assert {each["clientHost"] for each in before["members"]} == {"/127.0.0.1"}
    server.restart()
    assert server.describe() == before
    assert server.heartbeat(first) == server.heartbeat(second) == 0
    assert server.committed() == {"orders-0": 7}
    server.clock.sleep(SESSION - 1)
    assert server.heartbeat(first) == 0
    server.clock.sleep(1)
    server.groups.tick()
    assert server.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert server.heartbeat(second) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_clock_ends_a_rebalance(server: Server) -> None:
    first = server.enter().result(10)
    server.sync(first)
    joining = server.enter()
    until(lambda: server.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS)
    server.clock.sleep(SESSION)
    server.groups.tick()
    assert joining.result(10)["leader"] == joining.result(10)["memberId"]


def test_the_end_of_the_coordinator_answers_what_waits(server: Server) -> None:
    first = server.enter().result(10)
    server.sync(first)
    joining = server.enter()
    until(lambda: server.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS)
    server.groups.close()
    assert joining.result(10)["errorCode"] == ErrorCode.NOT_COORDINATOR


def test_records_are_those_of_kafka(server: Server) -> None:
    joined = server.enter().result(10)
    server.sync(joined)
    server.commit(3, joined["memberId"], 1)
    call(
        server.groups.leave_group,
        groupId="g",
        members=[{"memberId": joined["memberId"], "groupInstanceId": None}],
    )
    server.commit(3, group="simple")
    texts = [f"{key} {payload}" for key, payload in server.records()]
    member = joined["memberId"]
    key = '{"type":"2","data":{"group":"g"}}'
    start = '{"version":"3","data":{"protocolType":'
    now = server.clock.now
    end = f'"protocol":null,"leader":null,"currentStateTimestamp":{now},"members":[]}}}}'
    assert f'{key} {start}"","generation":0,{end}' in texts
    assert f'{key} {start}"consumer","generation":2,{end}' in texts
    (stable,) = [each for each in texts if '"generation":1' in each]
    for part in (
        f'"leader":"{member}"',
        '"clientId":"client","clientHost":"/127.0.0.1"',
        f'"rebalanceTimeout":{SESSION},"sessionTimeout":{SESSION}',
    ):
        assert part in stable
    assert '"subscription":{"topics":["orders"],"userData":null}' in stable
    assert committed_in(server.path)["g"] == committed_in(server.path)["simple"]
    assert len(texts) == 5


def test_offsets(server: Server) -> None:
    assert server.committed() == {}
    assert server.commit(5) == 0
    assert server.commit(5, topic="nothing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert server.commit(5, generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert server.commit(5, generation=1, group="new") == ErrorCode.ILLEGAL_GENERATION
    answer = call(
        server.groups.offset_fetch, groupId="g", topics=[{"name": "orders", "partitionIndexes": [0, 1]}]
    )
    assert [(each["committedOffset"], each["metadata"]) for each in answer["topics"][0]["partitions"]] == [
        (5, "m"),
        (-1, ""),
    ]
    listed = call(server.groups.list_groups)["groups"]
    assert [(each["groupId"], each["groupState"], each["protocolType"]) for each in listed] == [
        ("g", "Empty", "")
    ]
    topics = [{"name": "orders", "partitions": [{"partitionIndex": 0}]}]
    assert (
        call(server.groups.offset_delete, groupId="none", topics=topics)["errorCode"]
        == ErrorCode.GROUP_ID_NOT_FOUND
    )
    assert (
        call(server.groups.offset_delete, groupId="g", topics=topics)["topics"][0]["partitions"][0][
            "errorCode"
        ]
        == 0
    )
    server.restart()
    assert server.committed() == {}


def test_offsets_of_subscribed_topics_are_kept(server: Server) -> None:
    joined = server.enter().result(10)
    server.sync(joined)
    server.commit(3, joined["memberId"], 1)
    topics = [{"name": "orders", "partitions": [{"partitionIndex": 0}]}]
    answer = call(server.groups.offset_delete, groupId="g", topics=topics)
    assert answer["topics"][0]["partitions"][0]["errorCode"] == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert server.committed() == {"orders-0": 3}


def test_deleting_groups(server: Server) -> None:
    server.commit(5)
    joined = server.enter("full").result(10)
    server.sync(joined, "full")
    answer = call(server.groups.delete_groups, groupsNames=["g", "full", "none"])
    assert [each["errorCode"] for each in answer["results"]] == [
        0,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    server.restart()
    assert [each["groupId"] for each in call(server.groups.list_groups)["groups"]] == ["full"]
    assert server.describe()["groupState"] == "Dead"
    server.groups.forget_topic("orders")


@pytest.mark.parametrize("has_members", [False, True])
def test_offsets_expire_after_the_retention_time(server: Server, has_members: bool) -> None:
    server.commit(5)
    if has_members:
        joined = server.enter().result(10)
        server.sync(joined)
    for _ in range(8):
        server.clock.sleep(DAY)
        if has_members:  # one that restarts every day
            joined = server.enter().result(10)
            server.sync(joined)
        server.groups.tick()
    assert server.committed() == ({"orders-0": 5} if has_members else {})
    server.clock.sleep(8 * DAY)
    server.groups.tick()
    server.clock.sleep(8 * DAY)
    server.groups.tick()
    assert call(server.groups.list_groups)["groups"] == []


def test_deleted_topics_lose_their_offsets(server: Server) -> None:
    server.commit(5)
    server.groups.forget_topic("orders")
    assert server.committed() == {}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"groupId": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"sessionTimeoutMs": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"memberId": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_joins_that_are_refused(server: Server, change: dict[str, Any], error: ErrorCode) -> None:
    values = {"groupId": "g", "sessionTimeoutMs": SESSION, "memberId": "", "protocolType": "consumer"}
    assert call(server.groups.join_group, **{**values, **change})["errorCode"] == error


def test_a_broker_makes_its_topics_itself(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    with kstore.LogStore(tmp_path, mode="a") as store:
        groups = GroupCoordinator(store, Clock())
        with pytest.raises(kstore.InvalidConfigError, match="belongs to a broker"):
            call(groups.join_group, groupId="g", sessionTimeoutMs=SESSION, protocolType="consumer")
        assert call(groups.list_groups)["groups"] == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError("no space left"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (kstore.LogFailedError("refuses writes"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (kstore.CorruptRecordError("damaged"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (kstore.InvalidConfigError("of a broker"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_failures_of_the_store_are_codes_and_change_nothing(
    server: Server, error: Exception, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = server.groups.handlers()
    joined = server.enter().result(10)

    def fail(*_: object) -> None:
        raise error

    def answer(api: str, **values: object) -> dict[str, Any]:
        return handlers[api](
            {"groupId": "g", "memberId": "", "groupInstanceId": None, **values}, 5, Connection()
        )

    with monkeypatch.context() as patch:
        patch.setattr(server.groups.topic, "append", fail)
        who = {"memberId": joined["memberId"], "groupInstanceId": None}
        assert answer("LeaveGroup", members=[who])["errorCode"] == code
        sync = {"generationId": 1, "assignments": [], "protocolType": None, "protocolName": None}
        assert answer("SyncGroup", **who, **sync)["errorCode"] == code
        position = {
            "partitionIndex": 0,
            "committedOffset": 9,
            "committedMetadata": "",
            "committedLeaderEpoch": 0,
        }
        topics = [{"name": "orders", "partitions": [position]}]
        generation = {"generationIdOrMemberEpoch": 1, "memberId": joined["memberId"]}
        committed = {
            "topics": [{"name": "orders", "partitions": [{"partitionIndex": 0, "errorCode": int(code)}]}]
        }
        assert (
            answer("OffsetCommit", **generation, topics=topics)["topics"][0]["partitions"][0]["errorCode"]
            == 27
        )
        server.groups.tick()
        assert server.heartbeat(joined) == 0
        assert answer("OffsetCommit", topics=topics, groupId="new", generationIdOrMemberEpoch=-1) == committed
        results = answer("DeleteGroups", groupsNames=["none"])["results"]
        assert results == [{"groupId": "none", "errorCode": ErrorCode.GROUP_ID_NOT_FOUND}]
    assert server.sync(joined)["assignment"] == joined["memberId"].encode()
    assert server.commit(9, joined["memberId"], 1) == 0


def test_threads_of_many_members(server: Server) -> None:
    """Twenty members join at once; at the end each has its own assignment of one generation."""
    assigned: dict[str, tuple[int, bytes]] = {}

    def is_done() -> bool:
        return len(assigned) == 20 and len({generation for generation, _ in assigned.values()}) == 1

    def live() -> None:
        member = server.join()["memberId"]
        while not is_done():
            joined = server.join(member)
            synced = {"errorCode": 1} if joined["errorCode"] else server.sync(joined)
            if not synced["errorCode"]:
                assigned[member] = joined["generationId"], synced["assignment"]
                while not is_done() and not server.heartbeat(joined):
                    pass

    threads = [threading.Thread(target=live) for _ in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert is_done()
    assert all(assignment == member.encode() for member, (_, assignment) in assigned.items())
    assert set(assigned) == {each["memberId"] for each in server.describe()["members"]}
