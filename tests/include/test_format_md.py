"""FORMAT.md tells the truth: its numbers are those of format.h, its examples parse as it says."""

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

import kstore
from kstore.engine.record.hashes import crc32c
from kstore.engine.segment.index import OffsetIndex, TimeIndex, TransactionIndex
from kstore.log.producers.states import read_snapshot

INCLUDE = Path(kstore.get_include())
TEXT = (INCLUDE / "FORMAT.md").read_text("utf-8")
GOLDEN = Path(__file__).parents[1] / "golden" / "data"
CC = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)

LINE = re.compile(r" *(\d+)  ((?:[0-9a-f]{2} )*[0-9a-f]{2}) +(\w+) +(\S.*)")


def example(name: str) -> tuple[bytes, list[tuple[str, bytes, str]]]:
    """The bytes of a ```hex block, and (field, bytes, what is said of it) for each of its lines.

    The position at the start of each line is that of its bytes."""
    (block,) = re.findall(rf"^```hex {name}\b.*?\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    data = b""
    fields = []
    for line in filter(None, block.split("\n")):
        match = LINE.fullmatch(line)
        assert match is not None, line
        assert int(match[1]) == len(data), line
        value = bytes.fromhex(match[2])
        data += value
        fields.append((match[3], value, match[4]))
    return data, fields


def number(said: str) -> int:
    """The number that a description begins with."""
    match = re.match(r"-?(0x[0-9a-f]+|\d+)\b", said)
    assert match is not None, said
    return int(match[0], 0)


def unsigned_varint(data: bytes) -> int:
    assert all(byte & 0x80 for byte in data[:-1])
    assert data[-1] < 0x80
    return sum((byte & 0x7F) << (7 * at) for at, byte in enumerate(data))


def zigzag(data: bytes) -> int:
    u = unsigned_varint(data)
    return (u >> 1) ^ -(u & 1)


def integer(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def constants_in_text() -> list[tuple[str, int]]:
    """(name, value) wherever the text gives one: a row that begins with a number, or `KS_X` = n."""
    found = [(name, int(n)) for name, n in re.findall(r"`(KS_\w+)` = (\d+)", TEXT)]
    for line in TEXT.split("\n"):
        row = re.match(r"\| (0x[0-9a-f]+|\d+) \|.*`(KS_\w+)` \|", line)
        if row:
            found.append((row[2], int(row[1], 0)))
    return found


@pytest.mark.skipif(CC is None, reason="no C compiler")
def test_constants_are_those_of_the_header(tmp_path: Path) -> None:
    found = constants_in_text()
    assert len(found) > 40
    assert {name for name, _ in found} == set(re.findall(r"\bKS_\w+", TEXT))
    names = sorted({name for name, _ in found})
    prints = "".join(f'printf("{name} %d\\n", {name});\n' for name in names)
    source = tmp_path / "constants.c"
    source.write_text(
        f"#include <stdio.h>\n#include <kstore/format.h>\nint main(void) {{\n{prints}return 0; }}\n"
    )
    program = tmp_path / "constants"
    subprocess.run([str(CC), f"-I{INCLUDE}", source, "-o", program], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    values = {name: int(value) for name, value in map(str.split, printed.splitlines())}
    assert [(name, value) for name, value in found if values[name] != value] == []


def test_every_layout_constant_is_described() -> None:
    header = (INCLUDE / "kstore" / "format.h").read_text()
    constants = set(re.findall(r"^ +(KS_\w+) = ", header, re.MULTILINE))
    layout = {name for name in constants if not name.startswith(("KS_E_", "KS_OK"))}
    assert layout == {name for name, _ in constants_in_text()}


def test_tables_leave_no_gap() -> None:
    """In the tables of both headers each field begins where the one before it ends."""
    for title in ("Record batch, magic 2", "Messages of magic 0 and 1"):
        section = TEXT.split(f"## {title}\n")[1].split("\n## ")[0]
        table = re.findall(r"^\| (\d+) \| (\d*) \| [^|]*?(?:, ([iu]\d+))? \|", section, re.MULTILINE)
        assert len(table) >= 7
        at = 0
        for start, size, kind in table:
            assert int(start) == at
            if size:
                assert int(size) * 8 == int(kind[1:])
                at += int(size)


def test_worked_example() -> None:
    data, fields = example("batch")
    batch = kstore.RecordBatch(data)
    batch.ensure_valid()
    header = [name for name, _, _ in fields[:13]]
    assert [len(value) for _, value, _ in fields[:13]] == [8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4]
    for name, value, said in fields[:13]:
        if name == "batch_length":
            assert number(said) == integer(value) == batch.size - 12
            assert f"the batch has {batch.size} bytes" in said
        else:
            assert number(said) == getattr(batch, name), name
    assert header[-1] == "records_count"
    assert batch.size == len(data)
    assert f"byte 21 to {len(data) - 1}" in {n: s for n, _, s in fields}["crc"]
    assert (batch.base_offset, batch.last_offset) == (131, 136)
    assert batch.delete_horizon_ms == 1795226353882
    assert batch.codec == "none"
    assert batch.timestamp_type == "CreateTime"


def test_worked_example_records() -> None:
    """The records as the text reads them, put together here, are those that kstore reads."""
    data, fields = example("batch")
    batch = kstore.RecordBatch(data)
    records = []
    at = 13
    while at < len(fields):
        names = [name for name, _, _ in fields[at:]]
        size = names.index("length", 1) if "length" in names[1:] else len(names)
        record = fields[at : at + size]
        at += size
        assert number(record[0][2]) == zigzag(record[0][1]) == sum(len(v) for _, v, _ in record[1:])
        items: list[bytes | None] = []
        for field, value, said in record[1:]:
            if field in ("key", "value", "name"):
                assert said.encode() == value
                assert items[-1] == b""
                items[-1] = value
            else:
                assert number(said) == (integer(value) if field == "attributes" else zigzag(value))
                if field in ("key_length", "value_length", "name_length"):
                    items.append(None if number(said) < 0 else b"")
        said_of = {name: said for name, _, said in reversed(record)}
        offset = batch.base_offset + number(said_of["offset_delta"])
        timestamp = batch.base_timestamp + number(said_of["timestamp_delta"])
        assert said_of["offset_delta"].endswith(f"offset {offset}")
        assert said_of["timestamp_delta"].endswith(f"at {timestamp}")
        headers = [((name or b"").decode(), of) for name, of in zip(items[2::2], items[3::2], strict=True)]
        assert len(headers) == number(said_of["headers_count"])
        key, value_ = items[:2]
        records.append(kstore.Record(offset, timestamp, "CreateTime", key, value_, headers))
    assert records == batch.records()
    assert [record.offset for record in records] == [131, 133]


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden data")
def test_examples_are_real() -> None:
    data, _ = example("batch")
    assert any(data in log.read_bytes() for log in (GOLDEN / "broker").rglob("*.log"))
    segment = GOLDEN / "timestamps" / "times-0" / f"{55:020}"
    for kind, name in ((".index", "offset-entries"), (".timeindex", "time-entries")):
        data, _ = example(name)
        assert segment.with_suffix(kind).read_bytes().startswith(data)


def test_message_example() -> None:
    data, fields = example("message")
    message = kstore.RecordBatch(data)
    message.ensure_valid()
    said = {name: text for name, _, text in fields}
    assert message.magic == number(said["magic"])
    assert message.base_offset == number(said["offset"])
    assert message.size == number(said["size"]) + 12 == len(data)
    assert message.crc == number(said["crc"])
    (record,) = message.records()
    assert record.timestamp == number(said["timestamp"])
    assert (record.key, record.value) == (said["key"].encode(), said["value"].encode())


def test_index_examples() -> None:
    data, fields = example("offset-entries")
    said = [number(text) for _, _, text in fields]
    assert [n for entry in OffsetIndex(55, data) for n in entry] == said
    data, fields = example("time-entries")
    said = [number(text) for _, _, text in fields]
    assert [n for entry in TimeIndex(55, data) for n in entry] == said
    assert TEXT.count("base=55\n") == 2
    data, fields = example("aborted")
    (txn,) = TransactionIndex(0, data)
    assert {name: number(text) for name, _, text in fields} == txn._asdict()


def test_snapshot_example() -> None:
    data, fields = example("snapshot")
    said = {name: number(text) for name, _, text in fields if name != "crc"}
    layout = ">hIiqhiqiqiq"
    assert [len(value) for _, value, _ in fields] == [struct.calcsize(f">{c}") for c in layout[1:]]
    values = struct.unpack(layout, data)
    assert list(values[:1] + values[2:]) == list(said.values())
    assert values[1] == crc32c(data[6:])
    assert said["last_offset"] - said["offset_delta"] == 102
    (producer,) = read_snapshot(data)
    (batch,) = producer.batches
    assert batch[:3] == (said["last_sequence"], said["last_offset"], said["offset_delta"])
    assert producer.last_timestamp == batch.timestamp == said["timestamp"]
    for name in ("producer_id", "producer_epoch", "coordinator_epoch"):
        assert getattr(producer, name) == said[name]
    assert producer.current_txn_first_offset is None


def test_varints_of_the_text() -> None:
    examples = re.findall(r"(-?\d+) (?:is )?`((?:[0-9a-f]{2} )*[0-9a-f]{2})`[,.]", TEXT)
    assert len(examples) == 10
    for value, data in examples:
        assert zigzag(bytes.fromhex(data)) == int(value)
