"""What a new user of the command line meets: no silence, no surprise."""

import base64
import contextlib
import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.__main__ import main
from kstore.tools.terminal import for_terminal
from tests.hostile.test_forged import resealed

Feed = Callable[[str], None]

T = 1_700_000_000_000
ODD = [
    b"text",
    b"",
    None,
    "\u00fc".encode(),
    b"\xff\xfe",
    b"abcd",
    b'{"a": 1}',
    b"\x1b[2J",
    b"a\nb\tc",
    b"-5",
    b"=1+1",
]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Standard input of the commands that follow."""
    with contextlib.ExitStack() as files:

        def put(text: str) -> None:
            (tmp_path / "input").write_text(text)
            monkeypatch.setattr(sys, "stdin", files.enter_context((tmp_path / "input").open()))

        yield put


@pytest.fixture
def odd(tmp_path: Path) -> str:
    path = tmp_path / "odd-0"
    with kstore.open(path, "a") as log:
        for i, data in enumerate(ODD):
            log.append(data, data, T + i, [("h", data), ("h", b"twice")])
    return str(path)


# ---- JSON Lines there and back ------------------------------------------------------------------


@pytest.mark.parametrize("form", [[], ["--base64"]])
def test_json_lines_go_there_and_back(
    odd: str,
    tmp_path: Path,
    form: list[str],
    capsys: pytest.CaptureFixture[str],
    feed: Feed,
) -> None:
    code, out, err = run(capsys, "records", odd, "--format", "jsonl", *form)
    assert (code, err) == (0, "")
    feed(out)
    assert main(["append", str(tmp_path / "copy-0"), "--format", "jsonl", *form]) == 0
    assert list(kstore.open(tmp_path / "copy-0")) == list(kstore.open(odd))
    first = json.loads(out.splitlines()[0])
    assert first["value"] == ("text" if not form else base64.b64encode(b"text").decode())


@pytest.mark.parametrize(
    ("line", "words"),
    [
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
        ('{"value": "v", "headers": {"h": "1", "h": "2"}}', "'h' stands twice in an object"),
        ('{"value": "v", "value": "w"}', "'value' stands twice in an object"),
        ('{"value": "\\ud800"}', "surrogates"),
        ('{"value": "", "control_type": "COMMIT"}', "transaction marker"),
        ("[]", "not an object"),
        ("[" * 100_000, "line 1"),
        ("{", "line 1"),
    ],
)
def test_a_line_that_is_no_record_is_refused(
    tmp_path: Path, line: str, words: str, capsys: pytest.CaptureFixture[str], feed: Feed
) -> None:
    feed(line)
    code, out, err = run(capsys, "append", str(tmp_path / "t-0"), "--format", "jsonl")
    assert (code, out) == (2, "")
    assert "line 1: " in err
    assert words in err
    assert not (tmp_path / "t-0").exists()


def test_what_came_before_an_error_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], feed: Feed
) -> None:
    feed('{"value": "v"}\n' * 5000 + "{}\n")
    code, out, err = run(capsys, "append", str(tmp_path / "t-0"), "--format", "jsonl")
    assert (code, out) == (2, "")
    assert err == (
        f"kstore: there was no log at {tmp_path / 't-0'}: a new one was made\n"
        "kstore: 5000 records appended: offsets 0 to 4999 before this:\n"
        "kstore: line 5001: no value: give null for a record without one\n"
    )
    assert kstore.open(tmp_path / "t-0").log_end_offset == 5000


def test_redacted_records_are_not_taken_for_data(
    odd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], feed: Feed
) -> None:
    feed(run(capsys, "records", odd, "--format", "jsonl", "--redact")[1])
    assert main(["append", str(tmp_path / "t-0"), "--format", "jsonl"]) == 2


# ---- output -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["jsonl", "csv", "text"])
def test_output_goes_into_the_file(
    odd: str, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, expected, _ = run(capsys, "records", odd, "--format", form)
    assert run(capsys, "records", odd, "--format", form, "--output", str(tmp_path / "f")) == (0, "", "")
    assert (tmp_path / "f").read_bytes() == expected.encode()


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (["--start", "12"], "--start 12 is beyond the log, which holds 3 to 11 (exclusive)"),
        (["--start", "1"], "--start 1 is below the log start offset: records begin at 3"),
        (["--stop", "3"], "no offset is before --stop 3: the log begins at 3"),
        (
            ["--start", "5", "--stop", "5"],
            "--stop 5 is not after --start 5, so no offset is between them",
        ),
        (
            ["--since", "10", "--until", "10"],
            "no time is between --since and --until: --since must be earlier",
        ),
        (["--start", "11"], ""),
        (["--start", "3"], ""),
    ],
)
def test_an_empty_range_is_said(
    odd: str, words: list[str], err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with kstore.open(odd, "a") as log:
        log.delete_records(3)
    assert run(capsys, "records", odd, *words)[::2] == (0, f"kstore: {err}\n" if err else "")


@pytest.mark.parametrize(
    "words",
    [
        ["records", "--start", "99999999999999999999"],
        ["records", "--start", "-1"],
        ["records", "--stop", "x"],
        ["records", "--since", "99999999999999999999"],
        ["records", "--until", "tomorrow"],
        ["records", "--start", "1_000"],
        ["records", "--start", "٣"],
        ["records", "--max-decompressed-bytes", "-1"],
        ["records", "--index-interval-bytes", "99999999999"],
        ["find", "--offset", "99999999999999999999"],
        ["follow", "--timeout", "nan"],
        ["follow", "--timeout", "-1"],
        ["follow", "--count", "-1"],
        ["follow", "--start", "1", "--from-start"],
        ["truncate", "--to", "99999999999999999999"],
        ["append", "--batch-bytes", "-1"],
    ],
)
def test_numbers_out_of_range_are_wrong_usage(odd: str, words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([words[0], odd, *words[1:]])
    assert caught.value.code == 2


@pytest.mark.parametrize(
    "words",
    [
        ["records", "--columns", "offset"],
        ["records", "--base64"],
        ["records", "--format", "jsonl", "--raw"],
        ["records", "--format", "jsonl", "--base64", "--redact"],
        ["follow", "--base64"],
        ["append", "--base64"],
        ["append", "--format", "jsonl", "--key-separator", ":"],
    ],
)
def test_options_that_would_be_passed_over_are_refused(
    odd: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, words[0], odd, *words[1:])[:2] == (2, "")


FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\n=1", "'=1", "''@x", "\uff1d1", "+", "-"]
NO_FORMULAS = ["-5", "+5", "-1.5e-3", ".5", "-.5", "'", "'a", "a=1", "", "1-1"]


@pytest.mark.parametrize("raw", [False, True])
def test_cells_are_no_formulas(tmp_path: Path, raw: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([cell.encode() for cell in FORMULAS + NO_FORMULAS])
    _, out, _ = run(capsys, "records", str(tmp_path / "t-0"), "--format", "csv", *(["--raw"] if raw else []))
    cells = [row[3] for row in csv.reader(io.StringIO(out, newline=""))][1:]
    if raw:
        assert cells == FORMULAS + NO_FORMULAS
    else:
        assert cells == ["'" + cell for cell in FORMULAS] + NO_FORMULAS
        back = [re.sub("^'(?='*[=+@\t\n\r\uff1d-])", "", cell) for cell in cells]
        assert back == FORMULAS + NO_FORMULAS


def test_headers_of_one_name_are_all_in_a_row(odd: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "records", odd, "--format", "csv", "--stop", "1")
    assert json.loads(list(csv.reader(io.StringIO(out)))[1][4]) == [["h", "text"], ["h", "twice"]]


# ---- terminals and closed streams ---------------------------------------------------------------


def in_terminal(*words: str) -> bytes:
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "kstore", *words], stdout=theirs, stderr=theirs):
        os.close(theirs)
        out = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            out += piece
    os.close(ours)
    return out


@pytest.mark.parametrize(
    "words",
    [
        ["records", "{odd}"],
        ["records", "{odd}", "--format", "csv", "--raw"],
        ["records", "{odd}", "--format", "jsonl"],
        ["follow", "{odd}", "--from-start", "--timeout", "0"],
        ["dump", "--print-data-log", "{odd}/00000000000000000000.log"],
        ["stat", "{odd}\x1b[2J"],
    ],
)
def test_nothing_commands_a_terminal(odd: str, words: Sequence[str]) -> None:
    out = in_terminal(*(word.replace("{odd}", odd) for word in words))
    assert b"[2J" in out
    assert re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", out) is None


def test_text_has_a_line_a_record(odd: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "records", odd)
    assert len(out.splitlines()) == len(ODD)
    assert "\\x1b[2J" in out
    assert "a\\nb\\tc" in out
    assert for_terminal("a\tb\r\nc\rd\x9b") == "a\tb\r\nc\\rd\\x9b"


@pytest.mark.parametrize(
    ("words", "closed"),
    [
        (["records"], ">&-"),
        (["records", "--format", "csv"], ">&- 2>&- <&-"),
        (["records", "--format", "jsonl"], "<&-"),
        (["stat"], "2>&-"),
    ],
)
def test_closed_streams(odd: str, words: list[str], closed: str) -> None:
    """Nobody takes what a reader prints for all there is, if it could not be printed."""
    command = f'"$0" -m kstore {words[0]} "$1" {" ".join(words[1:])} {closed}'
    done = subprocess.run(["sh", "-c", command, sys.executable, odd], capture_output=True, check=False)
    is_lost = ">&-" in closed.split()
    said = b"kstore: [Errno 9] Bad file descriptor\n" if is_lost and "2>&-" not in closed else b""
    assert (done.returncode, done.stderr) == (int(is_lost), said)


def test_append_needs_standard_input(odd: str) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$0" -m kstore append "$1" <&-', sys.executable, odd],
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1)  # 0: the shell gave it a stream that is at its end
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("options", [["records", "odd"], ["--help"], ["records", "--help"], ["--version"]])
def test_a_full_disk_behind_stdout_is_an_error(odd: str, options: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "kstore", *(odd if each == "odd" else each for each in options)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr == b"kstore: [Errno 28] No space left on device\n"


@pytest.mark.parametrize("telling", [">&-", ">/dev/full"])
def test_append_whose_stdout_takes_nothing_says_that_all_is_appended(tmp_path: Path, telling: str) -> None:
    """Who reads only of a full disk appends all once more."""
    command = f'"$0" -m kstore append "$1" {telling}'
    path = tmp_path / "t-0"
    kstore.open(path, "a").close()
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, str(path)], input=b"a\nb\n", capture_output=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"kstore: 2 records appended: offsets 0 to 1. Only telling it failed")
    assert [record.value for record in kstore.open(path)] == [b"a", b"b"]


# ---- what is no partition, what was damaged, what has no configuration -----------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["records"],
        ["follow"],
        ["find", "--latest"],
        ["recover"],
        ["truncate", "--to", "0"],
        ["retain", "--defaults"],
        ["compact"],
    ],
)
def test_no_command_takes_a_log_directory_for_a_partition(
    odd: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    code, out, err = run(capsys, words[0], str(tmp_path), *words[1:])
    assert (code, out) == (1, "")
    assert "is a log directory, not a partition: it holds odd-0" in err
    (tmp_path / "empty-0").mkdir()
    assert run(capsys, words[0], str(tmp_path / "empty-0"), *words[1:])[0] == 1
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "empty-0"])


def test_retention_needs_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t-0")
    with kstore.open(path, "a", retention_ms=-1) as log:
        log.append(b"kept for ever", timestamp=T)
    assert run(capsys, "retain", path, "--defaults")[0] == 0  # for what is not kept of the log
    assert len(list(kstore.open(path))) == 1
    kstore.open(path, "a", retention_ms=None).close()
    for more in ([], ["--dry-run"]):
        code, out, err = run(capsys, "retain", path, *more)
        assert (code, out) == (2, "")
        assert "--config" in err
    assert run(capsys, "retain", path, "--config", "retention.ms=-1")[0] == 0
    assert len(list(kstore.open(path))) == 1
    (tmp_path / "server.properties").write_text("log.retention.ms=-1\n")
    assert run(capsys, "retain", path, "--server-properties", str(tmp_path / "server.properties"))[0] == 0
    assert len(list(kstore.open(path))) == 1
    assert run(capsys, "retain", path, "--defaults")[0] == 0
    assert list(kstore.open(path)) == []


def damaged(tmp_path: Path) -> str:
    """A log of five segments, one byte of the second flipped, not closed cleanly."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", internal_segment_bytes=200) as log:
        log.extend([b"v" * 20 for _ in range(10)], batch_bytes=0)
        segments = [segment.path for segment in log.segments]
    assert len(segments) == 5
    (path / ".kafka_cleanshutdown").unlink()
    for name in ("recovery-point-offset-checkpoint",):
        (path / name).unlink()
    data = bytearray(Path(segments[1]).read_bytes())
    data[80] ^= 1
    Path(segments[1]).write_bytes(data)
    return str(path)


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_what_recovery_would_cut_off_is_said_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = damaged(tmp_path)
    for words in (["records"], ["stat"], ["find", "--offset", "0"], ["follow", "--timeout", "0"]):
        code, _, err = run(capsys, words[0], path, *words[1:])
        assert code == int(words == ["stat"])  # it is there to tell of damage
        assert re.fullmatch(
            r"kstore: .*t-0 ends at offset 2 here, .*: \d+ bytes in 4 files are left out, from byte 0 of .*002\.log on "
            r".*--as-is --on-error skip.*recover=False.*\n(kstore: .* look wrong\n)?",
            err,
        )
    code, out, err = run(capsys, "records", path, "--as-is", "--on-error", "skip")
    assert code == 0
    assert len(out.splitlines()) == 9
    assert err.startswith("kstore: left out ")


