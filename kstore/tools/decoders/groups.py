"""Records of the newer kinds of groups in __consumer_offsets: consumer, share, streams (spec 11.1)."""

from typing import Final

from kstore.tools.decoders.coordinated import Records
from kstore.tools.decoders.schema import (
    BYTES,
    INT8,
    INT16,
    INT16S,
    INT32,
    INT32S,
    INT64,
    NEVER,
    STRING,
    STRINGS,
    UINT16,
    UUID,
    Array,
    Field,
    Message,
    Struct,
)

_GROUP = Message("GroupKey", Field("groupId", STRING), flexible=NEVER)
_MEMBER = Message("MemberKey", Field("groupId", STRING), Field("memberId", STRING), flexible=NEVER)
_EXPRESSION = Message(
    "RegularExpressionKey",
    Field("groupId", STRING),
    Field("regularExpression", STRING),
    flexible=NEVER,
)

_PARTITION_METADATA = Struct(
    Field("partition", INT32),
    Field("racks", STRINGS),
)
_TOPIC_METADATA = Struct(
    Field("topicId", UUID),
    Field("topicName", STRING),
    Field("numPartitions", INT32),
    Field("partitionMetadata", Array(_PARTITION_METADATA)),
)
_CLASSIC_PROTOCOL = Struct(
    Field("name", STRING),
    Field("metadata", BYTES),
)
_CLASSIC_MEMBER_METADATA = Struct(
    Field("sessionTimeoutMs", INT32),
    Field("supportedProtocols", Array(_CLASSIC_PROTOCOL)),
)
_TOPIC_PARTITION = Struct(
    Field("topicId", UUID),
    Field("partitions", INT32S),
)
_OWNED_PARTITIONS = Struct(
    Field("topicId", UUID),
    Field("partitions", INT32S),
    Field("assignmentEpochs", INT32S, tag=0, nullable=True),
)

CONSUMER: Final[Records] = {
    3: (
        _GROUP,
        Message(
            "ConsumerGroupMetadata",
            Field("epoch", INT32),
            Field("metadataHash", INT64, tag=0),
        ),
    ),
    4: (
        _GROUP,
        Message(
            "ConsumerGroupPartitionMetadata",
            Field("topics", Array(_TOPIC_METADATA)),
        ),
    ),
    5: (
        _MEMBER,
        Message(
            "ConsumerGroupMemberMetadata",
            Field("instanceId", STRING, nullable=True),
            Field("rackId", STRING, nullable=True),
            Field("clientId", STRING),
            Field("clientHost", STRING),
            Field("subscribedTopicNames", STRINGS),
            Field("subscribedTopicRegex", STRING, nullable=True),
            Field("rebalanceTimeoutMs", INT32),
            Field("serverAssignor", STRING, nullable=True),
            Field("classicMemberMetadata", _CLASSIC_MEMBER_METADATA, tag=0, nullable=True),
        ),
    ),
    6: (
        _GROUP,
        Message(
            "ConsumerGroupTargetAssignmentMetadata",
            Field("assignmentEpoch", INT32),
            Field("assignmentTimestamp", INT64, tag=0),
        ),
    ),
    7: (
        _MEMBER,
        Message(
            "ConsumerGroupTargetAssignmentMember",
            Field("topicPartitions", Array(_TOPIC_PARTITION)),
        ),
    ),
    8: (
        _MEMBER,
        Message(
            "ConsumerGroupCurrentMemberAssignment",
            Field("memberEpoch", INT32),
            Field("previousMemberEpoch", INT32),
            Field("state", INT8),
            Field("assignedPartitions", Array(_OWNED_PARTITIONS)),
            Field("partitionsPendingRevocation", Array(_OWNED_PARTITIONS)),
        ),
    ),
    16: (
        _EXPRESSION,
        Message(
            "ConsumerGroupRegularExpression",
            Field("topics", STRINGS),
            Field("version", INT64),
            Field("timestamp", INT64),
        ),
    ),
}

_TOPIC_PARTITIONS_INFO = Struct(
    Field("topicId", UUID),
    Field("topicName", STRING),
    Field("partitions", INT32S),
)
_TOPIC_INFO = Struct(
    Field("topicId", UUID),
    Field("topicName", STRING),
)

