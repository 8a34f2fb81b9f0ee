"""Control batches that end a transaction, as a coordinator writes them."""

import struct

import kstore


def marker(
    kind: str, producer_id: int, at: int, *, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> bytes:
    """A batch with one marker: kind ABORT or COMMIT."""
    key = struct.pack(">hh", 0, ("ABORT", "COMMIT").index(kind))
    return kstore.encode_batch(
        [(at, key, struct.pack(">hi", 0, coordinator_epoch), None)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
