"""The command line as a user meets it."""

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
TXN = str(GOLDEN / "transactions" / "txn-0")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


def test_find(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "find", TXN, "--offset", "7")[:2] == (
        0,
        (
            "offset 7, timestamp 1704750160082 (2024-01-08T21:42:40.082Z), leader epoch 0, "
            f"in {TXN}/{'0' * 20}.log at byte 609\n"
        ),
    )
    code, out, _ = run(capsys, "find", TXN, "--timestamp", "2024-01-08", "--json")
    assert (code, json.loads(out)["offset"]) == (0, 0)
    assert json.loads(run(capsys, "find", TXN, "--latest", "--json")[1])["offset"] == 294
    assert json.loads(run(capsys, "find", TXN, "--max-timestamp", "--json")[1])["offset"] == 293
    assert run(capsys, "find", TXN, "--timestamp", "2030-01-01")[:2] == (1, "no such record\n")


def test_errors_and_exit_codes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, "find", str(tmp_path / "gone-0"), "--earliest")
    assert (code, out) == (1, "")
    assert err == f"kstore: no partition directory at {tmp_path / 'gone-0'}\n"
    assert run(capsys, "find", TXN, "--offset", "100000")[0] == 1
    with pytest.raises(SystemExit) as caught:
        main(["find", TXN])
    assert caught.value.code == 2
    with pytest.raises(SystemExit) as caught:
        main(["find", TXN, "--earliest", "--fromat", "x"])
    assert caught.value.code == 2
    assert "\nkstore find: error: unrecognized arguments: --fromat x\n" in capsys.readouterr().err
    assert run(capsys, "dump")[0] == 2
    log = f"{TXN}/{'0' * 20}.log"
    code, out, err = run(capsys, "dump", "--key-decoder-class", "com.example.Mine", log)
    assert (code, out) == (1, f"Dumping {log}\n")  # as Kafka's tool dies of it
    assert err.startswith("kstore: no decoder com.example.Mine")


@pytest.mark.parametrize(
    "scenario", ["transactions", "headers", "nulls", "magic1", "codec_mixed", "compact_txn_2_cleaned"]
)
def test_records_are_those_of_the_golden_data(capsys: pytest.CaptureFixture[str], scenario: str) -> None:
    directory = GOLDEN / scenario
    partition = next(p for p in directory.iterdir() if p.is_dir() and p.name != "expected")
    packed = directory / "expected" / "records.jsonl.gz"
    code, out, _ = run(
        capsys, "records", str(partition), "--format", "jsonl", "--base64", "--control", "--below-start"
    )
    *expected, _ = map(json.loads, gzip.decompress(packed.read_bytes()).splitlines())
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == expected


def test_records_in_a_range(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "records", TXN, "--format", "csv", "--start", "10", "--stop", "13")
    assert [line.partition(",")[0] for line in out.splitlines()] == ["offset", "10", "11", "12"]
    _, out, _ = run(
        capsys, "records", TXN, "--format", "jsonl", "--since", "1704750160013", "--until", "1704750160044"
    )
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [1, 2]
    _, out, _ = run(capsys, "records", TXN, "--isolation", "read_committed")
    assert 0 < len(out.splitlines()) < 294


def test_redaction(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("jsonl", "csv", "text"):
        _, out, _ = run(capsys, "records", TXN, "--format", form, "--redact", "--stop", "5")
        assert "key-3" not in out
        assert "a2V5LTM=" not in out
        assert len(out.splitlines()) >= 5


def test_stat(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "stat", TXN, "--json", "--verify")
    stat = json.loads(out)
    assert code == 0
    assert [s["base_offset"] for s in stat["segments"]] == [0, 54, 118, 172, 235]
    assert sum(s["records"] for s in stat["segments"]) == 294
    assert stat["wrong"] == []
    _, out, _ = run(capsys, "stat", str(GOLDEN / "crash_torn_tail" / "crash-0"))
    assert "163 bytes would be cut off" in out
    _, out, _ = run(capsys, "stat", str(GOLDEN / "broker" / "data"))
    assert out.count("closed cleanly") >= 10


def test_dump_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    files = [f"{TXN}/{'0' * 20}{kind}" for kind in (".index", ".timeindex", ".txnindex")]
    _, out, _ = run(capsys, "dump", "--json", "--files", ",".join(files))
    lines = [json.loads(line) for line in out.splitlines()]
    assert {"offset", "position"} < lines[0].keys()
    assert lines[-1]["lastStableOffset"] == 4
    _, out, _ = run(capsys, "dump", "--json", "--deep-iteration", f"{TXN}/{'0' * 20}.log")
    assert json.loads(out.splitlines()[0])["batch"]["pid"] == 2000


def test_unknown_files_are_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "README"
    path.write_text("x")
    assert run(capsys, "dump", str(path)) == (1, f"Dumping {path}\n", f"Ignoring unknown file {path}\n")


def test_a_closed_pipe_ends_it_in_silence() -> None:
    command = [sys.executable, "-m", "kstore", "dump", "--deep-iteration", "--print-data-log"]
    files = sorted(map(str, Path(TXN).glob("*.log"))) * 40
    with subprocess.Popen([*command, *files], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_recover_all_after_a_clean_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for i in range(3):
            log.append(b"value %d" % i)
    file = next((tmp_path / "t-0").glob("*.log"))
    file.write_bytes(file.read_bytes().replace(b"value 1", b"valuf 1"))
    for words in ([], ["--dry-run"], ["--all", "--dry-run"]):
        assert main(["recover", str(tmp_path / "t-0"), *words]) == 0
        end = 1 if "--all" in words else 3
        assert f"offsets 0 to {end} (exclusive)" in capsys.readouterr().out
    assert kstore.open(tmp_path / "t-0").log_end_offset == 3
    assert main(["recover", str(tmp_path / "t-0"), "--all"]) == 0
    assert kstore.open(tmp_path / "t-0").log_end_offset == 1


def test_stat_names_open_transactions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = int(time.time() * 1000)
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"before")
        encoded = kstore.encode_batch(
            [(now, None, b"x", None)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
        log.append_batches(encoded)
    assert main(["stat", str(tmp_path / "t-0")]) == 0
    assert "a transaction of producer 7 is open since offset 1" in capsys.readouterr().out
    assert main(["stat", str(tmp_path / "t-0"), "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["open_transactions"]
    assert found == {"first_offset": 1, "producer_id": 7, "last_timestamp": now}
