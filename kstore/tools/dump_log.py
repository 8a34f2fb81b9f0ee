"""The lines of Kafka's dump tool for a .log or .checkpoint file (spec 11.2)."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kstore.engine.batch import CONTROL_TYPES, Record, RecordBatch, control_type
from kstore.engine.file import File
from kstore.errors import CorruptRecordError, UnsupportedCodecError
from kstore.tools.decoders import control_text

MAX32 = 2**31 - 1
_KRAFT_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_OVERHEAD, _MAGIC_END, _LEAST = 12, 17, 14

Texts = tuple[str | None, str | None]  # of key and value, None: nothing is printed
Decoder = Callable[[bytes | None, bytes | None, int], Texts]  # of key, value and offset


@dataclass
class LogDump:
    """How a log is dumped, and what was found on the way."""

    print_data: bool = False
    deep: bool = False
    skip_metadata: bool = False
    max_bytes: int = MAX32
    decoder: Decoder | None = None
    non_consecutive: dict[int, int] = field(default_factory=dict)


def file_batches(path: str, max_bytes: int = MAX32, position: int = 0) -> Iterator[RecordBatch]:
    """The batches of a file one after the other, as Kafka's file iteration finds them (spec 2.0).

    CorruptRecordError where a header makes no sense; bytes at the end that hold no whole batch end it.
    """
    file = File(path)
    end = min(file.size(), position + max_bytes)
    while position < end - _MAGIC_END:
        size = int.from_bytes(file.read(position + 8, 4), "big", signed=True)
        if size < _LEAST:
            raise CorruptRecordError(
                "size field of a batch", file=path, position=position + 8, expected=_LEAST, found=size
            )
        if position > end - _OVERHEAD - size:
            return
        yield RecordBatch(file.read(position, size + _OVERHEAD), file=path, position=position)
        position += size + _OVERHEAD


def _java(flag: bool) -> str:
    return "true" if flag else "false"


def optional_long(value: int | None) -> str:
    """An OptionalLong as Java prints it."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def batch_head(batch: RecordBatch) -> str:
    """The part of a batch's line before its position."""
    if batch.magic < 2:
        return f"offset: {batch.last_offset}"
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
        f"count: {batch.records_count} baseSequence: {batch.base_sequence} "
        f"lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
        f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
        f"isTransactional: {_java(batch.is_transactional)} isControl: {_java(batch.is_control)} "
        f"deleteHorizonMs: {optional_long(batch.delete_horizon_ms)}"
    )


def batch_line(batch: RecordBatch) -> str:
    """The line of a batch. UnsupportedCodecError."""
    return (
        f"{batch_head(batch)} position: {batch.position} "
        f"{batch.timestamp_type}: {batch.max_timestamp} size: {batch.size} magic: {batch.magic} "
        f"compresscodec: {batch.codec} crc: {batch.crc} isvalid: {_java(batch.is_valid)}"
    )


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _control(batch: RecordBatch, record: Record) -> str:
    """What is said of a control record."""
    kind = control_type(record.key, batch.file, batch.position)
    value = record.value or b""
    if kind in (0, 1):
        epoch = int.from_bytes(value[2:6], "big", signed=True)
        return f" endTxnMarker: {CONTROL_TYPES[kind]} coordinatorEpoch: {epoch}"
    text = control_text(kind, value)
    if text is not None:
        return text
    return f" controlType: {CONTROL_TYPES[kind] if kind >= 0 else 'UNKNOWN'}({kind})"


def record_line(dump: LogDump, batch: RecordBatch, record: Record, crc: int, valid: bool) -> str:
    """The line of a record; `crc` and `valid` are printed for messages of magic 0 and 1."""
    parts = []
    if not dump.skip_metadata:
        text = (
            f"| offset: {record.offset} {batch.timestamp_type}: {record.timestamp} "
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
        )
        if batch.magic == 2:
            names = ",".join(name for name, _ in record.headers)
            text += f" sequence: {batch.sequence_of(record)} headerKeys: [{names}]"
        else:
            text += f" isValid: {_java(valid)} crc: {crc}"
        if batch.is_control:
            text += _control(batch, record)
        parts.append(text)
    if dump.print_data and not batch.is_control and dump.decoder is not None:
        key, value = dump.decoder(record.key, record.value, record.offset)
        if key is not None:
            parts.append(f"{' ' if parts else '| '}key: {key}")
        if value is not None:
            parts.append(f"{' ' if parts else '| '}payload: {value}")
    return "".join(parts)


def dump_log(path: str, dump: LogDump) -> Iterator[str]:
    """The lines of one file, after "Dumping ...". KstoreError where Kafka's tool would die."""
    name = Path(path).name
    snapshot = _KRAFT_SNAPSHOT.fullmatch(name)
    if snapshot is not None:
        yield f"Snapshot end offset: {int(snapshot[1])}, epoch: {int(snapshot[2])}"
    elif name == "bootstrap.checkpoint":
        yield "KRaft bootstrap snapshot"
    elif name.endswith(".log"):
        stem = name.removesuffix(".log")
        yield f"Log starting offset: {int(stem) if stem.isdecimal() else 0}"
    valid_bytes = 0
    last_offset = -1
    for batch in file_batches(path, dump.max_bytes):
        try:
            line = batch_line(batch)
        except UnsupportedCodecError:
            yield batch_head(batch)  # as far as Kafka's tool comes
            raise
        yield line
        valid_bytes += batch.size
        if not dump.deep:
            continue
        for record, crc, valid in _messages(batch):
            if record.offset != last_offset + 1:
                dump.non_consecutive[last_offset] = record.offset
            last_offset = record.offset
            yield record_line(dump, batch, record, crc, valid)
    left = File(path).size() - valid_bytes
    if left > 0 and dump.max_bytes == MAX32:
        yield f"Found {left} invalid bytes at the end of {Path(path).name}"


def _messages(batch: RecordBatch) -> list[tuple[Record, int, bool]]:
    if batch.magic < 2:
        return batch.messages()
    return [(record, 0, True) for record in batch.records(verify=False)]
