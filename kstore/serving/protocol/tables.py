"""Requests and responses as tables of fields: facts of Kafka's published schemas. See kstore.messages.tables
for the language.

The number of a response is the key of the API, and its request stands in the place of a key. A field that no
offered version has is left out.
"""

APIS = """
PartitionProduceData: index int32, records records?
TopicProduceData: name string, partitionData [PartitionProduceData]
ProduceRequest to 9 flexible 9+: transactionalId string? = null, acks int16, timeoutMs int32,
    topicData [TopicProduceData]
BatchIndexAndErrorMessage: batchIndex int32 8+, batchIndexErrorMessage string? 8+ = null
PartitionProduceResponse: index int32, errorCode int16, baseOffset int64, logAppendTimeMs int64 = -1,
    logStartOffset int64 5+ = -1, recordErrors [BatchIndexAndErrorMessage] 8+,
    errorMessage string? 8+ = null
TopicProduceResponse: name string, partitionResponses [PartitionProduceResponse]
0 ProduceRequest -> ProduceResponse to 9 flexible 9+: responses [TopicProduceResponse],
    throttleTimeMs int32
FetchPartition: partition int32, currentLeaderEpoch int32 9+ = -1, fetchOffset int64,
    logStartOffset int64 5+ = -1, partitionMaxBytes int32
FetchTopic: topic string, partitions [FetchPartition]
ForgottenTopic: topic string 7+, partitions [int32] 7+
FetchRequest to 11 rigid: replicaId int32 = -1, maxWaitMs int32, minBytes int32,
    maxBytes int32 = 2147483647, isolationLevel int8, sessionId int32 7+, sessionEpoch int32 7+ = -1,
    topics [FetchTopic], forgottenTopicsData [ForgottenTopic] 7+, rackId string 11+
AbortedTransaction: producerId int64, firstOffset int64
PartitionData: partitionIndex int32, errorCode int16, highWatermark int64, lastStableOffset int64 = -1,
    logStartOffset int64 5+ = -1, abortedTransactions [AbortedTransaction]?,
    preferredReadReplica int32 11+ = -1, records records?
FetchableTopicResponse: topic string, partitions [PartitionData]
1 FetchRequest -> FetchResponse to 11 rigid: throttleTimeMs int32, errorCode int16 7+,
    sessionId int32 7+, responses [FetchableTopicResponse]
ListOffsetsPartition: partitionIndex int32, currentLeaderEpoch int32 4+ = -1, timestamp int64
ListOffsetsTopic: name string, partitions [ListOffsetsPartition]
ListOffsetsRequest to 7 flexible 6+: replicaId int32, isolationLevel int8 2+, topics [ListOffsetsTopic]
ListOffsetsPartitionResponse: partitionIndex int32, errorCode int16, timestamp int64 = -1,
    offset int64 = -1, leaderEpoch int32 4+ = -1
ListOffsetsTopicResponse: name string, partitions [ListOffsetsPartitionResponse]
2 ListOffsetsRequest -> ListOffsetsResponse to 7 flexible 6+: throttleTimeMs int32 2+,
    topics [ListOffsetsTopicResponse]
MetadataRequestTopic: topicId uuid 10+, name string?10+
MetadataRequest to 12 flexible 9+: topics [MetadataRequestTopic]?,
    allowAutoTopicCreation bool 4+ = true, includeClusterAuthorizedOperations bool 8-10,
    includeTopicAuthorizedOperations bool 8+
MetadataResponseBroker: nodeId int32, host string, port int32, rack string? = null
MetadataResponsePartition: errorCode int16, partitionIndex int32, leaderId int32,
    leaderEpoch int32 7+ = -1, replicaNodes [int32], isrNodes [int32], offlineReplicas [int32] 5+
MetadataResponseTopic: errorCode int16, name string?12+, topicId uuid 10+, isInternal bool,
    partitions [MetadataResponsePartition], topicAuthorizedOperations int32 8+ = -2147483648
3 MetadataRequest -> MetadataResponse to 12 flexible 9+: throttleTimeMs int32 3+,
    brokers [MetadataResponseBroker], clusterId string? 2+ = null, controllerId int32 = -1,
    topics [MetadataResponseTopic], clusterAuthorizedOperations int32 8-10 = -2147483648
OffsetCommitRequestPartition: partitionIndex int32, committedOffset int64,
    committedLeaderEpoch int32 6+ = -1, committedMetadata string?
OffsetCommitRequestTopic: name string, partitions [OffsetCommitRequestPartition]
OffsetCommitRequest to 8 flexible 8+: groupId string, generationIdOrMemberEpoch int32 = -1,
    memberId string, groupInstanceId string? 7+ = null, retentionTimeMs int64 2-4 = -1,
    topics [OffsetCommitRequestTopic]
OffsetCommitResponsePartition: partitionIndex int32, errorCode int16
OffsetCommitResponseTopic: name string, partitions [OffsetCommitResponsePartition]
8 OffsetCommitRequest -> OffsetCommitResponse to 8 flexible 8+: throttleTimeMs int32 3+,
    topics [OffsetCommitResponseTopic]
OffsetFetchRequestTopic: name string, partitionIndexes [int32]
OffsetFetchRequest to 7 flexible 6+: groupId string, topics [OffsetFetchRequestTopic]?2+,
    requireStable bool 7+
OffsetFetchResponsePartition: partitionIndex int32, committedOffset int64,
    committedLeaderEpoch int32 5+ = -1, metadata string?, errorCode int16
OffsetFetchResponseTopic: name string, partitions [OffsetFetchResponsePartition]
9 OffsetFetchRequest -> OffsetFetchResponse to 7 flexible 6+: throttleTimeMs int32 3+,
    topics [OffsetFetchResponseTopic], errorCode int16 2+
FindCoordinatorRequest to 4 flexible 3+: key string 0-3, keyType int8 1+, coordinatorKeys [string] 4+
Coordinator: key string 4+, nodeId int32 4+, host string 4+, port int32 4+, errorCode int16 4+,
    errorMessage string? 4+
10 FindCoordinatorRequest -> FindCoordinatorResponse to 4 flexible 3+: throttleTimeMs int32 1+,
    errorCode int16 0-3, errorMessage string? 1-3, nodeId int32 0-3, host string 0-3, port int32 0-3,
    coordinators [Coordinator] 4+
JoinGroupRequestProtocol: name string, metadata bytes
JoinGroupRequest to 9 flexible 6+: groupId string, sessionTimeoutMs int32,
    rebalanceTimeoutMs int32 1+ = -1, memberId string, groupInstanceId string? 5+ = null,
    protocolType string, protocols [JoinGroupRequestProtocol], reason string? 8+ = null
JoinGroupResponseMember: memberId string, groupInstanceId string? 5+ = null, metadata bytes
11 JoinGroupRequest -> JoinGroupResponse to 9 flexible 6+: throttleTimeMs int32 2+, errorCode int16,
    generationId int32 = -1, protocolType string? 7+ = null, protocolName string?7+, leader string,
    skipAssignment bool 9+, memberId string, members [JoinGroupResponseMember]
HeartbeatRequest to 4 flexible 4+: groupId string, generationId int32, memberId string,
    groupInstanceId string? 3+ = null
12 HeartbeatRequest -> HeartbeatResponse to 4 flexible 4+: throttleTimeMs int32 1+, errorCode int16
MemberIdentity: memberId string 3+, groupInstanceId string? 3+ = null, reason string? 5+ = null
LeaveGroupRequest to 5 flexible 4+: groupId string, memberId string 0-2, members [MemberIdentity] 3+
MemberResponse: memberId string 3+, groupInstanceId string? 3+, errorCode int16 3+
13 LeaveGroupRequest -> LeaveGroupResponse to 5 flexible 4+: throttleTimeMs int32 1+, errorCode int16,
    members [MemberResponse] 3+
SyncGroupRequestAssignment: memberId string, assignment bytes
SyncGroupRequest to 5 flexible 4+: groupId string, generationId int32, memberId string,
    groupInstanceId string? 3+ = null, protocolType string? 5+ = null, protocolName string? 5+ = null,
    assignments [SyncGroupRequestAssignment]
14 SyncGroupRequest -> SyncGroupResponse to 5 flexible 4+: throttleTimeMs int32 1+, errorCode int16,
    protocolType string? 5+ = null, protocolName string? 5+ = null, assignment bytes
DescribeGroupsRequest to 5 flexible 5+: groups [string], includeAuthorizedOperations bool 3+
DescribedGroupMember: memberId string, groupInstanceId string? 4+ = null, clientId string,
    clientHost string, memberMetadata bytes, memberAssignment bytes
DescribedGroup: errorCode int16, groupId string, groupState string, protocolType string,
    protocolData string, members [DescribedGroupMember], authorizedOperations int32 3+ = -2147483648
15 DescribeGroupsRequest -> DescribeGroupsResponse to 5 flexible 5+: throttleTimeMs int32 1+,
    groups [DescribedGroup]
ListGroupsRequest to 5 flexible 3+: statesFilter [string] 4+, typesFilter [string] 5+
ListedGroup: groupId string, protocolType string, groupState string 4+, groupType string 5+
16 ListGroupsRequest -> ListGroupsResponse to 5 flexible 3+: throttleTimeMs int32 1+, errorCode int16,
    groups [ListedGroup]
ApiVersionsRequest to 3 flexible 3+: clientSoftwareName string 3+, clientSoftwareVersion string 3+
ApiVersion: apiKey int16, minVersion int16, maxVersion int16
SupportedFeatureKey: name string 3+, minVersion int16 3+, maxVersion int16 3+
FinalizedFeatureKey: name string 3+, maxVersionLevel int16 3+, minVersionLevel int16 3+
18 ApiVersionsRequest -> ApiVersionsResponse to 3 flexible 3+: errorCode int16, apiKeys [ApiVersion],
    throttleTimeMs int32 1+, supportedFeatures [SupportedFeatureKey] tag 0 3+,
    finalizedFeaturesEpoch int64 tag 1 3+ = -1, finalizedFeatures [FinalizedFeatureKey] tag 2 3+,
    zkMigrationReady bool tag 3 3+
CreatableReplicaAssignment: partitionIndex int32, brokerIds [int32]
CreatableTopicConfig: name string, value string?
CreatableTopic: name string, numPartitions int32, replicationFactor int16,
    assignments [CreatableReplicaAssignment], configs [CreatableTopicConfig]
CreateTopicsRequest to 7 flexible 5+: topics [CreatableTopic], timeoutMs int32 = 60000,
    validateOnly bool
CreatableTopicConfigs: name string 5+, value string? 5+, readOnly bool 5+, configSource int8 5+ = -1,
    isSensitive bool 5+
CreatableTopicResult: name string, topicId uuid 7+, errorCode int16, errorMessage string?,
    topicConfigErrorCode int16 tag 0 5+, numPartitions int32 5+ = -1, replicationFactor int16 5+ = -1,
    configs [CreatableTopicConfigs]? 5+
19 CreateTopicsRequest -> CreateTopicsResponse to 7 flexible 5+: throttleTimeMs int32,
    topics [CreatableTopicResult]
DeleteTopicState: name string? 6+ = null, topicId uuid 6+
DeleteTopicsRequest to 6 flexible 4+: topics [DeleteTopicState] 6+, topicNames [string] 0-5,
    timeoutMs int32
DeletableTopicResult: name string?6+, topicId uuid 6+, errorCode int16, errorMessage string? 5+ = null
20 DeleteTopicsRequest -> DeleteTopicsResponse to 6 flexible 4+: throttleTimeMs int32,
    responses [DeletableTopicResult]
DeleteRecordsPartition: partitionIndex int32, offset int64
DeleteRecordsTopic: name string, partitions [DeleteRecordsPartition]
DeleteRecordsRequest to 2 flexible 2+: topics [DeleteRecordsTopic], timeoutMs int32
DeleteRecordsPartitionResult: partitionIndex int32, lowWatermark int64, errorCode int16
DeleteRecordsTopicResult: name string, partitions [DeleteRecordsPartitionResult]
21 DeleteRecordsRequest -> DeleteRecordsResponse to 2 flexible 2+: throttleTimeMs int32,
    topics [DeleteRecordsTopicResult]
InitProducerIdRequest to 4 flexible 2+: transactionalId string?, transactionTimeoutMs int32,
    producerId int64 3+ = -1, producerEpoch int16 3+ = -1
22 InitProducerIdRequest -> InitProducerIdResponse to 4 flexible 2+: throttleTimeMs int32,
    errorCode int16, producerId int64 = -1, producerEpoch int16
OffsetForLeaderPartition: partition int32, currentLeaderEpoch int32 = -1, leaderEpoch int32
OffsetForLeaderTopic: topic string, partitions [OffsetForLeaderPartition]
OffsetForLeaderEpochRequest to 4 flexible 4+: replicaId int32 3+ = -2, topics [OffsetForLeaderTopic]
EpochEndOffset: errorCode int16, partition int32, leaderEpoch int32 = -1, endOffset int64 = -1
OffsetForLeaderTopicResult: topic string, partitions [EpochEndOffset]
23 OffsetForLeaderEpochRequest -> OffsetForLeaderEpochResponse to 4 flexible 4+: throttleTimeMs int32,
    topics [OffsetForLeaderTopicResult]
AddPartitionsToTxnTopic: name string, partitions [int32]
AddPartitionsToTxnRequest to 3 flexible 3+: v3AndBelowTransactionalId string,
    v3AndBelowProducerId int64, v3AndBelowProducerEpoch int16,
    v3AndBelowTopics [AddPartitionsToTxnTopic]
AddPartitionsToTxnPartitionResult: partitionIndex int32, partitionErrorCode int16
AddPartitionsToTxnTopicResult: name string, resultsByPartition [AddPartitionsToTxnPartitionResult]
24 AddPartitionsToTxnRequest -> AddPartitionsToTxnResponse to 3 flexible 3+: throttleTimeMs int32,
    resultsByTopicV3AndBelow [AddPartitionsToTxnTopicResult]
AddOffsetsToTxnRequest to 3 flexible 3+: transactionalId string, producerId int64, producerEpoch int16,
    groupId string
25 AddOffsetsToTxnRequest -> AddOffsetsToTxnResponse to 3 flexible 3+: throttleTimeMs int32,
    errorCode int16
EndTxnRequest to 3 flexible 3+: transactionalId string, producerId int64, producerEpoch int16,
    committed bool
26 EndTxnRequest -> EndTxnResponse to 3 flexible 3+: throttleTimeMs int32, errorCode int16
TxnOffsetCommitRequestPartition: partitionIndex int32, committedOffset int64,
    committedLeaderEpoch int32 2+ = -1, committedMetadata string?
TxnOffsetCommitRequestTopic: name string, partitions [TxnOffsetCommitRequestPartition]
TxnOffsetCommitRequest to 3 flexible 3+: transactionalId string, groupId string, producerId int64,
    producerEpoch int16, generationId int32 3+ = -1, memberId string 3+,
    groupInstanceId string? 3+ = null, topics [TxnOffsetCommitRequestTopic]
TxnOffsetCommitResponsePartition: partitionIndex int32, errorCode int16
TxnOffsetCommitResponseTopic: name string, partitions [TxnOffsetCommitResponsePartition]
28 TxnOffsetCommitRequest -> TxnOffsetCommitResponse to 3 flexible 3+: throttleTimeMs int32,
    topics [TxnOffsetCommitResponseTopic]
DescribeConfigsResource: resourceType int8, resourceName string, configurationKeys [string]?
DescribeConfigsRequest to 4 flexible 4+: resources [DescribeConfigsResource], includeSynonyms bool,
    includeDocumentation bool 3+
DescribeConfigsSynonym: name string, value string?, source int8
DescribeConfigsResourceResult: name string, value string?, readOnly bool, configSource int8 = -1,
    isSensitive bool, synonyms [DescribeConfigsSynonym], configType int8 3+, documentation string? 3+
DescribeConfigsResult: errorCode int16, errorMessage string?, resourceType int8, resourceName string,
    configs [DescribeConfigsResourceResult]
32 DescribeConfigsRequest -> DescribeConfigsResponse to 4 flexible 4+: throttleTimeMs int32,
    results [DescribeConfigsResult]
AlterableConfig: name string, value string?
AlterConfigsResource: resourceType int8, resourceName string, configs [AlterableConfig]
AlterConfigsRequest to 2 flexible 2+: resources [AlterConfigsResource], validateOnly bool
AlterConfigsResourceResponse: errorCode int16, errorMessage string?, resourceType int8,
    resourceName string
33 AlterConfigsRequest -> AlterConfigsResponse to 2 flexible 2+: throttleTimeMs int32,
    responses [AlterConfigsResourceResponse]
DescribableLogDirTopic: topic string, partitions [int32]
DescribeLogDirsRequest to 4 flexible 2+: topics [DescribableLogDirTopic]?
DescribeLogDirsPartition: partitionIndex int32, partitionSize int64, offsetLag int64, isFutureKey bool
DescribeLogDirsTopic: name string, partitions [DescribeLogDirsPartition]
DescribeLogDirsResult: errorCode int16, logDir string, topics [DescribeLogDirsTopic],
    totalBytes int64 4+ = -1, usableBytes int64 4+ = -1
35 DescribeLogDirsRequest -> DescribeLogDirsResponse to 4 flexible 2+: throttleTimeMs int32,
    errorCode int16 3+, results [DescribeLogDirsResult]
CreatePartitionsAssignment: brokerIds [int32]
CreatePartitionsTopic: name string, count int32, assignments [CreatePartitionsAssignment]?
CreatePartitionsRequest to 3 flexible 2+: topics [CreatePartitionsTopic], timeoutMs int32,
    validateOnly bool
CreatePartitionsTopicResult: name string, errorCode int16, errorMessage string? = null
37 CreatePartitionsRequest -> CreatePartitionsResponse to 3 flexible 2+: throttleTimeMs int32,
    results [CreatePartitionsTopicResult]
DeleteGroupsRequest to 2 flexible 2+: groupsNames [string]
DeletableGroupResult: groupId string, errorCode int16
42 DeleteGroupsRequest -> DeleteGroupsResponse to 2 flexible 2+: throttleTimeMs int32,
    results [DeletableGroupResult]
AlterableConfig: name string, configOperation int8, value string?
AlterConfigsResource: resourceType int8, resourceName string, configs [AlterableConfig]
IncrementalAlterConfigsRequest to 1 flexible 1+: resources [AlterConfigsResource], validateOnly bool
AlterConfigsResourceResponse: errorCode int16, errorMessage string?, resourceType int8,
    resourceName string
44 IncrementalAlterConfigsRequest -> IncrementalAlterConfigsResponse to 1 flexible 1+:
    throttleTimeMs int32, responses [AlterConfigsResourceResponse]
OffsetDeleteRequestPartition: partitionIndex int32
OffsetDeleteRequestTopic: name string, partitions [OffsetDeleteRequestPartition]
OffsetDeleteRequest rigid: groupId string, topics [OffsetDeleteRequestTopic]
OffsetDeleteResponsePartition: partitionIndex int32, errorCode int16
OffsetDeleteResponseTopic: name string, partitions [OffsetDeleteResponsePartition]
47 OffsetDeleteRequest -> OffsetDeleteResponse rigid: errorCode int16, throttleTimeMs int32,
    topics [OffsetDeleteResponseTopic]
DescribeClusterRequest to 1: includeClusterAuthorizedOperations bool, endpointType int8 1+ = 1
DescribeClusterBroker: brokerId int32, host string, port int32, rack string? = null
60 DescribeClusterRequest -> DescribeClusterResponse to 1: throttleTimeMs int32, errorCode int16,
    errorMessage string? = null, endpointType int8 1+ = 1, clusterId string, controllerId int32 = -1,
    brokers [DescribeClusterBroker], clusterAuthorizedOperations int32 = -2147483648
TopicRequest: name string, partitionIndexes [int32]
DescribeProducersRequest: topics [TopicRequest]
ProducerState: producerId int64, producerEpoch int32, lastSequence int32 = -1, lastTimestamp int64 = -1,
    coordinatorEpoch int32, currentTxnStartOffset int64 = -1
PartitionResponse: partitionIndex int32, errorCode int16, errorMessage string? = null,
    activeProducers [ProducerState]
TopicResponse: name string, partitions [PartitionResponse]
61 DescribeProducersRequest -> DescribeProducersResponse: throttleTimeMs int32, topics [TopicResponse]
DescribeTransactionsRequest: transactionalIds [string]
TopicData: topic string, partitions [int32]
TransactionState: errorCode int16, transactionalId string, transactionState string,
    transactionTimeoutMs int32, transactionStartTimeMs int64, producerId int64, producerEpoch int16,
    topics [TopicData]
65 DescribeTransactionsRequest -> DescribeTransactionsResponse: throttleTimeMs int32,
    transactionStates [TransactionState]
ListTransactionsRequest to 1: stateFilters [string], producerIdFilters [int64],
    durationFilter int64 1+ = -1
TransactionState: transactionalId string, producerId int64, transactionState string
66 ListTransactionsRequest -> ListTransactionsResponse to 1: throttleTimeMs int32, errorCode int16,
    unknownStateFilters [string], transactionStates [TransactionState]
"""
