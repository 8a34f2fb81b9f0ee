"""kstore append: lines and JSON Lines become records, and what is no record is named by its line."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import environment
from tests.helpers.waiting import until
from tests.tools.conftest import Feed, Run, T

GOLDEN = Path(__file__).parents[1] / "golden" / "data"


def records(path: Path) -> list[kstore.Record]:
    return list(kstore.open(path))


@pytest.mark.parametrize("form", [[], ["--base64"]])
def test_json_lines_go_there_and_back(
    odd: Path, tmp_path: Path, form: list[str], run: Run, feed: Feed
) -> None:
    code, out, err = run("records", odd, "--format", "jsonl", *form)
    assert (code, err) == (0, "")
    feed(out)
    assert run("append", tmp_path / "copy-0", "--format", "jsonl", *form)[0] == 0
    assert records(tmp_path / "copy-0") == records(odd)
    assert json.loads(out.splitlines()[0])["value"] == (
        base64.b64encode(b"text").decode() if form else "text"
    )


NO_RECORDS = [
    ('{"event": "click"}', "unknown field 'event': the fields are value, key, timestamp, headers"),
    ('{"key": "k"}', "no value"),
    ('{"value": 5}', "the value is text"),
    ('{"value": {"base64": "?"}}', "the value is not base64"),
    ('{"value": {"redacted": "x"}}', "redacted"),
    ('{"value": "v", "key": ["k"]}', "the key is text"),
    ('{"value": "v", "timestamp": 1.5}', "timestamp 1.5"),
    ('{"value": "v", "headers": [["h"]]}', "headers are pairs"),
    ('{"value": "v", "headers": ["hv"]}', "headers are pairs"),
    ('{"value": "v", "headers": {"h": 1}}', "header 'h' is text"),
    ('{"value": "v", "headers": {"h": "1", "h": "2"}}', "'h' is twice in an object"),
    ('{"value": "v", "value": "w"}', "'value' is twice in an object"),
    ('{"value": "\\ud800"}', "surrogates"),
    ('{"value": "", "control_type": "COMMIT"}', "transaction marker"),
    ("[]", "not an object"),
    ("[" * 100_000, "line 1"),
    ("{", "line 1"),
]


def test_a_line_that_is_no_record_is_refused(tmp_path: Path, odd: Path, run: Run, feed: Feed) -> None:
    redacted = run("records", odd, "--format", "jsonl", "--redact")[1]
    for line, words in [*NO_RECORDS, (redacted, "redacted")]:
        feed(line)
        code, out, err = run("append", tmp_path / "t-0", "--format", "jsonl")
        assert (code, out) == (2, ""), line
        assert "line 1: " in err
        assert words in err
    assert not (tmp_path / "t-0").exists()


def test_an_error_says_what_came_before_it_and_names_the_line(tmp_path: Path, run: Run, feed: Feed) -> None:
    feed('{"value": "v"}\n' * 5000 + "{}\n")
    said = (
        f"kstore: there was no log at {tmp_path / 't-0'}: a new one was made\n"
        "kstore: 5000 records appended: offsets 0 to 4999 before this:\n"
        "kstore: line 5001: no value: give null for a record without one\n"
    )
    assert run("append", tmp_path / "t-0", "--format", "jsonl") == (2, "", said)
    assert kstore.open(tmp_path / "t-0").log_end_offset == 5000
    feed("a\n" * 4100 + "x" * 2_000_000 + "\n")
    code, _, err = run("append", tmp_path / "t-0")
    assert code == 1
    assert "offsets 5000 to 9099 before this:\nkstore: line 4101 larger than" in err
    feed('{"value": "a"}\n\n{"value": "b", "timestamp": 1700000000000000}\n')
    assert "kstore: line 3: timestamp 17" in run("append", tmp_path / "t-0", "--format", "jsonl")[2]


def test_records_of_transactions_are_reported_to_be_outside_of_them(
    tmp_path: Path, run: Run, feed: Feed
) -> None:
    """Copied as JSON Lines, those of aborted transactions count."""
    for isolation in ("read_uncommitted", "read_committed"):
        source = GOLDEN / "transactions" / "txn-0"
        lines = run("records", source, "--format", "jsonl", "--isolation", isolation)[1]
        count = sum(json.loads(line)["batch"]["transactional"] for line in lines.splitlines())
        assert count > 0
        feed(lines)
        code, _, err = run("append", tmp_path / isolation, "--format", "jsonl")
        assert (code, "read_committed" in err) == (0, True)
        assert f"kstore: {count} records were in transactions" in err


def test_names_of_new_logs(tmp_path: Path, run: Run, feed: Feed) -> None:
    for name, is_doubtful in (("t-0", False), ("new-1", False), ("orders", True), ("x-01", True)):
        for is_new in (True, False):
            feed("v\n")
            code, _, err = run("append", tmp_path / name)
            made = f"kstore: there was no log at {tmp_path / name}: a new one was made\n"
            assert (code, made in err) == (0, is_new)
            doubts = (f"would not see {name!r} in it as a", f"{name!r} is not a name that Kafka gives to the")
            assert any(doubt in err for doubt in doubts) == is_doubtful
    feed("v\n")
    assert "would not see" in run("append", tmp_path / "orders-0-delete")[2]
    (tmp_path / "elsewhere").mkdir()
    feed("v\n")
    assert "would not see" not in run("append", tmp_path / "elsewhere" / "orders")[2]


@pytest.mark.parametrize(
    ("separator", "line", "key", "value"),
    [
        (r"\t", b"k\tv\\tw", b"k", b"v\\tw"),
        (r"\\", b"k\\v", b"k", b"v"),
        (r"\x1f", b"k\x1fv", b"k", b"v"),
        (r"\\t", b"k\\tv\tw", b"k", b"v\tw"),
        (r"a\tb", b"ka\tbv", b"k", b"v"),
        (":", b"k:v:w", b"k", b"v:w"),
    ],
)
def test_separators_of_keys(
    tmp_path: Path, separator: str, line: bytes, key: bytes, value: bytes, run: Run, feed: Feed
) -> None:
    feed(line)
    assert run("append", tmp_path / "t-0", "--key-separator", separator)[0] == 0
    assert [(r.key, r.value) for r in records(tmp_path / "t-0")] == [(key, value)]


def test_separators_that_are_none(tmp_path: Path, run: Run, feed: Feed) -> None:
    for separator, words in (
        (r"\q", r"\q is not one of \t, \\ and \xNN"),
        ("\\", r"\ is not one of"),
        (r"\x1", r"\x is not one of"),
        ("", "is empty"),
        (r"\x0a", "the end of a line"),
    ):
        feed("v")
        code, _, err = run("append", tmp_path / "t-0", "--key-separator", separator)
        assert (code, words in err) == (2, True), err
    assert not (tmp_path / "t-0").exists()


def test_the_end_of_a_line_is_not_in_the_value(tmp_path: Path, run: Run, feed: Feed) -> None:
    feed(b"a\r\nb\nc\r\r\n\r\nd\r")
    assert run("append", tmp_path / "t-0")[0] == 0
    assert [r.value for r in records(tmp_path / "t-0")] == [b"a", b"b", b"c\r", b"", b"d"]


@pytest.mark.parametrize("ends", ["ends", "interrupted"])
def test_lines_are_appended_as_they_come(tmp_path: Path, ends: str) -> None:
    path = tmp_path / "t-0"
    command = [sys.executable, "-P", "-m", "kstore", "append", str(path)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, env=environment(), **pipes)  # type: ignore[call-overload]
    process.stdin.write(b"one\ntwo\nthr")
    process.stdin.flush()
    until(lambda: list(path.glob("*.log")) and len(records(path)) == 2)
    assert [record.value for record in records(path)] == [b"one", b"two"]
    if ends == "ends":
        process.communicate(b"ee\n")
        assert [record.value for record in records(path)] == [b"one", b"two", b"three"]
    else:
        process.send_signal(signal.SIGINT)
        assert (
            b"kstore: 2 records appended: offsets 0 to 1 before it was interrupted"
            in process.communicate()[1]
        )
        assert process.returncode == 130
        assert len(records(path)) == 2


def test_a_copy_keeps_timestamps_of_the_future(tmp_path: Path, run: Run, feed: Feed) -> None:
    """As docs/recovery-and-durability.md copies a damaged log."""
    lines = [json.dumps({"value": "v", "timestamp": ms}) + "\n" for ms in (T, 2**62, 2**63 - 1, T)]
    feed("".join(lines))
    code, _, err = run("append", tmp_path / "t-0", "--format", "jsonl")
    assert code == 1
    option = re.search(r"--config (\S+)", err)
    assert option is not None
    feed("".join(lines))
    assert run("append", tmp_path / "copy-0", "--format", "jsonl", "--config", option[1])[0] == 0
    assert [record.timestamp for record in kstore.open(tmp_path / "copy-0")] == [T, 2**62, 2**63 - 1, T]
    text = (Path(__file__).parents[2] / "docs" / "recovery-and-durability.md").read_text("utf-8")
    assert f"--format jsonl --config {option[1]}\n" in text


def test_a_long_line_is_refused_while_it_is_read(
    tmp_path: Path, run: Run, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    plain = os.read

    def counted(fd: int, size: int) -> bytes:
        data = plain(fd, size)
        read.append(len(data))
        return data

    monkeypatch.setattr("kstore.tools.commands.changing.append.os.read", counted)
    for form, good, bad in (
        ("lines", "a\nb\n", "x" * (40 << 20)),
        ("jsonl", '{"value": "a"}\n{"value": "b"}\n', '{"value": "' + "x" * (40 << 20)),
    ):
        read.clear()
        feed(good + bad)
        code, _, err = run("append", tmp_path / form, "--format", form)
        assert code == 1
        assert (
            "2 records appended: offsets 0 to 1 before this:\nkstore: line 3 larger than a record of this log may be"
            in err
        )
        assert sum(read) < 8 << 20
    feed("x" * (2 << 20) + "\n")
    assert run("append", tmp_path / "none-0")[0] == 1
    assert not (tmp_path / "none-0").exists()
    for options in (["--config", "max.message.bytes=4000000"], ["--config", "compression.type=zstd"]):
        feed("x" * (2 << 20))
        assert run("append", tmp_path / "long-0", *options)[0] == 0


def test_lines_over_many_reads(tmp_path: Path, run: Run, feed: Feed) -> None:
    lines = [b"%d" % n * size for n, size in enumerate((0, 1, 65535, 65536, 65537, 200_000, 3))]
    for end in (b"", b"\n"):
        feed(b"\n".join(lines) + end)
        path = tmp_path / f"t-{len(end)}"
        assert run("append", path)[0] == 0
        assert [record.value for record in kstore.open(path)] == lines


@pytest.mark.parametrize("headers", ['[["\\ud800", "x"]]', '{"\\ud800": "x"}'])
def test_a_lone_surrogate_in_the_name_of_a_header(tmp_path: Path, headers: str, run: Run, feed: Feed) -> None:
    feed('{"value": "a"}\n{"value": "b"}\n{"value": "c", "headers": ' + headers + "}\n")
    code, _, err = run("append", tmp_path / "t-0", "--format", "jsonl")
    assert code == 2
    assert "2 records appended: offsets 0 to 1 before this:\nkstore: line 3: " in err
    assert len(list(kstore.open(tmp_path / "t-0"))) == 2
