"""Batches and records as plain objects for JSON: the field names of the golden data (tests/golden/data)."""

import base64
import hashlib
from collections.abc import Callable
from typing import Any

from kstore.engine.record.batch import CONTROL_TYPES, Record, RecordBatch, control_type


def batch_fields(batch: RecordBatch) -> dict[str, Any]:
    """The header of a batch."""
    fields: dict[str, Any] = {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "position": batch.position,
        "size": batch.size,
        "magic": batch.magic,
        "codec": batch.codec,
        "timestamp_type": batch.timestamp_type,
        "max_timestamp": batch.max_timestamp,
        "crc": batch.crc,
        "valid": batch.is_valid,
    }
    if batch.magic == 2:
        fields |= {
            "count": batch.records_count,
            "pid": batch.producer_id,
            "epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "last_sequence": batch.last_sequence,
            "transactional": batch.is_transactional,
            "control": batch.is_control,
            "leader_epoch": batch.leader_epoch,
            "delete_horizon": batch.delete_horizon_ms,
        }
    return fields


Form = Callable[[bytes | None], object]  # how keys, values and header values are put into JSON


def plain(data: bytes | None) -> object:
    """UTF-8 as text, other bytes as {"base64": "..."}, None for null: this goes back to the same bytes."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": encoded(data)}


def encoded(data: bytes | None) -> str | None:
    """Base64, or None for null."""
    return None if data is None else base64.b64encode(data).decode()


def hidden(data: bytes | None) -> object:
    """What `redacted` gives, marked as such: nothing takes it for the data."""
    return None if data is None else {"redacted": redacted(data)}


def redacted(data: bytes | None) -> str | None:
    """A short hash and the length: equal data gives equal text, and the data cannot be read back from it."""
    return None if data is None else f"{hashlib.sha256(data).hexdigest()[:12]}:{len(data)}"


def record_fields(batch: RecordBatch, record: Record, form: Form = plain) -> dict[str, Any]:
    """One record; its batch's fields are for the caller to add."""
    if batch.is_control and form is hidden:
        form = plain  # a marker holds no data
    fields: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": form(record.key),
        "value": form(record.value),
        "headers": [[name, form(value)] for name, value in record.headers],
    }
    sequence = batch.sequence_of(record)
    if sequence >= 0:
        fields["sequence"] = sequence
    if batch.is_control:
        kind = control_type(record.key, batch.file, batch.position)
        fields["control_type"] = CONTROL_TYPES[kind] if kind >= 0 else "UNKNOWN"
        if kind in (0, 1) and record.value is not None and len(record.value) >= 6:
            fields["coordinator_epoch"] = int.from_bytes(record.value[2:6], "big", signed=True)
    return fields