def test_a_dry_run_of_recovery_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = damaged(tmp_path)
    before = {file: file.read_bytes() for file in Path(path).iterdir()}
    code, out, _ = run(capsys, "recover", path, "--dry-run")
    assert code == 0
    assert "would be deleted: it comes after what was cut off" in out
    assert out.endswith("the log would hold offsets 0 to 2 (exclusive)\n")
    report = json.loads(run(capsys, "recover", path, "--dry-run", "--json")[1])
    assert (report["written"], report["log_end_offset"], len(report["findings"])) == (False, 2, 4)
    assert {file: file.read_bytes() for file in Path(path).iterdir()} == before


@pytest.mark.parametrize("tail", [b"garbage", bytes(200), b"x" * 200])
def test_a_dry_run_of_recovery_says_what_is_cut_off_after_a_clean_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tail: bytes
) -> None:
    """A reader passes over what lies behind the last batch, and who opens the log for writing cuts it off."""
    path = str(tmp_path / "t-0")
    with kstore.open(path, "a") as log:
        log.extend([b"x"] * 3)
    with (tmp_path / "t-0" / f"{0:020d}.log").open("ab") as file:
        file.write(tail)
    plan = json.loads(run(capsys, "recover", path, "--dry-run", "--json")[1])
    done = json.loads(run(capsys, "recover", path, "--json")[1])
    assert (plan.pop("written"), done.pop("written")) == (False, True)
    assert plan["truncated_bytes"] == len(tail)
    for report in (plan, done):
        for finding in report["findings"]:
            finding["text"] = finding["text"].replace("would be", "were")
    assert plan == done


