"""Records of __remote_log_metadata (spec 11.1, --remote-log-metadata-decoder).

The output is not JSON but the toString() of Java objects.
"""

from typing import Any, Final

from kstore.messages.errors import DecodeError, SkippedError, Texts
from kstore.messages.schema import Table
from kstore.messages.tables import REMOTE
from kstore.messages.topics import read_framed

_SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_PARTITION_STATES: Final = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)
_NO_VALUE: Final = (  # Java's message for a tombstone, which this topic should not have
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.internal.Record.value()" is null'
)


def _partition(entry: dict[str, Any]) -> str:
    return f"{entry['id']}:{entry['name']}-{entry['partition']}"


def _segment_id(entry: dict[str, Any]) -> str:
    partition = _partition(entry["topicIdPartition"])
    return f"RemoteLogSegmentId{{topicIdPartition={partition}, id={entry['id']}}}"


def _state(names: tuple[str, ...], number: int, reason: str) -> str:
    if not 0 <= number < len(names):
        raise DecodeError(f"unknown state {number}", reason=reason)
    return names[number]


def _segment_state(record: dict[str, Any]) -> str:
    return _state(_SEGMENT_STATES, record["remoteLogSegmentState"], "state can not be null")


def _custom(metadata: bytes | None) -> str:
    if metadata is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(metadata)} bytes}}]"


def _epochs(entries: list[dict[str, Any]]) -> str:
    if not entries:
        raise DecodeError("segmentLeaderEpochs can not be null or empty")
    offsets = {entry["leaderEpoch"]: entry["offset"] for entry in entries}
    return "{" + ", ".join(f"{epoch}={offsets[epoch]}" for epoch in sorted(offsets)) + "}"


def _flag(flag: bool) -> str:
    return "true" if flag else "false"


def _segment(record: dict[str, Any]) -> str:
    start, end = record["startOffset"], record["endOffset"]
    if start < 0:
        raise DecodeError(
            f"Unexpected start offset = {start}. StartOffset for a remote segment cannot be negative"
        )
    if end < start:
        raise DecodeError(
            f"Unexpected end offset = {end}. "
            f"EndOffset for a remote segment cannot be less than startOffset = {start}"
        )
    epochs = _epochs(record["segmentLeaderEpochs"])
    return (
        f"{{remoteLogSegmentId={_segment_id(record['remoteLogSegmentId'])}, "
        f"startOffset={start}, endOffset={end}, brokerId={record['brokerId']}, "
        f"maxTimestampMs={record['maxTimestampMs']}, "
        f"eventTimestampMs={record['eventTimestampMs']}, segmentLeaderEpochs={epochs}, "
        f"segmentSizeInBytes={record['segmentSizeInBytes']}, "
        f"customMetadata={_custom(record['customMetadata'])}, state={_segment_state(record)}, "
        f"txnIdxEmpty={_flag(record['txnIndexEmpty'])}}}"
    )


def _update(record: dict[str, Any]) -> str:
    return (
        f"{{remoteLogSegmentId={_segment_id(record['remoteLogSegmentId'])}, "
        f"customMetadata={_custom(record['customMetadata'])}, state={_segment_state(record)}, "
        f"eventTimestampMs={record['eventTimestampMs']}, brokerId={record['brokerId']}}}"
    )


def _delete(record: dict[str, Any]) -> str:
    state = _state(_PARTITION_STATES, record["remotePartitionDeleteState"], "null")
    return (
        f"{{topicPartition={_partition(record['topicIdPartition'])}, state={state}, "
        f"eventTimestampMs={record['eventTimestampMs']}, brokerId={record['brokerId']}}}"
    )


def _snapshot(record: dict[str, Any]) -> str:
    state = _segment_state(record)
    epochs = _epochs(record["segmentLeaderEpochs"])
    return (
        f"{{segmentId={record['segmentId']}, startOffset={record['startOffset']}, "
        f"endOffset={record['endOffset']}, maxTimestampMs={record['maxTimestampMs']}, "
        f"segmentLeaderEpochs={epochs}, segmentSizeInBytes={record['segmentSizeInBytes']}, "
        f"customMetadata={_custom(record['customMetadata'])}, state={state}, "
        f"txnIdxEmpty={_flag(record['txnIndexEmpty'])}}}"
    )


_SHOWN: Final = {
    "RemoteLogSegmentMetadata": _segment,
    "RemoteLogSegmentMetadataUpdate": _update,
    "RemotePartitionDeleteMetadata": _delete,
    "RemoteLogSegmentMetadataSnapshot": _snapshot,
}


_TABLE = Table(REMOTE)


def decode_remote(key: bytes | None, value: bytes | None) -> Texts:
    """The payload; keys are not shown. SkippedError."""
    try:
        if value is None:
            raise DecodeError("a record without value", reason=_NO_VALUE)
        message, _, values = read_framed(_TABLE, value)
        return None, message.name + _SHOWN[message.name](values)
    except DecodeError as error:
        remark = f", skipping. {error.reason}"
        raise SkippedError("Error at offset ", remark, as_payload=True) from error
