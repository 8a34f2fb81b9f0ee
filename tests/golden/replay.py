"""Runs the operations of an ops.jsonl through kstore: what a real Kafka was told to do, told to us."""

import base64
import uuid
from pathlib import Path
from typing import Any

import kstore
from tests.helpers.forge import crc32c
from tests.helpers.markers import marker

ERRORS = {
    "InvalidProducerEpochException": kstore.InvalidProducerEpochError,
    "OutOfOrderSequenceException": kstore.OutOfOrderSequenceError,
    "TransactionCoordinatorFencedException": kstore.TransactionCoordinatorFencedError,
    "InvalidTxnStateException": kstore.InvalidTxnStateError,
    "RecordTooLargeException": kstore.RecordTooLargeError,
    "OffsetsOutOfOrderException": kstore.OffsetsOutOfOrderError,
}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def encode(batch: dict[str, Any]) -> bytes:
    """A batch of an append operation, as its producer encoded it."""
    if "bytes" in batch:
        return base64.b64decode(batch["bytes"])
    records = batch["records"]
    base = batch.get("base_offset", 0)
    deltas = [r["o"] - base for r in records] if any("o" in r for r in records) else None
    return kstore.encode_batch(
        [
            (r["t"], _bytes(r.get("k")), _bytes(r.get("v")), [(n, _bytes(v)) for n, v in r.get("h", [])])
            for r in records
        ],
        base_offset=base,
        codec=batch.get("codec", "none"),
        level=batch.get("level"),
        leader_epoch=batch.get("leader_epoch", -1),
        producer_id=batch.get("pid", -1),
        producer_epoch=batch.get("epoch", -1),
        base_sequence=batch.get("base_sequence", -1),
        transactional=batch.get("transactional", False),
        offset_deltas=deltas,
    )


def _create_time(batch: bytes, max_timestamp: int) -> bytes:
    """A batch as its producer sent it, before the broker gave all records the time of the append."""
    rest = bytes([batch[21], batch[22] & ~8]) + batch[23:35] + max_timestamp.to_bytes(8, "big") + batch[43:]
    return batch[:17] + crc32c(rest).to_bytes(4, "big") + rest