def test_a_dry_run_refuses_what_the_real_one_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "t-0")
    with kstore.open(path, "a") as log:
        log.extend([b"x"] * 100)
    file = log._directory + "/" + "0" * 20 + ".log"
    for words in (
        ["truncate", path, "--to", "90"],
        ["truncate", path, "--to", "0", "--config", "no.such.option=1"],
        ["truncate", file, "--to", "0"],
        ["retain", path, "--config", "retention.ms=1", "--config", "no.such.option=1"],
        ["retain", file, "--defaults"],
        ["compact", path, "--config", "cleanup.policy=delete"],
        ["compact", file],
        ["recover", file],
    ):
        refused = run(capsys, *words)
        assert refused[:2] in ((1, ""), (2, ""))
        assert run(capsys, *words, "--dry-run") == refused
    with kstore.open(path, "a"):
        code, out, err = run(capsys, "truncate", path, "--to", "0", "--dry-run")
        assert (code, out) == (0, "100 records in 1 batch would be removed, from offset 0 on\n")
        assert err == f"kstore: {path} is open for writing now: without --dry-run this would be refused\n"
    assert (
        run(capsys, "truncate", path, "--to", "100")[1] == "nothing to remove: the log ends at offset 100\n"
    )
    assert "ends at offset 100, below --to 200" in run(capsys, "truncate", path, "--to", "200")[1]


