"""kstore records over a log directory: topic and partition in every format, times, and the bytes of one
value."""

import csv
import datetime
import io
import json
import subprocess
import sys
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import kstore
from tests.helpers.files import flip
from tests.helpers.processes import environment
from tests.tools.conftest import Feed, Run, T

HOUR = 3_600_000
VALUES = {("a", 0): [b"a0", b"\xff\x00"], ("a", 1): [b"a1"], ("b", 0): ["b\u00fc".encode()]}
ROWS = [
    (topic, number, at, value) for (topic, number), all_ in VALUES.items() for at, value in enumerate(all_)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two topics, and one of Kafka's own."""
    with kstore.LogStore(tmp_path / "data", mode="a") as store:
        for topic, partitions in (("b", 1), ("a", 2), ("__consumer_offsets", 1)):
            store.create_topic(topic, partitions)
        for (topic, number), values in VALUES.items():
            for value in values:
                store.log(topic, number).append(value, timestamp=T)
        store.append("__consumer_offsets", b"internal")
    return tmp_path / "data"


def test_topic_and_partition_in_every_format(data: Path, tmp_path: Path, run: Run) -> None:
    lines = [
        json.loads(line) for line in run("records", data, "--format", "jsonl", "--base64")[1].splitlines()
    ]
    assert [(line["topic"], line["partition"], line["offset"]) for line in lines] == [row[:3] for row in ROWS]
    cells = list(csv.reader(io.StringIO(run("records", data, "--format", "csv")[1])))
    assert cells[0] == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert [(topic, int(number), int(at)) for topic, number, at, *_ in cells[1:]] == [row[:3] for row in ROWS]
    assert run("records", data)[1].splitlines()[0].split("\t")[:3] == ["a", "0", "0"]
    assert run("records", data, "--format", "log", "--topic", "b")[1].startswith("b 0 2023-")
    for form in ("arrow", "parquet"):
        out = tmp_path / f"x.{form}"
        assert run("records", data, "--output", out) == (0, "", "")
        table = (
            pyarrow.parquet.read_table(out) if form == "parquet" else pyarrow.ipc.open_stream(out).read_all()
        )
        names = ("topic", "partition", "offset", "value")
        assert list(zip(*(table[name].to_pylist() for name in names), strict=True)) == ROWS
        assert table.schema.field("timestamp").type == pyarrow.timestamp("ms", tz="UTC")
        assert table.schema.names[:2] == ["topic", "partition"]


def test_what_is_printed_can_be_appended(data: Path, tmp_path: Path, run: Run, feed: Feed) -> None:
    feed(run("records", data, "--format", "jsonl")[1])
    assert run("append", tmp_path / "copy-0", "--format", "jsonl")[0] == 0
    assert [record.value for record in kstore.open(tmp_path / "copy-0")] == [row[3] for row in ROWS]


def test_selections(data: Path, tmp_path: Path, run: Run) -> None:
    def printed(*words: object) -> list[tuple[str, int, int]]:
        code, out, _ = run("records", data, "--format", "jsonl", *words)
        assert code == 0
        lines = map(json.loads, out.splitlines())
        return [(line["topic"], line["partition"], line["offset"]) for line in lines]

    assert printed("--topic", "b") == [("b", 0, 0)]
    assert printed("--topic", "b", "--topic", "a", "--partition", "0") == [
        ("b", 0, 0),
        ("a", 0, 0),
        ("a", 0, 1),
    ]
    assert printed("--topic", "__consumer_offsets") == [("__consumer_offsets", 0, 0)]
    assert printed("--offset", "1") == [("a", 0, 1)]
    for wrong, words in (
        (1, [data, "--topic", "gone"]),
        (1, [data, "--partition", "9"]),
        (1, [tmp_path / "gone"]),
        (2, [data / "a-0", "--topic", "a"]),
        (2, [data, "--offset", "1", "--start", "1"]),
        (2, [data, "--bom"]),
        (2, [data, "--offset", "0", "--raw"]),
    ):
        code, out, err = run("records", *words)
        assert (code, out, err.startswith("kstore: ")) == (wrong, "", True), words


def test_timestamps_are_real(tmp_path: Path, run: Run) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v", timestamp=T + 5)
        log.append(b"v", timestamp=-1)
    for name in ("x.arrow", "x.parquet"):
        out = tmp_path / name
        words = ["--columns", "timestamp,max_timestamp,offset", "--output", out]
        assert run("records", tmp_path / "t-0", *words)[0] == 0
        table = (
            pyarrow.parquet.read_table(out)
            if name == "x.parquet"
            else pyarrow.ipc.open_stream(out).read_all()
        )
        at = datetime.datetime.fromtimestamp((T + 5) / 1000, datetime.UTC)
        assert table["timestamp"].to_pylist() == [at, None]
        assert table["max_timestamp"].to_pylist() == [at, None]
        assert table["offset"].to_pylist() == [0, 1]


def test_times_of_day_and_ages(tmp_path: Path, run: Run) -> None:
    now = time.time_ns() // 1_000_000
    today = now - now % (24 * HOUR)
    ages = [49 * HOUR, 5 * HOUR, HOUR // 2, 10_000]
    with kstore.open(tmp_path / "t-0", "a") as log:
        for age in ages:
            log.append(b"v", timestamp=now - age)

    def count(*words: object) -> int:
        code, out, _ = run("records", tmp_path / "t-0", *words)
        assert code == 0
        return len(out.splitlines())

    for since, most in (
        ("1m", HOUR // 60),
        ("30m", HOUR // 2),
        ("1h", HOUR),
        ("2d", 48 * HOUR),
        ("1w", 168 * HOUR),
    ):
        assert count("--since", since) == sum(age < most for age in ages), since
        assert count("--until", since) == sum(age >= most for age in ages), since
    assert count("--since", "today") == sum(now - age >= today for age in ages)
    assert count("--since", "yesterday", "--until", "now") == sum(
        now - age >= today - 24 * HOUR for age in ages
    )
    assert run("find", tmp_path / "t-0", "--timestamp", "1h", "--json")[1].startswith('{"offset": 2')
    for wrong in ("1y", "h", "-1h", "1.5h", "tomorrow", "9999999999999999h"):
        assert run("records", tmp_path / "t-0", f"--since={wrong}")[0] == 2


def test_csv_is_utf8_and_has_a_mark_if_asked(data: Path, tmp_path: Path, run: Run) -> None:
    for words, begins in (((), b"topic,"), (("--bom",), b"\xef\xbb\xbftopic,")):
        assert run("records", data, "--output", tmp_path / "x.csv", *words)[0] == 0
        written = (tmp_path / "x.csv").read_bytes()
        assert written.startswith(begins)
        assert "b\u00fc" in written.decode("utf-8")


@pytest.mark.parametrize(
    "value", [b"", b"\xff\x00\r\n\x1b[2J", b"x" * 3_000_000], ids=["empty", "odd", "long"]
)
def test_the_bytes_of_one_value(tmp_path: Path, run: Run, value: bytes) -> None:
    with kstore.open(tmp_path / "t-0", "a", compression_type="zstd") as log:
        log.extend([b"other", value, None])
    out = tmp_path / "value.bin"
    assert run("records", tmp_path / "t-0", "--offset", "1", "--raw", "--output", out)[0] == 0
    assert out.read_bytes() == value
    with kstore.LogStore(tmp_path, mode="a"):
        pass
    words = ["--topic", "t", "--partition", "0", "--offset", "1", "--raw", "--output", out]
    assert run("records", tmp_path, *words)[0] == 0
    assert out.read_bytes() == value
    for offset, text in ((2, "null"), (3, "offset")):
        code, _, err = run("records", tmp_path / "t-0", "--offset", offset, "--raw")
        assert (code, text in err) == (1, True)


def test_the_bytes_of_one_value_in_a_pipe(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"\xff\x00\n")
    words = ["records", str(tmp_path / "t-0"), "--offset", "0", "--raw"]
    command = [sys.executable, "-P", "-m", "kstore", *words]
    done = subprocess.run(command, env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"\xff\x00\n")


def test_one_damaged_partition_hides_no_other(data: Path, run: Run) -> None:
    """With --on-error skip; else the command ends there."""
    flip(data / "a-1" / f"{0:020}.log", -2)
    assert run("records", data)[0] == 1
    _, out, err = run("records", data, "--on-error", "skip")
    assert "b\u00fc" in out
    assert "a-1" in err
    (data / "aa-0").mkdir()
    (data / "aa-0" / "readme").write_bytes(b"x")
    code, out, err = run("records", data, "--on-error", "skip")
    assert (code, "b\u00fc" in out, "aa-0" in err) == (1, True, True)
    code, _, err = run("records", data, "--on-error", "skip", "--output", data.parent / "x.parquet")
    assert (code, "aa-0" in err) == (1, True)
    table = pyarrow.parquet.read_table(data.parent / "x.parquet")
    assert table["topic"].to_pylist() == ["a", "a", "b"]
