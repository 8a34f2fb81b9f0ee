"""How two batches are compared whose records were packed by different libraries."""

from typing import Any

import kstore


def shape(batch: kstore.RecordBatch, later: int = 0) -> tuple[Any, ...]:
    """All that a batch says, but for how its records are packed; with records that are so many ms `later`."""
    return (
        batch.base_offset,
        batch.last_offset,
        batch.magic,
        batch.attributes,
        batch.base_timestamp + (later if batch.delete_horizon_ms is None else 0),
        batch.max_timestamp + later,
        batch.delete_horizon_ms,
        batch.records_count,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.leader_epoch,
        tuple(
            (r.offset, r.timestamp + later, r.timestamp_type, r.key, r.value, r.headers)
            for r in batch.records()
        ),
    )