def test_recovery_tells_of_losses_and_of_what_it_does_not_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = damaged(tmp_path)
    report = json.loads(run(capsys, "recover", path, "--dry-run", "--json")[1])
    assert [re.findall(r"(\d)\.log would be cut off", loss) for loss in report["losses"]] == [
        ["2"],
        ["4"],
        ["6"],
        ["8"],
    ]
    assert "recover=False shows them" in run(capsys, "recover", path, "--dry-run")[1]
    code, out, err = run(capsys, "recover", path)
    assert code == 0
    assert "bytes were cut off (with 1 sound batch, offsets 3 to 3; a .cut file keeps them)" in out
    assert "recover=False" not in out  # it shows them no more
    assert out.count("  lost: ") == 4
    assert "checksums" not in out
    assert "kept in 4 .cut files" in err
    assert "002.log.0.cut first" in err
    code, out, err = run(capsys, "recover", path)
    assert (code, err) == (0, "")
    assert out.startswith("after a clean shutdown: 0 findings\n")
    assert out.endswith(f"no checksums were checked, as in Kafka: kstore stat --verify {path}\n")


def test_a_new_log_is_told_of(tmp_path: Path, feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ordres-0"
    for told in (f"kstore: there was no log at {path}: a new one was made\n", ""):
        feed("a\n")
        code, _, err = run(capsys, "append", str(path))
        assert (code, err) == (0, told)


def test_append_names_lines(
    tmp_path: Path, feed: Feed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t-0")
    feed("a\n" * 4100 + "x" * 2_000_000 + "\n")
    code, _, err = run(capsys, "append", path)
    assert code == 1
    assert "offsets 0 to 4099 before this:\nkstore: line 4101 larger than" in err
    feed('{"value": "a"}\n\n{"value": "b", "timestamp": 1700000000000000}\n')
    assert "kstore: line 3: timestamp 17" in run(capsys, "append", path, "--format", "jsonl")[2]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kstore.tools.commands.append._append_all", interrupted)
    feed("a\n")
    assert run(capsys, "append", path)[::2] == (130, "kstore: 0 records appended before it was interrupted\n")


def test_wrong_names_of_options_are_named(
    tmp_path: Path, feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "t-0")
    feed("a\n")
    err = run(capsys, "append", path, "--config", "compression_type=gzip")[2]
    assert (
        err == "kstore: no such topic configuration: compression_type; here it is called compression.type\n"
    )
    feed("a\n")
    assert run(capsys, "append", path)[0] == 0
    assert "here it is called retention.ms" in run(capsys, "retain", path, "--config", "retention_ms=1")[2]


def test_the_name_of_the_output_names_the_format(
    tmp_path: Path, feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "t-0")
    with kstore.open(path, "a") as log:
        log.append(b"v", timestamp=T)
    for name, begins in (("x.csv", "offset,"), ("x.jsonl", '{"offset"'), ("x.txt", "0\t"), ("x", "0\t")):
        assert run(capsys, "records", path, "--output", str(tmp_path / name))[0] == 0
        assert (tmp_path / name).read_text().startswith(begins)
    run(capsys, "records", path, "--output", str(tmp_path / "x.csv"), "--format", "text")
    assert (tmp_path / "x.csv").read_text().startswith("0\t")


def test_dump_of_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nope.log"
    assert run(capsys, "dump", str(path)) == (1, f"Dumping {path}\n", f"kstore: there is no file {path}\n")


# ---- stat and dump ------------------------------------------------------------------------------


def stat(path: object, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(capsys, "stat", str(path), "--json", *words)[1])
    return found


def flipped(tmp_path: Path, segment: int, byte: int) -> Path:
    """A log of four segments that was closed cleanly, one byte of one changed since."""
    path = tmp_path / f"t-{byte}"
    with kstore.open(path, "a", internal_segment_bytes=600) as log:
        log.extend([b"%03d" % i * 15 for i in range(20)], batch_bytes=0)
    file = sorted(path.glob("*.log"))[segment]
    data = bytearray(file.read_bytes())
    data[byte] ^= 0x41
    file.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("segment", "byte", "what"),
    [
        (1, 80, "checksum of a batch"),
        (1, 16, "hold no whole batch, and another segment follows: at byte 16: magic of a batch"),
        (1, 10, "hold no whole batch, and another segment follows: a batch that ends behind the segment"),
        (1, 3, "offsets of a batch: expected 5"),
        (3, 9, "bytes follow the last whole batch"),
        (1, 15, "at byte 113: the leader epoch falls from 65 to 0"),
        (1, 113 * 4 + 15, "010.log: the leader epoch falls from 65 to 0"),
    ],
)
def test_stat_tells_of_one_damage_once_and_hides_no_segment(
    tmp_path: Path, segment: int, byte: int, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = flipped(tmp_path, segment, byte)
    found = stat(path, capsys, "--verify")
    assert [s["base_offset"] for s in found["segments"]] == [0, 5, 10, 15]
    assert [s["bytes"] for s in found["segments"]] == [565] * 4
    told = [text for text in found["wrong"] if not text.startswith(("index rebuilt", "checkpoint"))]
    assert len(told) == 1
    assert what in told[0].replace("at byte 0: ", "")
    _, out, err = run(capsys, "stat", str(path), "--verify")
    assert sum(line.lstrip().startswith(("0 ", "5 ", "10 ", "15 ")) for line in out.splitlines()) == 4
    assert "kstore stat" not in err  # who reads this runs it


def test_stat_tells_of_every_wrong_checksum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = flipped(tmp_path, 1, 80)
    file = sorted(path.glob("*.log"))[1]
    data = bytearray(file.read_bytes())
    data[3 * 113 + 80] ^= 1
    file.write_bytes(data)
    wrong = stat(path, capsys, "--verify")["wrong"]
    assert [re.findall(r"at byte (\d+): checksum", text) for text in wrong] == [["17"], [str(3 * 113 + 17)]]


def test_stat_takes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"x")
    (file,) = (tmp_path / "t-0").glob("*.log")
    code, out, _ = run(capsys, "stat", str(file))
    assert code == 0
    assert ", 1 segment, 1 record, 69 bytes, " in out
    code, _, err = run(capsys, "stat", str(tmp_path / "nothing"))
    assert (code, err) == (1, f"kstore: no partition and no log directory at {tmp_path / 'nothing'}\n")


def test_stat_claims_no_more_than_it_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 3, timestamps=[T + 55, T + 20, T + 230])
    found = stat(tmp_path / "t-0", capsys)
    assert "min_timestamp" not in found["segments"][0]
    assert (found["segments"][0]["first_timestamp"], found["segments"][0]["max_timestamp"]) == (
        T + 55,
        T + 230,
    )
    assert found["checksums_checked"] is False
    assert "checksums not checked" in run(capsys, "stat", str(tmp_path / "t-0"))[1]
    _, out, _ = run(capsys, "stat", str(tmp_path / "t-0"), "--verify")
    assert out.endswith("nothing looks wrong\n")
    file = tmp_path / "t-0" / f"{'0' * 20}.log"
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    assert stat(tmp_path / "t-0", capsys, "--verify")["wrong"] != []


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_stat_sees_that_a_segment_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for _ in range(3):
            log.extend([b"v"] * 4)
            log.roll()
    assert stat(tmp_path / "t-0", capsys)["wrong"] == []
    for file in (tmp_path / "t-0").glob(f"{4:020d}.*"):
        file.unlink()
    (wrong,) = stat(tmp_path / "t-0", capsys)["wrong"]
    assert "offsets 4 to 7 are in no segment" in wrong


