"""FORMAT.md is true: its numbers are those of format.h, its examples are read as it says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main

INCLUDE = Path(kstore.get_include())
TEXT = (INCLUDE / "FORMAT.md").read_text("utf-8")
GOLDEN = Path(__file__).parents[1] / "golden" / "data"
CC = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
LINE = re.compile(r" *(\d+)  ((?:[0-9a-f]{2} )*[0-9a-f]{2}) +(\w+) +(\S.*)")


def example(name: str) -> tuple[bytes, list[tuple[str, bytes, str]]]:
    """The bytes of a ```hex block, and (field, bytes, description) of each line.

    The number at the start of each line is the position of its bytes."""
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


def number(description: str) -> int:
    """The number that a description begins with."""
    match = re.match(r"-?(0x[0-9a-f]+|\d+)\b", description)
    assert match is not None, description
    return int(match[0], 0)


def zigzag(data: bytes) -> int:
    assert all(byte & 0x80 for byte in data[:-1])
    assert data[-1] < 0x80
    u = sum((byte & 0x7F) << (7 * at) for at, byte in enumerate(data))
    return (u >> 1) ^ -(u & 1)


def integer(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def constants_in_text() -> list[tuple[str, int]]:
    """(name, value) of each constant: a table row that begins with a number, or `KS_X` = n."""
    found = [(name, int(n)) for name, n in re.findall(r"`(KS_\w+)` = (\d+)", TEXT)]
    rows = re.findall(r"^\| (0x[0-9a-f]+|\d+) \|.*`(KS_\w+)` \|", TEXT, re.MULTILINE)
    return [*found, *((name, int(value, 0)) for value, name in rows)]


@pytest.mark.skipif(CC is None, reason="no C compiler")
def test_constants_are_those_of_the_header(tmp_path: Path) -> None:
    found = constants_in_text()
    header = (INCLUDE / "kstore" / "format.h").read_text()
    layout = {name for name in re.findall(r"^ +(KS_(?!E_|OK)\w+) = ", header, re.MULTILINE)}
    assert {name for name, _ in found} == set(re.findall(r"\bKS_\w+", TEXT)) == layout
    names = sorted(layout)
    prints = "".join(f'printf("{name} %d\\n", {name});\n' for name in names)
    source, program = tmp_path / "constants.c", tmp_path / "constants"
    source.write_text(
        f"#include <stdio.h>\n#include <kstore/format.h>\nint main(void) {{\n{prints}return 0; }}\n"
    )
    subprocess.run([str(CC), f"-I{INCLUDE}", source, "-o", program], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    values = {name: int(value) for name, value in map(str.split, printed.splitlines())}
    assert [(name, value) for name, value in found if values[name] != value] == []


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
    assert [len(value) for _, value, _ in fields[:13]] == [8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4]
    for name, value, says in fields[:13]:
        if name == "batch_length":
            assert number(says) == integer(value) == batch.size - 12
            assert f"the batch has {batch.size} bytes" in says
        else:
            assert number(says) == getattr(batch, name), name
    assert fields[12][0] == "records_count"
    assert batch.size == len(data)
    assert f"byte 21 to {len(data) - 1}" in {n: s for n, _, s in fields}["crc"]
    assert (batch.base_offset, batch.last_offset) == (131, 136)
    assert (batch.delete_horizon_ms, batch.codec, batch.timestamp_type) == (
        1795226353882,
        "none",
        "CreateTime",
    )


def test_worked_example_records() -> None:
    """Records that are put together from the text are those that kstore reads."""
    data, fields = example("batch")
    batch = kstore.RecordBatch(data)
    records = []
    starts = [at for at, (name, _, _) in enumerate(fields) if name == "length"]
    for at, end in zip(starts, [*starts[1:], len(fields)], strict=True):
        record = fields[at:end]
        assert number(record[0][2]) == zigzag(record[0][1]) == sum(len(v) for _, v, _ in record[1:])
        items: list[bytes | None] = []
        for field, value, says in record[1:]:
            if field in ("key", "value", "name"):
                assert says.encode() == value
                assert items[-1] == b""
                items[-1] = value
            else:
                assert number(says) == (integer(value) if field == "attributes" else zigzag(value))
                if field in ("key_length", "value_length", "name_length"):
                    items.append(None if number(says) < 0 else b"")
        told = {name: says for name, _, says in reversed(record)}
        offset = batch.base_offset + number(told["offset_delta"])
        timestamp = batch.base_timestamp + number(told["timestamp_delta"])
        assert told["offset_delta"].endswith(f"offset {offset}")
        assert told["timestamp_delta"].endswith(f"at {timestamp}")
        headers = [((name or b"").decode(), of) for name, of in zip(items[2::2], items[3::2], strict=True)]
        assert len(headers) == number(told["headers_count"])
        records.append(kstore.Record(offset, timestamp, "CreateTime", items[0], items[1], headers))
    assert records == batch.records()
    assert [record.offset for record in records] == [131, 133]


def test_message_example() -> None:
    data, fields = example("message")
    message = kstore.RecordBatch(data)
    message.ensure_valid()
    says = {name: text for name, _, text in fields}
    assert message.size == number(says["size"]) + 12 == len(data)
    assert (message.magic, message.base_offset, message.crc) == tuple(
        number(says[name]) for name in ("magic", "offset", "crc")
    )
    (record,) = message.records()
    assert record.timestamp == number(says["timestamp"])
    assert (record.key, record.value) == (says["key"].encode(), says["value"].encode())


def dumped(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, int]]:
    """The entries that `kstore dump` prints of a file."""
    assert main(["dump", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    return [{name: int(n) for name, n in re.findall(r"(\w+): (-?\d+)", line)} for line in lines]


def test_examples_of_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real broker's files begin with its examples; all are dumped with the numbers of the text."""
    assert any(example("batch")[0] in log.read_bytes() for log in (GOLDEN / "broker").rglob("*.log"))
    segment = GOLDEN / "timestamps" / "times-0" / f"{55:020}"
    assert TEXT.count("base=55\n") == 2
    for suffix, name in ((".index", "offset-entries"), (".timeindex", "time-entries")):
        data, fields = example(name)
        path = segment.with_suffix(suffix)
        assert path.read_bytes().startswith(data)
        entries = dumped(path, capsys)
        assert [n for entry in entries[:2] for n in entry.values()] == [number(says) for _, _, says in fields]
    for stem, name in ((f"{0:020}.txnindex", "aborted"), (f"{107:020}.snapshot", "snapshot")):
        data, fields = example(name)
        (tmp_path / stem).write_bytes(data)  # the dump of a snapshot checks its CRC
        (entry,) = dumped(tmp_path / stem, capsys)
        says = {name.replace("_", ""): number(text) for name, _, text in fields if name != "crc"}
        own = {name.lower(): n for name, n in entry.items()}
        assert own.items() >= {n: says[n] for n in says.keys() & own.keys()}.items()
        assert says.keys() - own.keys() <= {"version", "count", "currenttxnfirstoffset"}
        assert [len(value) for _, value, _ in fields] == (
            [2, 8, 8, 8, 8] if name == "aborted" else [2, 4, 4, 8, 2, 4, 8, 4, 8, 4, 8]
        )
    assert own["lastoffset"] - own["offsetdelta"] == 102


def test_varints_of_the_text() -> None:
    examples = re.findall(r"(-?\d+) (?:is )?`((?:[0-9a-f]{2} )*[0-9a-f]{2})`[,.]", TEXT)
    assert len(examples) == 10
    for value, data in examples:
        assert zigzag(bytes.fromhex(data)) == int(value)
