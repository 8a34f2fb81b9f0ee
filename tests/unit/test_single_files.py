"""Files that are no logs, and logs that are no longer whole, pass for no empty and no whole log."""

import gzip
import json
import lzma
import os
import struct
import warnings
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main
from tests.helpers.files import flip
from tests.helpers.forge import crc32c

NAME = f"{0:020d}.log"


def redpandas() -> bytes:
    header = struct.pack("<iqbIhiqqqhii", 61 + 20, 0, 1, 0, 0, 4, 1, 5, -1, -1, -1, 5)
    return struct.pack("<I", crc32c(header)) + header + bytes(20)


KINDS = {
    "gzip": gzip.compress(b"x" * 100),
    "xz": lzma.compress(b"x" * 100),
    "zip": b"PK\x03\x04" + bytes(100),
    "Parquet": b"PAR1" + b"\x15\x04" * 50 + b"PAR1",
    "text": b"2026-11-28 INFO hello\n" * 200,
    "text ": "<p>ü</p>".encode() * 2000,  # cut inside a character
    "zeros": bytes(5000),
    "Redpanda": redpandas(),
    "unknown": b"\x01" + os.urandom(5000),
}


@pytest.fixture
def log_bytes(tmp_path: Path) -> bytes:
    with kstore.open(tmp_path / "good-0", "a") as log:
        for i in range(10):
            log.append(b"value %d" % i)
    return (tmp_path / "good-0" / NAME).read_bytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [NAME, NAME + ".gz"])
def test_a_file_without_a_batch_is_an_error_that_names_what_it_is(
    tmp_path: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(KINDS[kind])
    for recover in (True, False):
        with pytest.raises(kstore.CorruptFileError, match=kind.strip()):
            kstore.open(tmp_path / name, recover=recover)
    for command in ("records", "stat"):
        assert main([command, str(tmp_path / name)]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert kind.strip() in err


def test_an_empty_file_is_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"")
    assert list(kstore.open(tmp_path / NAME)) == []


def test_a_file_of_another_name_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "orders.parquet").write_bytes(KINDS["Parquet"])
    with pytest.raises(kstore.LogNotFoundError, match="it is a Parquet file"):
        kstore.open(tmp_path / "orders.parquet")


@pytest.mark.parametrize("how", ["cut", "followed"])
def test_a_torn_end_is_a_finding_and_a_warning(
    tmp_path: Path, log_bytes: bytes, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / NAME
    file.write_bytes({"cut": log_bytes[:-5], "followed": log_bytes + b"abc"}[how])
    count = 10 if how == "followed" else 9
    (tmp_path / "out").mkdir()
    log = kstore.open(file)
    assert [(f.kind, f.code) for f in log.recovery.findings] == [("torn_tail", "file_tail")]
    assert not log.recovery.clean
    with pytest.warns(kstore.DataLossWarning, match="follow the last sound batch"):
        assert len(list(log)) == count
    for words in ([], ["--as-is"], ["--format", "arrow", "--output", str(tmp_path / "out" / "x.arrow")]):
        assert main(["records", str(file), *words]) == 1
        out, err = capsys.readouterr()
        assert len(out.splitlines()) == (0 if "arrow" in words else count)
        assert err.count("follow the last sound batch") == 1
    assert main(["check", str(file), "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [finding["code"] for finding in findings] == ["torn_tail"]


def test_a_damaged_last_batch_is_a_finding_and_an_error(tmp_path: Path, log_bytes: bytes) -> None:
    (tmp_path / NAME).write_bytes(log_bytes)
    flip(tmp_path / NAME, -2)
    log = kstore.open(tmp_path / NAME)
    assert [f.code for f in log.recovery.findings] == ["file_tail"]
    with pytest.warns(kstore.DataLossWarning), pytest.raises(kstore.CorruptRecordError, match="checksum"):
        list(log)


def test_room_behind_the_end_is_no_damage(tmp_path: Path, log_bytes: bytes) -> None:
    (tmp_path / NAME).write_bytes(log_bytes + bytes(5000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log = kstore.open(tmp_path / NAME)
        assert len(list(log)) == 10
    assert [f.kind for f in log.recovery.findings] == ["preallocated"]


def test_a_file_beside_its_writer_is_not_torn(tmp_path: Path, log_bytes: bytes) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"x")
        with (tmp_path / "t-0" / NAME).open("ab") as file:
            file.write(b"the beginning of a batch")
        assert kstore.open(tmp_path / "t-0" / NAME).recovery.findings == []


def test_a_directory_of_packed_segments_is_a_finding(
    tmp_path: Path, log_bytes: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t-0"
    path.mkdir()
    for i in range(2):
        (path / f"{i:020d}.log.gz").write_bytes(gzip.compress(log_bytes))
    assert [(f.code, "gzip" in f.text) for f in kstore.open(path).recovery.findings] == [
        ("not_read", True)
    ] * 2
    assert main(["records", str(path)]) == 1
    assert "not as a clean shutdown leaves it" in capsys.readouterr().err
    assert main(["check", str(path)]) == 1
    assert "compressed with gzip" in capsys.readouterr().out
    (path / NAME).write_bytes(log_bytes)  # a copy beside is nothing wrong
    assert "not_read" not in [f.code for f in kstore.open(path).recovery.findings]