def test_dump_for_programs_has_what_a_decoder_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with kstore.open(tmp_path / "__consumer_offsets-0", "a") as log:
        log.append(b"v", b"\0\x63")
        file = log.segments[0].path
    _, text, _ = run(capsys, "dump", "--offsets-decoder", file)
    _, out, _ = run(capsys, "dump", "--offsets-decoder", "--json", file)
    decoded = json.loads(out)["decoded"]
    assert decoded.keys() == {"key", "payload"}
    assert f"key: {decoded['key']}" in text
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"\0\0\0\7", b"\0\0\0\0\0\0\0\5")
        file = log.segments[0].path
    words = [
        "dump",
        "--json",
        "--value-decoder-class",
        "IntegerDecoder",
        "--key-decoder-class",
        "LongDecoder",
    ]
    assert json.loads(run(capsys, *words, file)[1])["decoded"] == {"key": "5", "payload": "7"}
    assert "decoded" not in json.loads(run(capsys, "dump", "--json", "--print-data-log", file)[1])


def test_nothing_is_wrong_beside_a_writer_that_has_just_rolled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"x")
        log.roll()
        code, out, _ = run(capsys, "stat", str(tmp_path / "t-0"))
        assert (code, "nothing looks wrong" in out) == (0, True)


def test_recovery_says_which_checksums_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "t-0")
    log = kstore.open(path, "a")
    log.append(b"v")
    log.roll()
    log.append(b"v")
    log.flush()
    log.abandon()
    point = kstore.open(
        path
    ).recovery.recovery_point  # a sync in the background may have told it before flush() did
    assert point > 0
    out = run(capsys, "recover", path)[1]
    assert out.endswith(
        f"no checksums were checked before offset {point}, as in Kafka: kstore stat --verify {path}\n"
    )