SHARE: Final[Records] = {
    10: (
        _MEMBER,
        Message(
            "ShareGroupMemberMetadata",
            Field("rackId", STRING, nullable=True),
            Field("clientId", STRING),
            Field("clientHost", STRING),
            Field("subscribedTopicNames", STRINGS),
        ),
    ),
    11: (
        _GROUP,
        Message(
            "ShareGroupMetadata",
            Field("epoch", INT32),
            Field("metadataHash", INT64),
        ),
    ),
    12: (
        _GROUP,
        Message(
            "ShareGroupTargetAssignmentMetadata",
            Field("assignmentEpoch", INT32),
            Field("assignmentTimestamp", INT64, tag=0),
        ),
    ),
    13: (
        _MEMBER,
        Message(
            "ShareGroupTargetAssignmentMember",
            Field("topicPartitions", Array(_TOPIC_PARTITION)),
        ),
    ),
    14: (
        _MEMBER,
        Message(
            "ShareGroupCurrentMemberAssignment",
            Field("memberEpoch", INT32),
            Field("previousMemberEpoch", INT32),
            Field("state", INT8),
            Field("assignedPartitions", Array(_TOPIC_PARTITION)),
        ),
    ),
    15: (
        _GROUP,
        Message(
            "ShareGroupStatePartitionMetadata",
            Field("initializingTopics", Array(_TOPIC_PARTITIONS_INFO)),
            Field("initializedTopics", Array(_TOPIC_PARTITIONS_INFO)),
            Field("deletingTopics", Array(_TOPIC_INFO)),
        ),
    ),
}

_ENDPOINT = Struct(
    Field("host", STRING),
    Field("port", UINT16),
)
_KEY_VALUE = Struct(
    Field("key", STRING),
    Field("value", STRING),
)
_TASK_IDS = Struct(
    Field("subtopologyId", STRING),
    Field("partitions", INT32S),
)
_OWNED_TASKS = Struct(
    Field("subtopologyId", STRING),
    Field("partitions", INT32S),
    Field("assignmentEpochs", INT32S, tag=0, nullable=True),
)
_TOPOLOGY_TOPIC = Struct(
    Field("name", STRING),
    Field("partitions", INT32),
    Field("replicationFactor", INT16),
    Field("topicConfigs", Array(_KEY_VALUE)),
)
_COPARTITION_GROUP = Struct(
    Field("sourceTopics", INT16S),
    Field("sourceTopicRegex", INT16S),
    Field("repartitionSourceTopics", INT16S),
)
_SUBTOPOLOGY = Struct(
    Field("subtopologyId", STRING),
    Field("sourceTopics", STRINGS),
    Field("sourceTopicRegex", STRINGS),
    Field("stateChangelogTopics", Array(_TOPOLOGY_TOPIC)),
    Field("repartitionSinkTopics", STRINGS),
    Field("repartitionSourceTopics", Array(_TOPOLOGY_TOPIC)),
    Field("copartitionGroups", Array(_COPARTITION_GROUP)),
)

STREAMS: Final[Records] = {
    17: (
        _GROUP,
        Message(
            "StreamsGroupMetadata",
            Field("epoch", INT32),
            Field("metadataHash", INT64),
            Field("validatedTopologyEpoch", INT32, tag=0, default=-1),
            Field("lastAssignmentConfigs", Array(_KEY_VALUE), tag=1, nullable=True),
        ),
    ),
    19: (
        _MEMBER,
        Message(
            "StreamsGroupMemberMetadata",
            Field("instanceId", STRING, nullable=True),
            Field("rackId", STRING, nullable=True),
            Field("clientId", STRING),
            Field("clientHost", STRING),
            Field("rebalanceTimeoutMs", INT32),
            Field("topologyEpoch", INT32),
            Field("processId", STRING),
            Field("userEndpoint", _ENDPOINT, nullable=True),
            Field("clientTags", Array(_KEY_VALUE)),
        ),
    ),
    20: (
        _GROUP,
        Message(
            "StreamsGroupTargetAssignmentMetadata",
            Field("assignmentEpoch", INT32),
            Field("assignmentTimestamp", INT64, tag=0),
        ),
    ),
    21: (
        _MEMBER,
        Message(
            "StreamsGroupTargetAssignmentMember",
            Field("activeTasks", Array(_TASK_IDS)),
            Field("standbyTasks", Array(_TASK_IDS)),
            Field("warmupTasks", Array(_TASK_IDS)),
        ),
    ),
    22: (
        _MEMBER,
        Message(
            "StreamsGroupCurrentMemberAssignment",
            Field("memberEpoch", INT32),
            Field("previousMemberEpoch", INT32),
            Field("state", INT8),
            Field("activeTasks", Array(_OWNED_TASKS)),
            Field("standbyTasks", Array(_OWNED_TASKS)),
            Field("warmupTasks", Array(_OWNED_TASKS)),
            Field("activeTasksPendingRevocation", Array(_OWNED_TASKS)),
            Field("standbyTasksPendingRevocation", Array(_OWNED_TASKS)),
            Field("warmupTasksPendingRevocation", Array(_OWNED_TASKS)),
        ),
    ),
    23: (
        _GROUP,
        Message(
            "StreamsGroupTopology",
            Field("epoch", INT32),
            Field("subtopologies", Array(_SUBTOPOLOGY)),
        ),
    ),
}
