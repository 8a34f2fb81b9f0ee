"""The lines of Kafka's dump tool for a producer snapshot (spec 11.2), and its remark about a corrupt one."""

import sys
from collections.abc import Iterator

from kstore.errors import CorruptSnapshotError, visible
from kstore.log.producers.states import read_snapshot
from kstore.tools.dumps.index import FileReport
from kstore.tools.dumps.log import optional_long
from kstore.tools.dumps.path import content_of

_HEADER = 10  # bytes: version, checksum, number of producers
_SCHEMA = "Snapshot failed schema validation: "


def snapshot_remark(data: bytes) -> str:
    """The remark of Kafka's tool on stderr about a corrupt snapshot."""
    version = int.from_bytes(data[:2], "big", signed=True)
    count = int.from_bytes(data[6:_HEADER], "big", signed=True)
    left = len(data) - _HEADER
    if len(data) >= 2 and version != 1:
        return f"{_SCHEMA}Snapshot contained an unknown file version {version}"
    if left < 0:
        return f"{_SCHEMA}null"
    if count < 0:
        return f"{_SCHEMA}non-nullable field producerEntries was serialized as null"
    if count > left:
        return (
            f"{_SCHEMA}Tried to allocate a collection of size {count}, "
            f"but there are only {left} bytes remaining."
        )
    return f"{_SCHEMA}null"


def dump_snapshot(path: str, report: FileReport) -> Iterator[str]:
    """The lines of a producer snapshot; for a corrupt one a remark on stderr, as in Kafka's tool."""
    data = content_of(path)
    try:
        states = read_snapshot(data, path)
    except CorruptSnapshotError as e:
        if e.reason.startswith("checksum"):
            remark = (
                "Snapshot is corrupt (CRC is no longer valid). "
                f"Stored crc: {e.expected}. Computed crc: {e.found}"
            )
        else:
            remark = snapshot_remark(data)
        print(visible(remark), file=sys.stderr)
        report.failed = True
        return
    for state in states:
        line = (
            f"producerId: {state.producer_id} producerEpoch: {state.producer_epoch} "
            f"coordinatorEpoch: {state.coordinator_epoch} "
            f"currentTxnFirstOffset: {optional_long(state.current_txn_first_offset)} "
            f"lastTimestamp: {state.last_timestamp}"
        )
        if state.batches:
            batch = state.batches[0]
            line += (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} "
                f"timestamp: {batch.timestamp}"
            )
        yield line