def test_records_of_transactions_are_said_to_be_outside_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], feed: Feed
) -> None:
    """Copied as JSON Lines, those of aborted transactions would count without a word."""
    source = str(Path(__file__).parents[1] / "golden" / "data" / "transactions" / "txn-0")
    for number, isolation in enumerate(("read_uncommitted", "read_committed")):
        _, lines, _ = run(capsys, "records", source, "--format", "jsonl", "--isolation", isolation)
        in_transactions = sum(json.loads(line)["batch"]["transactional"] for line in lines.splitlines())
        assert in_transactions > 0
        feed(lines)
        code, _, err = run(capsys, "append", str(tmp_path / f"copy-{number}"), "--format", "jsonl")
        assert code == 0
        assert f"kstore: {in_transactions} records were in transactions" in err
        assert "read_committed" in err


@pytest.mark.parametrize("name", ["x.json", "x.csv.gz", "x.xlsx", "x.feather"])
def test_an_ending_that_names_no_format_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with kstore.open(tmp_path / "a-0", "a") as log:
        log.append(b"x")
    code, _, err = run(capsys, "records", str(tmp_path / "a-0"), "--output", str(tmp_path / name))
    assert (code, "--format" in err, (tmp_path / name).exists()) == (2, True, False)
    command = ("records", str(tmp_path / "a-0"), "--format", "text", "--output", str(tmp_path / name))
    assert run(capsys, *command)[0] == 0
    assert (tmp_path / name).read_text().endswith("\tx\n")


