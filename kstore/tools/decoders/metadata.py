"""Records of __cluster_metadata and of its snapshots (spec 11.1, --cluster-metadata-decoder)."""

from typing import Final

from kstore.tools.decoders.errors import DecodeError, SkippedError, Texts
from kstore.tools.decoders.framed import read_framed
from kstore.tools.decoders.json_text import json_text
from kstore.tools.decoders.schema import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT32S,
    INT64,
    STRING,
    STRINGS,
    UINT16,
    UUID,
    UUIDS,
    Array,
    Field,
    Message,
    Struct,
)

_ENDPOINT = Struct(
    Field("name", STRING),
    Field("host", STRING),
    Field("port", UINT16),
    Field("securityProtocol", INT16),
)
_FEATURE = Struct(
    Field("name", STRING),
    Field("minSupportedVersion", INT16),
    Field("maxSupportedVersion", INT16),
)
_ENTITY = Struct(
    Field("entityType", STRING),
    Field("entityName", STRING, nullable=True),
)

RECORDS: Final = {
    0: Message(
        "REGISTER_BROKER_RECORD",
        Field("brokerId", INT32),
        Field("isMigratingZkBroker", BOOLEAN, since=2),
        Field("incarnationId", UUID),
        Field("brokerEpoch", INT64),
        Field("endPoints", Array(_ENDPOINT)),
        Field("features", Array(_FEATURE)),
        Field("rack", STRING, nullable=True),
        Field("fenced", BOOLEAN),
        Field("inControlledShutdown", BOOLEAN, since=1),
        Field("logDirs", UUIDS, since=3, tag=0),
        Field("cordonedLogDirs", UUIDS, since=4, tag=1, nullable=True, default=None),
        highest=4,
    ),
    1: Message(
        "UNREGISTER_BROKER_RECORD",
        Field("brokerId", INT32),
        Field("brokerEpoch", INT64),
    ),
    2: Message("TOPIC_RECORD", Field("name", STRING), Field("topicId", UUID)),
    3: Message(
        "PARTITION_RECORD",
        Field("partitionId", INT32),
        Field("topicId", UUID),
        Field("replicas", INT32S),
        Field("isr", INT32S),
        Field("removingReplicas", INT32S),
        Field("addingReplicas", INT32S),
        Field("leader", INT32),
        Field("leaderRecoveryState", INT8, tag=0),
        Field("leaderEpoch", INT32),
        Field("partitionEpoch", INT32),
        Field("directories", UUIDS, since=1),
        Field("eligibleLeaderReplicas", INT32S, since=2, tag=1, nullable=True, default=None),
        Field("lastKnownElr", INT32S, since=2, tag=2, nullable=True, default=None),
        highest=2,
    ),
    4: Message(
        "CONFIG_RECORD",
        Field("resourceType", INT8),
        Field("resourceName", STRING),
        Field("name", STRING),
        Field("value", STRING, nullable=True),
    ),
    5: Message(
        "PARTITION_CHANGE_RECORD",
        Field("partitionId", INT32),
        Field("topicId", UUID),
        Field("isr", INT32S, tag=0, nullable=True, default=None),
        Field("leader", INT32, tag=1, default=-2),
        Field("replicas", INT32S, tag=2, nullable=True, default=None),
        Field("removingReplicas", INT32S, tag=3, nullable=True, default=None),
        Field("addingReplicas", INT32S, tag=4, nullable=True, default=None),
        Field("leaderRecoveryState", INT8, tag=5, default=-1),
        Field("directories", UUIDS, since=1, tag=8, nullable=True, default=None),
        Field("eligibleLeaderReplicas", INT32S, since=2, tag=6, nullable=True, default=None),
        Field("lastKnownElr", INT32S, since=2, tag=7, nullable=True, default=None),
        highest=2,
    ),
    7: Message("FENCE_BROKER_RECORD", Field("id", INT32), Field("epoch", INT64)),
    8: Message("UNFENCE_BROKER_RECORD", Field("id", INT32), Field("epoch", INT64)),
    9: Message("REMOVE_TOPIC_RECORD", Field("topicId", UUID)),
    10: Message(
        "DELEGATION_TOKEN_RECORD",
        Field("owner", STRING),
        Field("requester", STRING),
        Field("renewers", STRINGS),
        Field("issueTimestamp", INT64),
        Field("maxTimestamp", INT64),
        Field("expirationTimestamp", INT64),
        Field("tokenId", STRING),
    ),
    11: Message(
        "USER_SCRAM_CREDENTIAL_RECORD",
        Field("name", STRING),
        Field("mechanism", INT8),
        Field("salt", BYTES),
        Field("storedKey", BYTES),
        Field("serverKey", BYTES),
        Field("iterations", INT32),
    ),
    12: Message(
        "FEATURE_LEVEL_RECORD",
        Field("name", STRING),
        Field("featureLevel", INT16),
    ),
    14: Message(
        "CLIENT_QUOTA_RECORD",
        Field("entity", Array(_ENTITY)),
        Field("key", STRING),
        Field("value", FLOAT64),
        Field("remove", BOOLEAN),
    ),
    15: Message(
        "PRODUCER_IDS_RECORD",
        Field("brokerId", INT32),
        Field("brokerEpoch", INT64),
        Field("nextProducerId", INT64),
    ),
    17: Message(
        "BROKER_REGISTRATION_CHANGE_RECORD",
        Field("brokerId", INT32),
        Field("brokerEpoch", INT64),
        Field("fenced", INT8, tag=0),
        Field("inControlledShutdown", INT8, since=1, tag=1),
        Field("logDirs", UUIDS, since=2, tag=2),
        Field("cordonedLogDirs", UUIDS, since=3, tag=3, nullable=True, default=None),
        highest=3,
    ),
    18: Message(
        "ACCESS_CONTROL_ENTRY_RECORD",
        Field("id", UUID),
        Field("resourceType", INT8),
        Field("resourceName", STRING),
        Field("patternType", INT8),
        Field("principal", STRING),
        Field("host", STRING),
        Field("operation", INT8),
        Field("permissionType", INT8),
    ),
    19: Message("REMOVE_ACCESS_CONTROL_ENTRY_RECORD", Field("id", UUID)),
    20: Message("NO_OP_RECORD"),
    21: Message("ZK_MIGRATION_STATE_RECORD", Field("zkMigrationState", INT8)),
    22: Message(
        "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
        Field("name", STRING),
        Field("mechanism", INT8),
    ),
    23: Message(
        "BEGIN_TRANSACTION_RECORD",
        Field("name", STRING, tag=0, nullable=True, default=None),
    ),
    24: Message("END_TRANSACTION_RECORD"),
    25: Message(
        "ABORT_TRANSACTION_RECORD",
        Field("reason", STRING, tag=0, nullable=True, default=None),
    ),
    26: Message("REMOVE_DELEGATION_TOKEN_RECORD", Field("tokenId", STRING)),
    27: Message(
        "REGISTER_CONTROLLER_RECORD",
        Field("controllerId", INT32),
        Field("incarnationId", UUID),
        Field("zkMigrationReady", BOOLEAN),
        Field("endPoints", Array(_ENDPOINT)),
        Field("features", Array(_FEATURE)),
    ),
    28: Message("CLEAR_ELR_RECORD", Field("topicName", STRING)),
}


def decode_metadata(key: bytes | None, value: bytes | None) -> Texts:
    """The payload as JSON; keys are not shown. SkippedError."""
    try:
        message, version, values = read_framed(RECORDS, value)
    except DecodeError as error:
        raise SkippedError("Error at ", f", skipping. {error.reason}", as_payload=True) from error
    data = message.shown_version(values, version)
    return None, json_text({"type": message.name, "version": version, "data": data})
