"""Batches of transactions, and the control batches that end them, as a coordinator writes them."""

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


def transactional(
    *records: tuple[object, ...], producer: int = 7, sequence: int = 0, epoch: int = 0
) -> bytes:
    """A batch of a transaction that is open after it."""
    return kstore.encode_batch(
        records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )


def end_transaction(log: kstore.LogWriter, kind: str, at: int, producer: int = 7) -> None:
    """Ends the transaction of a producer: kind ABORT or COMMIT."""
    log.append_batches(marker(kind, producer, at), origin="coordinator", transaction_version=0)