@pytest.mark.parametrize("command", [("delete", "t", "--dry-run"), ("erase", "t", "--key", "k", "--dry-run")])
def test_a_dry_run_beside_a_writer_of_the_store_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    name, *rest = command
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        store.append("t", b"v", key=b"k")
        assert "open for writing now" in run(capsys, name, str(tmp_path), *rest)[2]
    assert "open for writing now" not in run(capsys, name, str(tmp_path), *rest)[2]


def test_properties_without_an_end_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A device would be read until no memory is left."""
    kstore.open(tmp_path / "a-0", "a").close()
    code, _, err = run(capsys, "retain", str(tmp_path / "a-0"), "--server-properties", "/dev/zero")
    assert (code, "/dev/zero is no properties file" in err) == (2, True)


def test_a_topic_with_a_wrong_name_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "create", str(tmp_path / "new"), "..")[0] == 2
    with pytest.raises(TypeError, match="the time in ms"):
        kstore.LogStore(tmp_path / "new", mode="a", clock=lambda: "x")  # type: ignore[arg-type,return-value]
    assert not list(tmp_path.iterdir())


def test_room_that_was_set_aside_is_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside who writes with preallocate, and after it was killed."""
    path = str(tmp_path / "t-0")
    log = kstore.open(path, "a", preallocate=True, internal_segment_bytes=2000)
    for step in (lambda: log.append(b"v"), log.roll, lambda: log.append(b"v"), log.abandon):
        step()
        code, out, err = run(capsys, "stat", path, "--verify")
        assert (code, err) == (0, "")
        assert "nothing looks wrong" in out
        assert run(capsys, "records", path, "--format", "jsonl")[2] == ""
    findings = kstore.open(path, clean=False).recovery.findings
    assert [(f.kind, f.size) for f in findings] == [("preallocated", 1931)]
    file = tmp_path / "t-0" / f"{1:020d}.log"
    with file.open("r+b") as data:
        data.seek(-1, 2)
        data.write(b"x")
    assert run(capsys, "stat", path, "--verify")[0] == 1