class Replay:
    """One partition directory under the operations of a scenario."""

    def __init__(self, directory: Path, stored: dict[int, kstore.RecordBatch]) -> None:
        self.directory = directory
        # by base offset, what Kafka's directory holds: packed bytes are the packer's own
        self.stored = stored
        self.exact = True  # until a batch had to be packed here
        self.packed = False  # whether there are packed batches: a cleaning packs what it leaves of them anew
        self.cleaned = False
        self.log: kstore.LogWriter
        self.now = 0
        self.config: dict[str, str] = {}

    def run(self, op: dict[str, Any]) -> dict[str, Any] | None:
        """Does one operation and returns its result in the form of the file, or None where it has none."""
        name = {"now": "set_now", "config": "set_config"}.get(op["op"], op["op"])
        result: dict[str, Any] | None = getattr(self, name)(op)
        return result

    def open(self, op: dict[str, Any]) -> dict[str, Any]:
        self.now = op["now_ms"]
        self.config = dict(op["config"])
        topic_id = (
            uuid.UUID(bytes=base64.urlsafe_b64decode(op["topic_id"] + "==")) if op.get("topic_id") else None
        )
        self.log = kstore.open(
            self.directory,
            "a",
            config=kstore.LogConfig.from_topic(self.config),
            clock=lambda: self.now,
            clean=op["clean"],
            recovery_point=op["recovery_point"],
            log_start_offset=op["log_start_offset"],
            topic_id=topic_id,
        )
        return {"log_start_offset": self.log.log_start_offset, "log_end_offset": self.log.log_end_offset}

    def append(self, op: dict[str, Any]) -> dict[str, Any]:
        follower = op.get("as") == "follower"
        encoded = b""
        offset = self.log.log_end_offset
        for batch in op["batches"]:
            encoded += self.encode(batch, batch.get("base_offset", offset), follower)
            offset += len(batch.get("records", ()))
        done = self.log.append_batches(
            encoded,
            keep_offsets=follower,
            leader_epoch=op.get("leader_epoch"),
            origin="coordinator" if op.get("as") == "coordinator" else "client",
        )
        return self._appended(done)

    def _appended(self, done: kstore.Appended) -> dict[str, Any]:
        return {
            "first_offset": done.first_offset,
            "last_offset": done.last_offset,
            "log_end_offset": self.log.log_end_offset,
            **({"duplicate": True} if done.duplicate else {}),
            "segment": self.log.segments[-1].base_offset,
            "segment_size": self.log.segments[-1].size,
        }

    def encode(self, batch: dict[str, Any], offset: int, follower: bool) -> bytes:
        """A batch; packed ones are taken from Kafka's file, where they lie as their producer packed them."""
        if self.config.get("compression.type", "producer") != "producer":
            self.exact = False
        if batch.get("codec", "none") == "none":
            return encode(batch)
        self.packed = True
        stored = self.stored.get(offset)
        if stored is None or stored.codec != batch["codec"] or not self.exact:
            self.exact = False
            return encode(batch)
        if follower:
            return stored.data
        sent = bytes(8) + stored.data[8:12] + b"\xff" * 4 + stored.data[16:]
        if stored.timestamp_type == "LogAppendTime":  # the broker stamped it, not its producer
            sent = _create_time(sent, max(r["t"] for r in batch["records"]))
        return sent

    def set_now(self, op: dict[str, Any]) -> None:
        self.now = op["ms"]

    def set_config(self, op: dict[str, Any]) -> None:
        self.config.update(op["config"])
        config = kstore.LogConfig.from_topic(self.config)
        self.log.configure(**{option.name: getattr(config, option.name) for option in config.describe()})

    def assign_epoch(self, op: dict[str, Any]) -> None:
        self.log.assign_leader_epoch(op["epoch"])

    def marker(self, op: dict[str, Any]) -> dict[str, Any]:
        done = self.log.append_batches(
            marker(
                op["type"],
                op["pid"],
                op["timestamp"],
                producer_epoch=op["epoch"],
                coordinator_epoch=op["coordinator_epoch"],
            ),
            origin="coordinator",
            leader_epoch=op["leader_epoch"],
            transaction_version=op["transaction_version"],
        )
        return self._appended(done)

    def high_watermark(self, op: dict[str, Any]) -> dict[str, Any]:
        """Ours is always the end; the scenarios raise Kafka's to the end as well."""
        return dict(op["result"])

    def roll(self, op: dict[str, Any]) -> dict[str, Any]:
        return {"base_offset": self.log.roll()}

    def delete_records(self, op: dict[str, Any]) -> dict[str, Any]:
        return {"log_start_offset": self.log.delete_records(op["offset"])}

    def truncate_to(self, op: dict[str, Any]) -> dict[str, Any]:
        self.log.truncate_to(op["offset"])
        return {"log_end_offset": self.log.log_end_offset}

    def retention(self, op: dict[str, Any]) -> dict[str, Any]:
        deleted = sum(d.delete for d in self.log.retain())
        return {"deleted_segments": deleted, "log_start_offset": self.log.log_start_offset}

    def clean(self, op: dict[str, Any]) -> dict[str, Any]:
        """Kafka's story cleans whatever the dirty ratio is."""
        self.log.configure(min_cleanable_dirty_ratio=0)
        done = self.log.compact()
        self.cleaned = True
        return {
            "first_dirty": done.first_dirty_offset,
            "first_uncleanable": done.first_uncleanable_offset,
            "cleaner_checkpoint": done.end_offset,
            "bytes_written": sum(segment.bytes_after for segment in done.segments),
            "messages_written": sum(segment.records_after for segment in done.segments),
        }

    def flush(self, op: dict[str, Any]) -> dict[str, Any]:
        return {"recovery_point": self.log.flush()}

    def close(self, op: dict[str, Any]) -> None:
        self.log.close()

    def abandon(self, op: dict[str, Any]) -> None:
        self.log.abandon()


def files_of(directory: Path) -> dict[str, list[object]]:
    """{name: [size, crc32c]} of what lies in a partition directory."""
    found = {}
    for path in sorted(directory.iterdir()):
        if path.name == "kstore.json":  # which Kafka passes over
            continue
        data = path.read_bytes()
        found[path.name] = [len(data), f"{crc32c(data):08x}"]
    return found
