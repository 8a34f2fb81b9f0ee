"""The lines of Kafka's dump tool for a .log or .checkpoint file (spec 11.2)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kstore.engine.record.batch import CONTROL_TYPES, Record, RecordBatch, control_type
from kstore.errors import CorruptRecordError, visible
from kstore.messages.decoders import control_text
from kstore.tools.dumps.path import base_offset, name_of, number_in_name, open_file

MAX32 = 2**31 - 1
STATE = ".state"  # of a share group: room for more follows the last batch
_OFFSET_WIDTH, _EPOCH_WIDTH = 20, 10  # in the name of a KRaft snapshot
_OVERHEAD, _MAGIC, _LEAST = 12, 16, 14

Texts = tuple[str | None, str | None]  # of key and value; None: not printed
Decoder = Callable[[bytes | None, bytes | None, int], Texts]  # of key, value and offset


@dataclass
class LogDump:
    """The options of a dump, and its findings."""

    print_data: bool = False
    deep: bool = False
    skip_metadata: bool = False
    max_bytes: int = MAX32
    decoder: Decoder | None = None
    non_consecutive: dict[int, int] = field(default_factory=dict)
    invalid: int = 0  # batches with a wrong checksum


def file_batches(
    path: str, max_bytes: int = MAX32, position: int = 0, *, any_magic: bool = False
) -> Iterator[RecordBatch]:
    """The batches of a file in order, as Kafka's file iteration finds them (spec 2.0).

    CorruptRecordError for an invalid header. An incomplete batch ends the iteration. `any_magic`: as in
    Kafka's tool, read a magic above 2 as 2, and one below 0 as 1, which only damage can cause.
    """
    file = open_file(path)
    end = min(file.size(), position + max_bytes)
    while position < end - _MAGIC - 1:
        size = int.from_bytes(file.read(position + 8, 4), "big", signed=True)
        if size == 0 and path.endswith(STATE):
            return
        if size < _LEAST:
            raise CorruptRecordError(
                "size field of a batch",
                file=path,
                position=position + 8,
                expected=f"at least {_LEAST}",
                found=size,
            )
        if position > end - _OVERHEAD - size:
            return
        data = file.read(position, size + _OVERHEAD)
        if any_magic and data[_MAGIC] > 2:
            data = data[:_MAGIC] + (b"\2" if data[_MAGIC] < 128 else b"\1") + data[_MAGIC + 1 :]
        yield RecordBatch(data, file=path, position=position)
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


def batch_tail(batch: RecordBatch, magic: int, valid: bool) -> str:
    """The rest of a batch's line, with the magic in the file and whether the checksum is right.
    CorruptRecordError, UnsupportedCodecError.
    """
    if magic > 127:
        raise CorruptRecordError(
            "magic of a batch",
            file=batch.file,
            position=batch.position + _MAGIC,
            expected=2,
            found=magic - 256,
        )
    return (
        f" position: {batch.position} "
        f"{batch.timestamp_type}: {batch.max_timestamp} size: {batch.size} magic: {magic} "
        f"compresscodec: {batch.codec} crc: {batch.crc} isvalid: {_java(valid)}\n"
    )


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _metadata(batch: RecordBatch, record: Record, crc: int, valid: bool) -> str:
    text = (
        f"| offset: {record.offset} {batch.timestamp_type}: {record.timestamp} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )
    if batch.magic < 2:
        return f"{text} isValid: {_java(valid)} crc: {crc}"
    names = ",".join(name for name, _ in record.headers)
    return f"{text} sequence: {batch.sequence_of(record)} headerKeys: [{names}]"


def _marker(kind: int, batch: RecordBatch, value: bytes) -> str:
    if len(value) < 6 or value[0] > 127:
        raise CorruptRecordError(
            "value of a transaction marker",
            file=batch.file,
            position=batch.position,
            expected="6 bytes, the version at least 0",
            found=value,
        )
    epoch = int.from_bytes(value[2:6], "big", signed=True)
    return f" endTxnMarker: {CONTROL_TYPES[kind]} coordinatorEpoch: {epoch}"


def _control(batch: RecordBatch, record: Record) -> str:
    """The text about a control record."""
    kind = control_type(record.key, batch.file, batch.position)
    value = record.value or b""
    if kind in (0, 1):
        return _marker(kind, batch, value)
    text = control_text(kind, value)
    if text is not None:
        return text
    assert record.key is not None  # control_type has read it
    return f" controlType: UNKNOWN({int.from_bytes(record.key[2:4], 'big', signed=True)})"


def _record(dump: LogDump, batch: RecordBatch, record: Record, crc: int, valid: bool) -> Iterator[str]:
    """The line of a record, in pieces; `crc` and `valid` are printed for messages of magic 0 and 1."""
    if not dump.skip_metadata:
        yield _metadata(batch, record, crc, valid)
        if batch.is_control:
            yield _control(batch, record)
    if dump.print_data and not batch.is_control and dump.decoder is not None:
        key, value = dump.decoder(record.key, record.value, record.offset)
        prefix = "| " if dump.skip_metadata else " "
        if key is not None:
            yield f"{prefix}key: {key}"
            prefix = " "
        if value is not None:
            yield f"{prefix}payload: {value}"
    yield "\n"


def _first_line(path: str) -> str:
    """The line about the name of the file. ValueError for an invalid name."""
    name = name_of(path)
    if name.endswith(".log"):
        return f"Log starting offset: {base_offset(path)}\n"
    if name.endswith((".positions", STATE)):  # the name has the group and no offset
        return "Log starting offset: 0\n"
    if name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot\n"
    epoch_at = _OFFSET_WIDTH + 1
    try:
        end_offset = number_in_name(name[:_OFFSET_WIDTH])
        epoch = number_in_name(name[epoch_at : epoch_at + _EPOCH_WIDTH], bits=32)
    except ValueError as e:
        raise ValueError(f"{path}: its name holds no offset and epoch") from e
    return f"Snapshot end offset: {end_offset}, epoch: {epoch}\n"


def dump_log(path: str, dump: LogDump) -> Iterator[str]:
    """The output for one file after "Dumping ...", in pieces that need not be whole lines.

    KstoreError or ValueError where Kafka's tool ends, also in the middle of a line.
    """
    yield _first_line(path)
    if dump.max_bytes < 0:
        raise ValueError(f"--max-bytes {dump.max_bytes} must not be negative")
    valid_bytes = 0
    last_offset = -1
    file = open_file(path)
    for batch in file_batches(path, dump.max_bytes, any_magic=True):
        yield batch_head(batch)
        valid = batch.is_valid
        dump.invalid += not valid
        yield batch_tail(batch, file.read(batch.position + _MAGIC, 1)[0], valid)
        valid_bytes += batch.size
        if not dump.deep:
            continue
        for record, crc, valid in _messages(batch):
            if record.offset != last_offset + 1:
                dump.non_consecutive[last_offset] = record.offset
            last_offset = record.offset
            yield from _record(dump, batch, record, crc, valid)
    if not path.endswith(STATE) and (message := invalid_bytes(path, valid_bytes, dump.max_bytes)):
        yield f"{visible(message)}\n"


def invalid_bytes(path: str, end: int, max_bytes: int) -> str:
    """The message about bytes behind the end of the last batch; "" if there are none, or if the file was not
    read to its end."""
    left = open_file(path).size() - end
    return (
        f"Found {left} invalid bytes at the end of {name_of(path)}" if left > 0 and max_bytes == MAX32 else ""
    )


def _messages(batch: RecordBatch) -> Iterator[tuple[Record, int, bool]]:
    if batch.magic < 2:
        return iter(batch.messages())
    return ((record, 0, True) for record in batch.unverified())