def test_two_hyphens_are_a_value(odd: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--key=--, of which argparse made an empty list."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"of hyphens", b"--")
    code, out, _ = run(capsys, "get", str(tmp_path / "t-0"), "--key=--")
    assert (code, "of hyphens" in out) == (0, True)
    for words in (["records", odd, "--start=--"], ["truncate", odd, "--to=--"]):
        with pytest.raises(SystemExit, match="2"):
            run(capsys, *words)
        assert "'--' is not an offset" in capsys.readouterr().err


def test_records_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A checksum that is right, and a record that says it has a header, and has none: `stat --verify` names it, and `records`
    gives those before it, as the API does."""
    path = tmp_path / "t-0"
    rows = [(1711530458631, None, b"%d" % i, None) for i in range(4)]
    batch = bytearray(kstore.encode_batch(rows, base_offset=1))
    batch[-1] = 2
    with kstore.open(path, "a") as log:
        log.append(b"first")
        log.append_batches(resealed(bytes(batch)), keep_offsets=True)
        log.append(b"last")
    code, out, _ = run(capsys, "stat", str(path), "--verify")
    assert (code, out.count("length in a record")) == (1, 1)
    assert run(capsys, "stat", str(path))[0] == 0
    code, out, err = run(capsys, "records", str(path), "--on-error", "skip", "--format", "jsonl")
    records = kstore.open(path).records(on_error="skip")
    assert (
        [json.loads(line)["offset"] for line in out.splitlines()]
        == [r.offset for r in records]
        == [0, 1, 2, 3, 5]
    )
    assert (code, err.count("left out records")) == (0, 1)
    assert run(capsys, "records", str(path))[0] == 1


@pytest.mark.parametrize("how", ["cut", "misnamed"])
@pytest.mark.parametrize("form", ["text", "arrow"])
def test_what_lies_behind_the_last_batch_is_said(
    tmp_path: Path, how: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.append(b"one")
        log.roll()
        log.extend([b"two"] * 2)
        log.append(b"three")
    file = path / f"{1:020d}.log"
    if how == "cut":
        os.truncate(file, file.stat().st_size - 1)
    else:
        file.rename(path / f"{60:020d}.log")
    for words in ([], ["--on-error", "skip"]):
        output = ["--output", str(tmp_path / "out"), "--format", form]
        code, _, err = run(capsys, "records", str(path), "--as-is", *words, *output)
        assert code == 0
        assert "kstore: left out: " in err
        assert ("follow the last whole batch" in err) == (how == "cut")
