"""Batches that must be unpacked, or encoded anew, before a leader appends them (spec 6.4, 6.5)."""

from __future__ import annotations

from kstore.engine.append.batch_validation import refuse_records, with_timestamps
from kstore.engine.record.batch import RecordBatch
from kstore.engine.record.batch_builder import encode_batch
from kstore.errors import CorruptRecordError, InvalidRecordError, RecordTooLargeError
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.config import LogConfig
    from kstore.engine.record.batch import Record

_HEADER_BYTES = 61  # of a v2 batch
_LEVELS = {"gzip": "compression_gzip_level", "lz4": "compression_lz4_level", "zstd": "compression_zstd_level"}


def validate(encoded: bytes, config: LogConfig, now: int, max_decompressed_bytes: int) -> bytes:
    """The batches as they are to be appended: v2, packed as the topic says, with timestamps put right.

    A batch that is right already is left as it is. InvalidRecordError, InvalidTimestampError,
    CorruptRecordError, RecordTooLargeError.
    """
    out = []
    at = 0
    legacy: list[RecordBatch] = []
    while at < len(encoded):
        size = int.from_bytes(encoded[at + 8 : at + 12], "big") + 12
        batch = RecordBatch(encoded[at : at + size], max_decompressed_bytes=max_decompressed_bytes)
        if batch.magic < 2:
            legacy.append(batch)
        else:
            out.append(_validate(batch, config, now, at, max_decompressed_bytes))
        at += size
    if legacy:
        if out or any(message.magic != legacy[0].magic for message in legacy):
            raise InvalidRecordError("batches of different magic in one append")
        out.append(_converted(legacy, config, now, max_decompressed_bytes))
    return b"".join(out)


def _target(batch: RecordBatch, config: LogConfig) -> str:
    if config.compression_type == "producer" or batch.is_control:
        return batch.codec
    return "none" if config.compression_type == "uncompressed" else config.compression_type


def _level(codec: str, config: LogConfig) -> int | None:
    if codec not in _LEVELS or config.compression_type != codec:
        return None
    level: int = getattr(config, _LEVELS[codec])
    return level


def _check(batch: RecordBatch, records: list[Record], config: LogConfig, now: int, at: int) -> None:
    refuse_records(
        batch,
        records,
        "compact" in config.cleanup_policy,
        config.message_timestamp_type == "LogAppendTime",
        config.message_timestamp_before_max_ms,
        config.message_timestamp_after_max_ms,
        now,
        at,
    )


def _refuse_unreadable(batches: list[RecordBatch], target: str, most: int) -> None:
    """RecordTooLargeError for batches that are to be compressed here, and which readers would not decompress
    then."""
    header = _HEADER_BYTES if batches[0].magic == 2 else 0
    size = sum(len(batch.data) - header for batch in batches if batch.codec == "none")
    if target != "none" and size > most:
        raise RecordTooLargeError(
            f"{size} bytes of records, to be compressed with {target}, are larger than "
            "max_decompressed_bytes",
            size=size,
            limit=most,
        )


def _validate(batch: RecordBatch, config: LogConfig, now: int, at: int, most: int) -> bytes:
    try:
        records = batch.records()
    except CorruptRecordError as e:
        raise InvalidRecordError(f"batch at byte {at}: {e}") from e
    _check(batch, records, config, now, at)
    stamp = now if config.message_timestamp_type == "LogAppendTime" else None
    target = _target(batch, config)
    consecutive = all(r.offset - batch.base_offset == i for i, r in enumerate(records))
    if target == batch.codec and (consecutive or target == "none"):
        return _corrected(
            batch, stamp if stamp is not None else max((r.timestamp for r in records), default=-1), stamp
        )
    _refuse_unreadable([batch], target, most)
    return encode_batch(
        [(r.timestamp, r.key, r.value, r.headers) for r in records],
        codec=target,
        level=_level(target, config),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        control=batch.is_control,
        log_append_time=stamp,
    )


def _corrected(batch: RecordBatch, largest: int, stamp: int | None) -> bytes:
    """The batch with its timestamp type and largest timestamp put right; its payload untouched."""
    if batch.max_timestamp == largest and (batch.timestamp_type == "LogAppendTime") == (stamp is not None):
        return batch.data
    return with_timestamps(batch.data, largest, stamp is not None)


def _converted(messages: list[RecordBatch], config: LogConfig, now: int, most: int) -> bytes:
    """Messages of magic 0 and 1 as one v2 batch."""
    if len(messages) > 1 and any(m.codec != "none" for m in messages):
        raise InvalidRecordError("a compressed message beside others")
    records = []
    for message in messages:
        for record, crc, right in message.messages():
            if not right:
                raise CorruptRecordError("checksum of a message", found=crc)
            records.append(record)
        _check(message, message.records(), config, now, 0)
    target = _target(messages[0], config)
    stamp = now if config.message_timestamp_type == "LogAppendTime" else None
    _refuse_unreadable(messages, target, most)
    return encode_batch(
        [(r.timestamp, r.key, r.value, None) for r in records],
        codec=target,
        level=_level(target, config),
        log_append_time=stamp,
    )
