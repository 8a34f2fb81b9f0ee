"""The records of Kafka's internal topics, as tables of fields: facts of Kafka 4.3.1 (spec 11.1). See
schema.py.

One message or struct a line, with its continuation lines indented:

    [TYPE] [KEY ->] NAME [to HIGHEST] [flexible FIRST+ | rigid]: FIELD, FIELD, ...

TYPE is the number of the record, KEY the message in its key. A message has the versions 0 to HIGHEST (0); it
is flexible from its version FIRST (0) on, or never. A field is `NAME KIND [tag N] [FIRST+ | FIRST-LAST] [=
DEFAULT]`: a kind with `?` may be null, with `?N+` from version N on, `[KIND]` is an array, a tag makes the
field a tagged one, and FIRST and LAST are the versions that have it.
"""

# __consumer_offsets: commits, groups of all kinds, and the protocols of members of classic groups
OFFSETS = """
PartitionMetadata: partition int32, racks [string]
TopicMetadata: topicId uuid, topicName string, numPartitions int32,
    partitionMetadata [PartitionMetadata]
ClassicProtocol: name string, metadata bytes
ClassicMemberMetadata: sessionTimeoutMs int32, supportedProtocols [ClassicProtocol]
TopicPartition: topicId uuid, partitions [int32]
OwnedPartitions: topicId uuid, partitions [int32], assignmentEpochs [int32]? tag 0
TopicPartitionsInfo: topicId uuid, topicName string, partitions [int32]
TopicInfo: topicId uuid, topicName string
Endpoint: host string, port uint16
KeyValue: key string, value string
TaskIds: subtopologyId string, partitions [int32]
OwnedTasks: subtopologyId string, partitions [int32], assignmentEpochs [int32]? tag 0
TopologyTopic: name string, partitions int32, replicationFactor int16, topicConfigs [KeyValue]
CopartitionGroup: sourceTopics [int16], sourceTopicRegex [int16], repartitionSourceTopics [int16]
Subtopology: subtopologyId string, sourceTopics [string], sourceTopicRegex [string],
    stateChangelogTopics [TopologyTopic], repartitionSinkTopics [string],
    repartitionSourceTopics [TopologyTopic], copartitionGroups [CopartitionGroup]
GroupKey rigid: groupId string
MemberKey rigid: groupId string, memberId string
RegularExpressionKey rigid: groupId string, regularExpression string
3 GroupKey -> ConsumerGroupMetadata: epoch int32, metadataHash int64 tag 0
4 GroupKey -> ConsumerGroupPartitionMetadata: topics [TopicMetadata]
5 MemberKey -> ConsumerGroupMemberMetadata: instanceId string?, rackId string?, clientId string,
    clientHost string, subscribedTopicNames [string], subscribedTopicRegex string?,
    rebalanceTimeoutMs int32, serverAssignor string?, classicMemberMetadata ClassicMemberMetadata? tag 0
6 GroupKey -> ConsumerGroupTargetAssignmentMetadata: assignmentEpoch int32,
    assignmentTimestamp int64 tag 0
7 MemberKey -> ConsumerGroupTargetAssignmentMember: topicPartitions [TopicPartition]
8 MemberKey -> ConsumerGroupCurrentMemberAssignment: memberEpoch int32, previousMemberEpoch int32,
    state int8, assignedPartitions [OwnedPartitions], partitionsPendingRevocation [OwnedPartitions]
16 RegularExpressionKey -> ConsumerGroupRegularExpression: topics [string], version int64,
    timestamp int64
10 MemberKey -> ShareGroupMemberMetadata: rackId string?, clientId string, clientHost string,
    subscribedTopicNames [string]
11 GroupKey -> ShareGroupMetadata: epoch int32, metadataHash int64
12 GroupKey -> ShareGroupTargetAssignmentMetadata: assignmentEpoch int32,
    assignmentTimestamp int64 tag 0
13 MemberKey -> ShareGroupTargetAssignmentMember: topicPartitions [TopicPartition]
14 MemberKey -> ShareGroupCurrentMemberAssignment: memberEpoch int32, previousMemberEpoch int32,
    state int8, assignedPartitions [TopicPartition]
15 GroupKey -> ShareGroupStatePartitionMetadata: initializingTopics [TopicPartitionsInfo],
    initializedTopics [TopicPartitionsInfo], deletingTopics [TopicInfo]
17 GroupKey -> StreamsGroupMetadata: epoch int32, metadataHash int64,
    validatedTopologyEpoch int32 tag 0 = -1, lastAssignmentConfigs [KeyValue]? tag 1
19 MemberKey -> StreamsGroupMemberMetadata: instanceId string?, rackId string?, clientId string,
    clientHost string, rebalanceTimeoutMs int32, topologyEpoch int32, processId string,
    userEndpoint Endpoint?, clientTags [KeyValue]
20 GroupKey -> StreamsGroupTargetAssignmentMetadata: assignmentEpoch int32,
    assignmentTimestamp int64 tag 0
21 MemberKey -> StreamsGroupTargetAssignmentMember: activeTasks [TaskIds], standbyTasks [TaskIds],
    warmupTasks [TaskIds]
22 MemberKey -> StreamsGroupCurrentMemberAssignment: memberEpoch int32, previousMemberEpoch int32,
    state int8, activeTasks [OwnedTasks], standbyTasks [OwnedTasks], warmupTasks [OwnedTasks],
    activeTasksPendingRevocation [OwnedTasks], standbyTasksPendingRevocation [OwnedTasks],
    warmupTasksPendingRevocation [OwnedTasks]
23 GroupKey -> StreamsGroupTopology: epoch int32, subtopologies [Subtopology]
Member: memberId string, groupInstanceId string? 3+ = null, clientId string, clientHost string,
    rebalanceTimeout int32 1+ = -1, sessionTimeout int32, subscription bytes, assignment bytes
Partitions: topic string, partitions [int32]
OffsetCommitKey rigid: group string, topic string, partition int32
GroupMetadataKey rigid: group string
0 OffsetCommitKey -> LegacyOffsetCommit rigid: offset int64, metadata string, commitTimestamp int64
1 OffsetCommitKey -> OffsetCommit to 4 flexible 4+: offset int64, leaderEpoch int32 3+ = -1,
    metadata string, commitTimestamp int64, expireTimestamp int64 1-1 = -1, topicId uuid tag 0 4+
2 GroupMetadataKey -> GroupMetadata to 4 flexible 4+: protocolType string, generation int32,
    protocol string?, leader string?, currentStateTimestamp int64 2+ = -1, members [Member]
ConsumerProtocolSubscription to 3 rigid: topics [string], userData bytes?,
    ownedPartitions [Partitions] 1+, generationId int32 2+ = -1, rackId string? 3+ = null
ConsumerProtocolAssignment to 3 rigid: assignedPartitions [Partitions], userData bytes?
"""

