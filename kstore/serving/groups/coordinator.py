"""The coordinator of classic groups: requests of Kafka's protocol, as values by the names of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any, Final
from uuid import uuid4

from kstore.log.cursors.offset_commits import MAX_METADATA_BYTES, OffsetAndMetadata
from kstore.log.files.layout import TopicPartition
from kstore.serving.cluster import GROUP_OPERATIONS, allowed
from kstore.serving.error_codes import ErrorCode
from kstore.serving.failures import Answer, Handler, answering, by_partition
from kstore.serving.groups.group import Group, GroupState
from kstore.serving.groups.rebalance import (
    GroupLimits,
    JoinRequest,
    SyncRequest,
    join_error,
    sync_answer,
)
from kstore.serving.groups.records import subscribed_topics
from kstore.serving.groups.shard import GroupShard
from kstore.serving.state_topic import Producer, StateTopic
from kstore.store import LogStore

TOPIC: Final = "__consumer_offsets"
_EXPIRY_INTERVAL_MS: Final = 600_000  # Kafka's offsets.retention.check.interval.ms


class GroupCoordinator:
    """Joins, offsets and descriptions of classic groups. The methods that are named after requests take a
    request's values, its version and its connection, and return the values of the answer. Threads may call
    them; join_group and sync_group wait.

    clock: the time in ms. partitions: the number of partitions of __consumer_offsets if it is created.
    """

    def __init__(
        self,
        store: LogStore,
        clock: Callable[[], int],
        *,
        partitions: int = 50,
        limits: GroupLimits = GroupLimits(),  # noqa: B008 - a frozen value
    ) -> None:
        self.topic = StateTopic(store, TOPIC, partitions)
        self._clock = clock
        self._limits = limits
        self._lock = Lock()
        self._shards: dict[int, GroupShard] = {}
        self._expired_at = clock()

    def handlers(self) -> dict[str, Handler]:
        """The handlers of requests, by API."""

        def described(values: dict[str, Any], code: ErrorCode) -> Answer:
            return {"groups": [{"groupId": each, "errorCode": int(code)} for each in values["groups"]]}

        def deleted(values: dict[str, Any], code: ErrorCode) -> Answer:
            return {"results": [{"groupId": each, "errorCode": int(code)} for each in values["groupsNames"]]}

        return {
            "JoinGroup": answering(self.join_group),
            "SyncGroup": answering(self.sync_group),
            "Heartbeat": answering(self.heartbeat),
            "LeaveGroup": answering(self.leave_group),
            "OffsetCommit": answering(self.offset_commit, by_partition),
            "OffsetFetch": answering(self.offset_fetch),
            "OffsetDelete": answering(self.offset_delete),
            "ListGroups": answering(self.list_groups),
            "DescribeGroups": answering(self.describe_groups, described),
            "DeleteGroups": answering(self.delete_groups, deleted),
        }

    # ---- members -------------------------------------------------------------------------------------------

    def join_group(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """JoinGroup. Waits for the next generation."""
        answer = self._join(values, version, connection)
        if version < 7 and answer["protocolName"] is None:  # it may be null from then on
            answer["protocolName"] = ""
        return answer

    def _join(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        session = values["sessionTimeoutMs"]
        member_id = values["memberId"]
        if not values["groupId"]:
            return join_error(ErrorCode.INVALID_GROUP_ID, member_id)
        if not self._limits.min_session_timeout_ms <= session <= self._limits.max_session_timeout_ms:
            return join_error(ErrorCode.INVALID_SESSION_TIMEOUT, member_id)
        instance_id = values["groupInstanceId"]
        rebalance = values["rebalanceTimeoutMs"]
        request = JoinRequest(
            member_id,
            instance_id,
            connection.client_id or "",
            f"/{connection.host}",
            values["protocolType"],
            tuple((each["name"], bytes(each["metadata"])) for each in values["protocols"]),
            session,
            rebalance if rebalance >= 0 and version > 0 else session,
            f"{instance_id if instance_id is not None else connection.client_id or ''}-{uuid4()}",
            requires_id=version >= 4,
            skips_assignment=version >= 9,
        )
        return self._new_shard(values["groupId"]).join(values["groupId"], request)

    def sync_group(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """SyncGroup. Waits for the leader's assignments."""
        shard = self._shard(values["groupId"])
        if shard is None:
            return sync_answer(ErrorCode.UNKNOWN_MEMBER_ID)
        request = SyncRequest(
            values["memberId"],
            values["groupInstanceId"],
            values["generationId"],
            {each["memberId"]: bytes(each["assignment"]) for each in values["assignments"]},
            values["protocolType"] if version >= 5 else None,
            values["protocolName"] if version >= 5 else None,
        )
        return shard.sync(values["groupId"], lambda step, waiter: step.sync(request, waiter))

    def heartbeat(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """Heartbeat."""
        who = values["memberId"], values["groupInstanceId"], values["generationId"]
        shard = self._shard(values["groupId"])
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if shard is not None:
            error = shard.change(values["groupId"], lambda step: step.heartbeat(*who), error)
        return {"errorCode": int(error)}

    def leave_group(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """LeaveGroup, of one member up to version 2."""
        group_id = values["groupId"]
        members = [(values["memberId"], None)]
        if version >= 3:
            members = [(each["memberId"], each["groupInstanceId"]) for each in values["members"]]
        missing = [ErrorCode.UNKNOWN_MEMBER_ID]
        shard = self._shard(group_id)
        errors = missing
        if shard is not None:
            errors = shard.change(group_id, lambda step: step.leave(members), missing)
        if version < 3 or errors is missing:
            return {"errorCode": int(errors[0]), "members": []}
        answers = [
            {"memberId": member_id, "groupInstanceId": instance_id, "errorCode": int(error)}
            for (member_id, instance_id), error in zip(members, errors, strict=True)
        ]
        return {"errorCode": 0, "members": answers}

    # ---- offsets -------------------------------------------------------------------------------------------

    def offset_commit(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """OffsetCommit, of a member, an administrator or a consumer without a group."""
        generation = values["generationIdOrMemberEpoch"]
        return self._commit(values, generation, None)

    def commit_in_transaction(self, values: dict[str, Any], producer: Producer) -> Answer:
        """TxnOffsetCommit of a producer whose transaction has the group's partition."""
        return self._commit(values, values["generationId"], producer)

    def _commit(self, values: dict[str, Any], generation: int, producer: Producer | None) -> Answer:
        group_id = values["groupId"]
        member_id, instance_id = values["memberId"], values["groupInstanceId"]
        is_transactional = producer is not None

        def check(group: Group | None) -> ErrorCode:
            if group is None:
                return ErrorCode.ILLEGAL_GENERATION if generation >= 0 else ErrorCode.NONE
            return group.check_commit(member_id, instance_id, generation, is_transactional=is_transactional)

        errors, positions = self._checked_positions(values["topics"])
        if is_transactional and not group_id:
            return by_partition(values, ErrorCode.INVALID_GROUP_ID)
        shard = self._new_shard(group_id)
        error = shard.commit(group_id, positions, check, member_id=member_id, producer=producer)
        answer = by_partition(values, error)
        for topic in answer["topics"] if not error else ():
            for each in topic["partitions"]:
                each["errorCode"] = int(errors[TopicPartition(topic["name"], each["partitionIndex"])])
        return answer

    def _checked_positions(
        self, topics: Iterable[dict[str, Any]]
    ) -> tuple[dict[TopicPartition, ErrorCode], dict[TopicPartition, OffsetAndMetadata]]:
        """The error of each partition of a commit, and the positions of those without one."""
        errors, positions = {}, {}
        known, now = self.topic.store.topics, self._clock()
        for topic in topics:
            for each in topic["partitions"]:
                tp = TopicPartition(topic["name"], each["partitionIndex"])
                metadata = each["committedMetadata"] or ""
                errors[tp] = ErrorCode.NONE
                if tp.partition not in known.get(tp.topic, ()):
                    errors[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif len(metadata.encode()) > MAX_METADATA_BYTES:
                    errors[tp] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    epoch = each["committedLeaderEpoch"]
                    positions[tp] = OffsetAndMetadata(each["committedOffset"], epoch, metadata, now)
        return errors, positions

    def offset_fetch(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """OffsetFetch; topics of None ask for all."""
        topics = self._fetched(values["groupId"], values["topics"], stable=values["requireStable"])
        return {"topics": topics, "errorCode": 0}

    def _fetched(self, group_id: str, topics: list[dict[str, Any]] | None, *, stable: bool) -> list[Answer]:
        shard = self._shard(group_id)
        offsets = {} if shard is None else shard.offsets(group_id)
        pending = set() if shard is None or not stable else shard.pending(group_id)
        if topics is None:
            numbers: dict[str, list[int]] = {}
            for tp in offsets:
                numbers.setdefault(tp.topic, []).append(tp.partition)
        else:
            numbers = {each["name"]: each["partitionIndexes"] for each in topics}
        nothing = OffsetAndMetadata(-1, -1, "", -1)

        def answer(tp: TopicPartition) -> Answer:
            is_unstable = tp in pending
            position = nothing if is_unstable else offsets.get(tp, nothing)
            return {
                "partitionIndex": tp.partition,
                "committedOffset": position.offset,
                "committedLeaderEpoch": position.leader_epoch,
                "metadata": position.metadata,
                "errorCode": int(ErrorCode.UNSTABLE_OFFSET_COMMIT) if is_unstable else 0,
            }

        return [
            {"name": name, "partitions": [answer(TopicPartition(name, each)) for each in indexes]}
            for name, indexes in numbers.items()
        ]

    def offset_delete(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """OffsetDelete, of topics to which no member subscribes."""
        group_id = values["groupId"]
        shard = self._shard(group_id)
        group = None if shard is None else shard.find(group_id)
        if shard is None or group is None:
            return {"errorCode": int(ErrorCode.GROUP_ID_NOT_FOUND), "topics": []}
        subscribed: set[str] | None = set()
        if group.state is not GroupState.EMPTY:
            if group.protocol_type != "consumer":
                return {"errorCode": int(ErrorCode.NON_EMPTY_GROUP), "topics": []}
            subscribed = subscribed_topics(group)
        answers, removed = [], []
        for topic in values["topics"]:
            is_subscribed = subscribed is None or topic["name"] in subscribed
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
            numbers = [each["partitionIndex"] for each in topic["partitions"]]
            answers.append(
                {
                    "name": topic["name"],
                    "partitions": [{"partitionIndex": at, "errorCode": int(error)} for at in numbers],
                }
            )
            removed += [TopicPartition(topic["name"], at) for at in numbers if not is_subscribed]
        shard.remove_offsets(group_id, removed)
        return {"errorCode": 0, "topics": answers}

    # ---- descriptions --------------------------------------------------------------------------------------

    def list_groups(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """ListGroups, of the wanted states and types."""
        states = {each.lower() for each in values["statesFilter"]}
        types = {each.lower() for each in values["typesFilter"]}
        groups = [
            {
                "groupId": group.group_id,
                "protocolType": group.protocol_type or "",
                "groupState": str(group.state),
                "groupType": "classic",
            }
            for shard in self._all_shards()
            for group in shard.groups()
            if (not states or group.state.lower() in states) and (not types or "classic" in types)
        ]
        return {"errorCode": 0, "groups": groups}

    def describe_groups(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """DescribeGroups. A group that does not exist is dead."""
        operations = allowed(values["includeAuthorizedOperations"], GROUP_OPERATIONS)
        return {
            "groups": [
                {**self._described(group_id, version), "authorizedOperations": operations}
                for group_id in dict.fromkeys(values["groups"])
            ]
        }

    def _described(self, group_id: str, version: int) -> Answer:
        shard = self._shard(group_id)
        group = None if shard is None else shard.find(group_id)
        described: Answer = {
            "errorCode": int(ErrorCode.GROUP_ID_NOT_FOUND) if group is None and version >= 6 else 0,
            "groupId": group_id,
            "groupState": "Dead" if group is None else str(group.state),
            "protocolType": "",
            "protocolData": "",
            "members": [],
        }
        if group is None:
            return described
        is_stable = group.state is GroupState.STABLE
        described["protocolType"] = group.protocol_type or ""
        described["protocolData"] = (group.protocol or "") if is_stable else ""
        described["members"] = [
            {
                "memberId": each.member_id,
                "groupInstanceId": each.instance_id,
                "clientId": each.client_id,
                "clientHost": each.client_host,
                "memberMetadata": each.metadata(group.protocol) if is_stable else b"",
                "memberAssignment": each.assignment,
            }
            for each in group.members.values()
        ]
        return described

    def delete_groups(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """DeleteGroups, of groups without members."""
        results = []
        for group_id in values["groupsNames"]:
            shard = self._shard(group_id)
            if shard is None or shard.find(group_id) is None:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            else:
                error = ErrorCode.NONE if shard.delete(group_id) else ErrorCode.NON_EMPTY_GROUP
            results.append({"groupId": group_id, "errorCode": int(error)})
        return {"results": results}

    # ---- others --------------------------------------------------------------------------------------------

    def end_transaction(
        self, partition: int, producer: Producer, *, commits: bool, epoch: int, version: int
    ) -> None:
        """End the transaction of a producer in a partition of __consumer_offsets."""
        shard = self._shard_of(partition)
        shard.end_transaction(producer, commits=commits, epoch=epoch, version=version)

    def tick(self) -> None:
        """Do what is due: end sessions and rebalances, and expire offsets after the retention time of the
        store. The owner calls it about once a second, and after a test has moved the clock."""
        now = self._clock()
        with self._lock:
            shards = list(self._shards.values())
        for shard in shards:
            shard.tick()
        if now - self._expired_at >= _EXPIRY_INTERVAL_MS:
            self._expired_at = now
            for shard in self._all_shards():
                shard.expire_offsets(self.topic.store.config.offsets_retention_minutes * 60_000)

    def close(self) -> None:
        """Answer all waiting requests: this coordinator ends."""
        with self._lock:
            for shard in self._shards.values():
                shard.close()

    def forget_topic(self, topic: str) -> None:
        """Remove the committed offsets of a topic that was deleted."""
        for shard in self._all_shards():
            for group in shard.groups():
                known = {*shard.offsets(group.group_id), *shard.pending(group.group_id)}
                shard.remove_offsets(group.group_id, [tp for tp in known if tp.topic == topic])

    def _new_shard(self, group_id: str) -> GroupShard:
        """The shard of a group; the topic is created."""
        self.topic.create()
        return self._shard_of(self.topic.partition_of(group_id))

    def _shard(self, group_id: str) -> GroupShard | None:
        """The shard of a group, None if the topic does not exist."""
        return self._shard_of(self.topic.partition_of(group_id)) if self.topic.partitions() else None

    def _shard_of(self, partition: int) -> GroupShard:
        with self._lock:
            if partition not in self._shards:
                self._shards[partition] = GroupShard(self.topic, partition, self._clock, self._limits)
            return self._shards[partition]

    def _all_shards(self) -> list[GroupShard]:
        return [self._shard_of(partition) for partition in self.topic.partitions()]
