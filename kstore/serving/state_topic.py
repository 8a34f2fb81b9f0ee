"""An internal topic that holds the state of a coordinator: __consumer_offsets or __transaction_state."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Final, NamedTuple

from kstore.engine.record.batch import RecordBatch
from kstore.engine.record.batch_builder import encode_batch
from kstore.errors import (
    InvalidConfigError,
    LogFailedError,
    LogNotFoundError,
    TransactionCoordinatorFencedError,
)
from kstore.log.writer import LogWriter
from kstore.store import LogStore
from kstore.store.consumer_offsets import partition_of

StateRecord = tuple[bytes, bytes | None]  # the key and the value, None for a tombstone
_SEGMENT_BYTES: Final = (
    104_857_600  # Kafka's offsets.topic.segment.bytes and transaction.state.log.segment.bytes
)
_MARKER_KEY, _MARKER_VALUE = struct.Struct(">hh"), struct.Struct(">hi")


class Producer(NamedTuple):
    """The producer of a transaction in a batch."""

    producer_id: int
    epoch: int


class StateTopic:
    """The topic of a coordinator, created when it is first needed. Each key has one partition."""

    def __init__(self, store: LogStore, name: str, partitions: int) -> None:
        self.store = store
        self.name = name
        self._wanted = partitions
        self._lock = Lock()

    def partitions(self) -> list[int]:
        """The partitions that exist; none if the topic does not."""
        return self.store.topics.get(self.name, [])

    def create(self) -> None:
        """Create the topic, unless it exists. InvalidConfigError in the directory of a broker, which must
        create its internal topics itself; OSError."""
        with self._lock:
            if self.partitions():
                return
            if self.store.meta():
                raise InvalidConfigError(
                    f"{self.store.path} belongs to a broker and has no topic {self.name}: a broker would set "
                    "aside what another program creates. Start the broker and use it once"
                )
            self.store.create_topic(
                self.name, self._wanted, cleanup_policy="compact", segment_bytes=_SEGMENT_BYTES
            )

    def partition_of(self, key: str) -> int:
        """The partition of a group or of a transactional id, as a broker computes it. LogNotFoundError if the
        topic does not exist or lacks partitions."""
        numbers = self.partitions()
        if not numbers or len(numbers) != max(numbers) + 1:
            raise LogNotFoundError(f"{self.store.path} has {len(numbers)} partitions of {self.name}")
        return partition_of(key, len(numbers))

    def log(self, partition: int) -> LogWriter:
        """The log of a partition. LogNotFoundError."""
        log = self.store.log(self.name, partition)
        if not isinstance(log, LogWriter):
            raise LogFailedError(f"{self.store.path} is not open for writing")
        return log

    def batches(self, partition: int) -> Iterator[RecordBatch]:
        """The batches of a partition, to load the state. CorruptRecordError, OSError."""
        return self.log(partition).batches()

    def append(
        self, partition: int, records: Sequence[StateRecord], now: int, producer: Producer | None = None
    ) -> int:
        """Append records as one batch, of a transaction if there is a producer. Returns the first offset.
        The errors are those of LogWriter.append_batches."""
        producer_id, epoch = (-1, -1) if producer is None else producer
        encoded = encode_batch(
            [(now, key, value, None) for key, value in records],
            transactional=producer is not None,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=min(producer_id, 0),  # 0, in every batch of a producer: no broker checks it
        )
        return self.log(partition).append_batches(encoded, origin="coordinator").first_offset


def append_marker(
    log: LogWriter, producer: Producer, *, commits: bool, epoch: int, now: int, version: int
) -> None:
    """End the transaction of a producer in a log. `epoch` is that of the coordinator, `version` that of the
    transaction. The errors are those of LogWriter.append_batches."""

    def encoded(coordinator_epoch: int) -> bytes:
        return encode_batch(
            [(now, _MARKER_KEY.pack(0, commits), _MARKER_VALUE.pack(0, coordinator_epoch), None)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transactional=True,
            control=True,
        )

    try:
        log.append_batches(encoded(epoch), origin="coordinator", transaction_version=version)
    except (
        TransactionCoordinatorFencedError
    ):  # a broker has ended one with a later epoch than is in the topic
        known = log.producers()[producer.producer_id].coordinator_epoch
        log.append_batches(encoded(known), origin="coordinator", transaction_version=version)