# __transaction_state
TRANSACTIONS = """
Partitions: topic string, partitionIds [int32]
TransactionLogKey rigid: transactionalId string
0 TransactionLogKey -> TransactionLog to 1 flexible 1+: producerId int64,
    previousProducerId int64 tag 0 1+ = -1, nextProducerId int64 tag 1 1+ = -1, producerEpoch int16,
    nextProducerEpoch int16 tag 3 1+ = -1, transactionTimeoutMs int32, transactionStatus int8,
    transactionPartitions [Partitions]?, transactionLastUpdateTimestampMs int64,
    transactionStartTimestampMs int64, clientTransactionVersion int16 tag 2 1+
"""

# __share_group_state
SHARES = """
StateBatch: firstOffset int64, lastOffset int64, deliveryState int8, deliveryCount int16
ShareKey rigid: groupId string, topicId uuid, partition int32
0 ShareKey -> ShareSnapshot: snapshotEpoch int32, stateEpoch int32, leaderEpoch int32,
    startOffset int64, deliveryCompleteCount int32 tag 0 = -1, createTimestamp int64,
    writeTimestamp int64, stateBatches [StateBatch]
1 ShareKey -> ShareUpdate: snapshotEpoch int32, leaderEpoch int32, startOffset int64,
    deliveryCompleteCount int32 tag 0 = -1, stateBatches [StateBatch]
"""

