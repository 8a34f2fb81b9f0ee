"""kstore records, find and follow: forms, ranges, columns, and the file of --output."""

import csv
import gzip
import io
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import kstore
from kstore.__main__ import main
from tests.helpers.files import flip
from tests.helpers.processes import environment
from tests.hostile.material import resealed
from tests.tools.conftest import ODD, Run, T
from tests.unit.logs import offsets

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
TXN = GOLDEN / "transactions" / "txn-0"


# ---- find ----------------------------------------------------------------------------------------


def test_find(run: Run) -> None:
    at = "offset 7, timestamp 1704750160082 (2024-01-08T21:42:40.082Z), leader epoch 0, "
    assert run("find", TXN, "--offset", "7") == (0, f"{at}in {TXN}/{'0' * 20}.log at byte 609\n", "")
    for words, offset in (
        (["--timestamp", "2024-01-08"], 0),
        (["--latest"], 294),
        (["--max-timestamp"], 293),
    ):
        code, out, _ = run("find", TXN, *words, "--json")
        assert (code, json.loads(out)["offset"]) == (0, offset)
    assert run("find", TXN, "--timestamp", "2030-01-01")[:2] == (1, "no such record\n")


# ---- ranges and forms ----------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["headers", "magic1"])
def test_json_lines_in_full(run: Run, scenario: str) -> None:
    partition = next(p for p in (GOLDEN / scenario).iterdir() if p.is_dir() and p.name != "expected")
    packed = (GOLDEN / scenario / "expected" / "records.jsonl.gz").read_bytes()
    form = ["--format", "jsonl", "--base64", "--control", "--below-start"]
    code, out, _ = run("records", partition, *form)
    *expected, _ = map(json.loads, gzip.decompress(packed).splitlines())
    assert (code, [json.loads(line) for line in out.splitlines()]) == (0, expected)


def test_records_in_a_range(run: Run) -> None:
    out = run("records", TXN, "--format", "csv", "--start", "10", "--stop", "13")[1]
    assert [line.partition(",")[0] for line in out.splitlines()] == ["offset", "10", "11", "12"]
    times = ["--since", "1704750160013", "--until", "1704750160044"]
    out = run("records", TXN, "--format", "jsonl", *times)[1]
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [1, 2]
    assert 0 < len(run("records", TXN, "--isolation", "read_committed")[1].splitlines()) < 294


def test_offsets_that_no_record_has(odd: Path, run: Run) -> None:
    for offset in ("12", "9223372036854775807"):
        err = f"kstore: --offset {offset} is beyond the log, which holds 0 to 11 (exclusive)\n"
        assert run("records", odd, "--offset", offset) == (0, "", err)
    (odd.parent / "meta.properties").touch()
    words = ["--topic", odd.name.rpartition("-")[0], "--partition", "5"]
    assert run("records", odd.parent, *words)[2].endswith(f" with {' '.join(words)}\n")


def test_an_empty_range_is_reported(odd: Path, run: Run) -> None:
    with kstore.open(odd, "a") as log:
        log.delete_records(3)
    for words, err in (
        (["--start", "12"], "--start 12 is beyond the log, which holds 3 to 11 (exclusive)"),
        (["--start", "1"], "--start 1 is below the log start offset: records begin at 3"),
        (["--stop", "3"], "no offset is before --stop 3: the log begins at 3"),
        (["--start", "5", "--stop", "5"], "--stop 5 is not after --start 5, so no offset is between them"),
        (
            ["--since", "10", "--until", "10"],
            "no time is between --since and --until: --since must be earlier",
        ),
        (["--start", "11"], ""),
        (["--start", "3"], ""),
    ):
        assert run("records", odd, *words)[::2] == (0, f"kstore: {err}\n" if err else "")
    wrong = ["--since", "11", "--until", "10"]
    assert run("records", odd, *wrong)[::2] == (
        2,
        "kstore: no time is between --since and --until: --since must be earlier\n",
    )


def test_redaction(run: Run) -> None:
    assert run("records", TXN, "--redact", "--raw", "--offset", "3")[:2] == (2, "")
    for form in ("jsonl", "csv", "text"):
        out = run("records", TXN, "--format", form, "--redact", "--stop", "5")[1]
        assert "key-3" not in out
        assert "a2V5LTM=" not in out
        assert len(out.splitlines()) >= 5


def test_text_has_a_line_a_record(odd: Path, run: Run) -> None:
    out = run("records", odd)[1]
    assert len(out.splitlines()) == len(ODD)
    assert "\\x1b[2J" in out
    assert "a\\nb\\tc" in out


FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\n=1", "'=1", "''@x", "\uff1d1", "+", "-"]
NO_FORMULAS = ["-5", "+5", "-1.5e-3", ".5", "-.5", "'", "'a", "a=1", "", "1-1"]


