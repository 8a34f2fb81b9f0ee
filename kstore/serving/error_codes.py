"""Kafka's error codes, those of kstore's errors, and errors as fields of an answer."""

import io
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from kstore.errors import (
    CorruptFileError,
    InvalidConfigError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    KstoreError,
    LogClosedError,
    LogNotFoundError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    RecordTooLargeError,
    TransactionCoordinatorFencedError,
    UnsupportedCodecError,
)


class ErrorCode(IntEnum):
    """A code in a response; the name is Kafka's."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    TRANSACTION_ABORTABLE = 120


_CODES: Final = (  # the first that fits; a log that was closed under the server is that of a deleted topic
    (io.UnsupportedOperation, ErrorCode.POLICY_VIOLATION),  # a store that is open for reading
    (OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (LogNotFoundError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (LogClosedError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (RecordTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (InvalidTimestampError, ErrorCode.INVALID_TIMESTAMP),
    (InvalidRecordError, ErrorCode.INVALID_RECORD),
    (OutOfOrderSequenceError, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (InvalidProducerEpochError, ErrorCode.INVALID_PRODUCER_EPOCH),
    (InvalidTxnStateError, ErrorCode.INVALID_TXN_STATE),
    (TransactionCoordinatorFencedError, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    (PolicyViolationError, ErrorCode.POLICY_VIOLATION),
    (InvalidConfigError, ErrorCode.INVALID_CONFIG),
    (UnsupportedCodecError, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (CorruptFileError, ErrorCode.CORRUPT_MESSAGE),
    (OSError, ErrorCode.KAFKA_STORAGE_ERROR),
)


def code_of(error: Exception) -> ErrorCode:
    """The code for an error of kstore or of the system. A log that refuses writes, and any other error of
    kstore, is a failure of the storage."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.KAFKA_STORAGE_ERROR)


class RefusedError(Exception):
    """What a request asks for is refused: a code and a reason."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def attempt(action: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    """The fields that an action returns, with its error code and message."""
    try:
        return {"errorCode": ErrorCode.NONE, "errorMessage": None, **(action() or {})}
    except RefusedError as error:
        return {"errorCode": error.code, "errorMessage": str(error)}
    except (KstoreError, OSError) as error:
        return {"errorCode": code_of(error), "errorMessage": str(error)}