# __cluster_metadata and its snapshots
METADATA = """
Endpoint: name string, host string, port uint16, securityProtocol int16
Feature: name string, minSupportedVersion int16, maxSupportedVersion int16
Entity: entityType string, entityName string?
0 REGISTER_BROKER_RECORD to 4: brokerId int32, isMigratingZkBroker bool 2+, incarnationId uuid,
    brokerEpoch int64, endPoints [Endpoint], features [Feature], rack string?, fenced bool,
    inControlledShutdown bool 1+, logDirs [uuid] tag 0 3+, cordonedLogDirs [uuid]? tag 1 4+ = null
1 UNREGISTER_BROKER_RECORD: brokerId int32, brokerEpoch int64
2 TOPIC_RECORD: name string, topicId uuid
3 PARTITION_RECORD to 2: partitionId int32, topicId uuid, replicas [int32], isr [int32],
    removingReplicas [int32], addingReplicas [int32], leader int32, leaderRecoveryState int8 tag 0,
    leaderEpoch int32, partitionEpoch int32, directories [uuid] 1+,
    eligibleLeaderReplicas [int32]? tag 1 2+ = null, lastKnownElr [int32]? tag 2 2+ = null
4 CONFIG_RECORD: resourceType int8, resourceName string, name string, value string?
5 PARTITION_CHANGE_RECORD to 2: partitionId int32, topicId uuid, isr [int32]? tag 0 = null,
    leader int32 tag 1 = -2, replicas [int32]? tag 2 = null, removingReplicas [int32]? tag 3 = null,
    addingReplicas [int32]? tag 4 = null, leaderRecoveryState int8 tag 5 = -1,
    directories [uuid]? tag 8 1+ = null, eligibleLeaderReplicas [int32]? tag 6 2+ = null,
    lastKnownElr [int32]? tag 7 2+ = null
7 FENCE_BROKER_RECORD: id int32, epoch int64
8 UNFENCE_BROKER_RECORD: id int32, epoch int64
9 REMOVE_TOPIC_RECORD: topicId uuid
10 DELEGATION_TOKEN_RECORD: owner string, requester string, renewers [string], issueTimestamp int64,
    maxTimestamp int64, expirationTimestamp int64, tokenId string
11 USER_SCRAM_CREDENTIAL_RECORD: name string, mechanism int8, salt bytes, storedKey bytes,
    serverKey bytes, iterations int32
12 FEATURE_LEVEL_RECORD: name string, featureLevel int16
14 CLIENT_QUOTA_RECORD: entity [Entity], key string, value float64, remove bool
15 PRODUCER_IDS_RECORD: brokerId int32, brokerEpoch int64, nextProducerId int64
17 BROKER_REGISTRATION_CHANGE_RECORD to 3: brokerId int32, brokerEpoch int64, fenced int8 tag 0,
    inControlledShutdown int8 tag 1 1+, logDirs [uuid] tag 2 2+, cordonedLogDirs [uuid]? tag 3 3+ = null
18 ACCESS_CONTROL_ENTRY_RECORD: id uuid, resourceType int8, resourceName string, patternType int8,
    principal string, host string, operation int8, permissionType int8
19 REMOVE_ACCESS_CONTROL_ENTRY_RECORD: id uuid
20 NO_OP_RECORD:
21 ZK_MIGRATION_STATE_RECORD: zkMigrationState int8
22 REMOVE_USER_SCRAM_CREDENTIAL_RECORD: name string, mechanism int8
23 BEGIN_TRANSACTION_RECORD: name string? tag 0 = null
24 END_TRANSACTION_RECORD:
25 ABORT_TRANSACTION_RECORD: reason string? tag 0 = null
26 REMOVE_DELEGATION_TOKEN_RECORD: tokenId string
27 REGISTER_CONTROLLER_RECORD: controllerId int32, incarnationId uuid, zkMigrationReady bool,
    endPoints [Endpoint], features [Feature]
28 CLEAR_ELR_RECORD: topicName string
"""

# __remote_log_metadata
REMOTE = """
Partition: name string, id uuid, partition int32
SegmentId: topicIdPartition Partition, id uuid
LeaderEpoch: leaderEpoch int32, offset int64
0 RemoteLogSegmentMetadata: remoteLogSegmentId SegmentId, startOffset int64, endOffset int64,
    brokerId int32, maxTimestampMs int64, eventTimestampMs int64, segmentLeaderEpochs [LeaderEpoch],
    segmentSizeInBytes int32, customMetadata bytes?, remoteLogSegmentState int8,
    txnIndexEmpty bool tag 0
1 RemoteLogSegmentMetadataUpdate: remoteLogSegmentId SegmentId, brokerId int32, eventTimestampMs int64,
    customMetadata bytes?, remoteLogSegmentState int8
2 RemotePartitionDeleteMetadata: topicIdPartition Partition, brokerId int32, eventTimestampMs int64,
    remotePartitionDeleteState int8
3 RemoteLogSegmentMetadataSnapshot: segmentId uuid, startOffset int64, endOffset int64, brokerId int32,
    maxTimestampMs int64, eventTimestampMs int64, segmentLeaderEpochs [LeaderEpoch],
    segmentSizeInBytes int32, customMetadata bytes?, remoteLogSegmentState int8,
    txnIndexEmpty bool tag 0
"""

# control records of KRaft
CONTROL = """
LeaderVoter: voterId int32, voterDirectoryId uuid 1+
Endpoint: name string, host string, port uint16
KraftVersions: minSupportedVersion int16, maxSupportedVersion int16
Voter: voterId int32, voterDirectoryId uuid, endpoints [Endpoint], kRaftVersionFeature KraftVersions
2 LeaderChange to 1: version int16, leaderId int32, voters [LeaderVoter], grantingVoters [LeaderVoter]
3 SnapshotHeader: version int16, lastContainedLogTimestamp int64
4 SnapshotFooter: version int16
5 KRaftVersion: version int16, kRaftVersion int16
6 KRaftVoters: version int16, voters [Voter]
"""
