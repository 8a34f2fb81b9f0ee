"""The marker that ends a transaction (spec 2.4)."""

from __future__ import annotations

import struct

from kstore.engine.record.batch_builder import encode_batch
from kstore.light_typing import TYPE_CHECKING
from kstore.log.producers.states import ABORT

if TYPE_CHECKING:
    from kstore.log.producers.states import ProducerState


def abort_marker(state: ProducerState, now_ms: int) -> bytes:
    """A batch with the marker that aborts the open transaction of a producer, with the epochs that
    kafka-transactions.sh abort gives it. It is appended with origin="coordinator"."""
    key = struct.pack(">hh", 0, ABORT)
    value = struct.pack(">hi", 0, max(state.coordinator_epoch, 0))
    return encode_batch(
        [(now_ms, key, value, None)],
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        transactional=True,
        control=True,
    )