def test_cells_of_csv_are_no_formulas(tmp_path: Path, odd: Path, run: Run) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([cell.encode() for cell in FORMULAS + NO_FORMULAS])

    def cells(path: Path, column: int, *words: str) -> list[str]:
        out = run("records", path, "--format", "csv", *words)[1]
        return [row[column] for row in csv.reader(io.StringIO(out, newline=""))][1:]

    assert cells(tmp_path / "t-0", 3, "--raw") == FORMULAS + NO_FORMULAS
    guarded = cells(tmp_path / "t-0", 3)
    assert guarded == ["'" + cell for cell in FORMULAS] + NO_FORMULAS
    back = [re.sub("^'(?='*[=+@\t\n\r\uff1d-])", "", cell) for cell in guarded]
    assert back == FORMULAS + NO_FORMULAS
    headers = cells(odd, 4, "--stop", "1")
    assert json.loads(headers[0]) == [["h", "text"], ["h", "twice"]]  # headers of one name are all there


def test_seconds_are_warned_of(partition: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    for words in (
        ["records", "--since"],
        ["records", "--until"],
        ["records", "--format", "jsonl", "--since"],
        ["records", "--format", "arrow", "--since"],
        ["find", "--timestamp"],
    ):
        main([words[0], str(partition), *words[1:], str(T // 1000)])
        warning = b"if seconds were meant, multiply by 1000: 1700000000000"
        assert capsysbinary.readouterr().err.count(warning) == 1
        main([words[0], str(partition), *words[1:], str(T)])
        assert b"seconds" not in capsysbinary.readouterr().err


# ---- damage --------------------------------------------------------------------------------------


def test_records_that_cannot_be_read(tmp_path: Path, run: Run) -> None:
    """A record under a right checksum lacks the header that it counts: those before it are given."""
    path = tmp_path / "t-0"
    sound = kstore.encode_batch([(T, None, b"%d" % i, None) for i in range(4)], base_offset=1)
    broken = resealed(sound[:-1] + b"\2")
    with kstore.open(path, "a") as log:
        log.append(b"first")
        with pytest.raises(kstore.InvalidRecordError, match="length in a record"):
            log.append_batches(broken, keep_offsets=True)
        log.append_batches(sound, keep_offsets=True)
        log.append(b"last")
    file = path / f"{0:020d}.log"
    file.write_bytes(file.read_bytes().replace(sound, broken))
    code, out, _ = run("check", path)
    assert (code, out.count("length in a record")) == (1, 1)
    code, out, err = run("records", path, "--on-error", "skip", "--format", "jsonl")
    found = [json.loads(line)["offset"] for line in out.splitlines()]
    assert found == offsets(kstore.open(path).records(on_error="skip")) == [0, 1, 2, 3, 5]
    assert (code, err.count("left out records")) == (0, 1)
    assert run("records", path)[0] == 1


def test_the_hint_reads_on_after_a_damaged_header(tmp_path: Path, run: Run) -> None:
    """Recovery would end the log there; the hint of the error shows the records after it."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        for _ in range(5):
            log.append(b"v")
        at = log.segments[0].translate(2).position
    with (path / f"{0:020d}.log").open("r+b") as file:
        file.seek(at + 16)  # the magic
        file.write(b"\xff")
    assert "kstore records --as-is --on-error skip" in run("records", path)[2]
    code, out, _ = run("records", path, "--as-is", "--on-error", "skip", "--format", "jsonl")
    assert (code, [json.loads(line)["offset"] for line in out.splitlines()]) == (0, [0, 1, 3, 4])


@pytest.mark.parametrize("how", ["cut", "misnamed"])
def test_what_follows_the_last_batch_is_reported(tmp_path: Path, how: str, run: Run) -> None:
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
    for form in ("text", "arrow"):
        for words in ([], ["--on-error", "skip"]):
            output = ["--output", tmp_path / "out", "--format", form]
            code, _, err = run("records", path, "--as-is", *words, *output)
            assert (code, "kstore: left out: " in err) == (0, True)
            assert ("follow the last whole batch" in err) == (how == "cut")


# ---- columns -------------------------------------------------------------------------------------


def rows(isolation: str = "read_uncommitted") -> list[tuple[int, bytes | None]]:
    # type: ignore[arg-type]
    return [(r.offset, r.value) for r in kstore.open(TXN).records(isolation=isolation)]


def test_columns_to_a_file(tmp_path: Path, run: Run) -> None:
    read = {
        "parquet": pyarrow.parquet.read_table,
        "arrow": lambda path: pyarrow.ipc.open_stream(path).read_all(),
    }
    for form in ("arrow", "parquet"):
        out = tmp_path / f"records.{form}"
        assert run("records", TXN, "--format", form, "--output", out, "--columns", "offset,value")[0] == 0
        table = read[form](out).to_pydict()
        assert list(zip(table["offset"], table["value"], strict=True)) == rows()
    for wrong in (["--redact"], ["--control"], ["--columns", "nothing"]):
        code, _, err = run("records", TXN, "--format", "arrow", "--output", "/dev/null", *wrong)
        assert (code, err.startswith("kstore: ")) == (2, True)


def test_columns_to_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["records", str(TXN), "--isolation", "read_committed", "--format", "arrow"]) == 0
    sys.stdout.flush()
    table = pyarrow.ipc.open_stream(io.BytesIO(capfdbinary.readouterr().out)).read_all().to_pydict()
    assert list(zip(table["offset"], table["value"], strict=True)) == rows("read_committed")


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SystemExit, match="pip install pyarrow"):
        main(["records", str(TXN), "--format", "parquet", "--output", "/dev/null"])


# ---- the file of --output ------------------------------------------------------------------------


def test_the_output_goes_into_the_file(odd: Path, tmp_path: Path, run: Run) -> None:
    for form in ("jsonl", "csv", "text"):
        expected = run("records", odd, "--format", form)[1]
        assert run("records", odd, "--format", form, "--output", tmp_path / "f") == (0, "", "")
        assert (tmp_path / "f").read_bytes() == expected.encode()


def test_the_name_of_the_file_names_the_format(tmp_path: Path, partition: Path, run: Run) -> None:
    for name, begins in (("x.csv", "offset,"), ("x.jsonl", '{"offset"'), ("x.txt", "0\t"), ("x", "0\t")):
        assert run("records", partition, "--output", tmp_path / name)[0] == 0
        assert (tmp_path / name).read_text().startswith(begins)
    run("records", partition, "--output", tmp_path / "x.csv", "--format", "text")
    assert (tmp_path / "x.csv").read_text().startswith("0\t")
    for name in ("x.json", "x.csv.gz", "x.xlsx", "x.feather"):
        code, _, err = run("records", partition, "--output", tmp_path / name)
        assert (code, "--format" in err, (tmp_path / name).exists()) == (2, True, False)
        assert run("records", partition, "--format", "text", "--output", tmp_path / name)[0] == 0
        assert (tmp_path / name).read_text().endswith("\tvalue\n")


def test_the_file_is_left_alone_after_an_error(partition: Path, tmp_path: Path, run: Run) -> None:
    flip(partition / f"{0:020d}.log", -2)
    out = tmp_path / "out"
    for form in ("jsonl", "csv", "arrow", "parquet"):
        out.write_bytes(b"of yesterday")
        assert run("records", partition, "--format", form, "--output", out)[0] == 1
        assert out.read_bytes() == b"of yesterday"
        assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "t-0"]
        out.unlink()
        assert run("records", partition, "--format", form, "--output", out)[0] == 1
        assert not out.exists()


def test_files_that_are_refused(partition: Path, tmp_path: Path, run: Run) -> None:
    log = partition / f"{0:020d}.log"
    before = log.read_bytes()
    (tmp_path / "link").symlink_to(log)
    (tmp_path / "other").symlink_to(partition)
    for target in (log, partition / "new", tmp_path / "link", tmp_path / "other" / "new"):
        for form in ("text", "parquet"):
            code, out, err = run("records", partition, "--format", form, "--output", target)
            assert (code, out, "inside a partition directory" in err) == (2, "", True)
    for name in ("meta.properties", "recovery-point-offset-checkpoint"):
        code, _, err = run("records", partition, "--output", tmp_path / name)
        assert (code, "a log directory needs" in err, (tmp_path / name).exists()) == (2, True, False)
    assert "no directory" in run("records", partition, "--output", tmp_path / "gone" / "f")[2]
    assert "name a file" in run("records", partition, "--output", tmp_path)[2]
    assert log.read_bytes() == before
    assert not (partition / "new").exists()


def test_links_and_permissions_stay(partition: Path, tmp_path: Path, run: Run) -> None:
    old, link, new = (tmp_path / name for name in ("old", "link", "new"))
    old.write_text("x")
    old.chmod(0o640)
    link.symlink_to(old)
    assert run("records", partition, "--output", link)[0] == 0
    assert link.is_symlink()
    assert old.read_text().count("value") == 3
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert run("records", partition, "--output", new)[0] == 0
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(new.stat().st_mode) == 0o666 & ~umask


def test_the_file_may_be_a_device_or_a_pipe(partition: Path, run: Run) -> None:
    assert run("records", partition, "--output", os.devnull) == (0, "", "")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    command = [sys.executable, "-P", "-m", "kstore", "records", str(partition), "--output", "/dev/stdout"]
    done = subprocess.run(command, env=environment(), capture_output=True, check=True)
    assert done.stdout.count(b"value") == 3
