"""The dump as Kafka's own tool (4.3.1) gave it, under many options and of files made for it; and the dump for
programs.

recorded/cases.py has the cases, recorded/record.py says how they were recorded. Where Kafka's tool died
with an
exception, kstore prints as much on stdout, then a line of its own on stderr, and ends with 1. It also ends
with 1, where
Kafka's tool ends with 0, after an unknown or damaged file; a wrong checksum has a line of its own on stderr.
"""

import gzip
import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.record.batch import crc32c
from tests.helpers.effort import SEED, some
from tests.helpers.files import flip
from tests.tools.conftest import Run, T
from tests.tools.recorded.cases import Case, cases

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
TXN = GOLDEN / "transactions" / "txn-0"
RECORDED = Path(__file__).parent / "recorded" / "dumps.jsonl.gz"
BAD = (
    "Ignoring unknown file",
    "Snapshot ",
    "Mismatches in",
    "Found timestamp mismatch",
    "Found out of order",
    "The following indexed offsets are not found",
)


def recorded() -> list[tuple[Case, dict[str, Any]]]:
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        return list(zip(cases(), map(json.loads, lines), strict=True))


def test_as_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    endings: Counter[str] = Counter()
    for number, (case, kafka) in enumerate(some(recorded(), 120, "dump")):
        assert case.args == kafka["args"]
        directory = tmp_path / str(number) if case.files else GOLDEN
        for name, data in case.files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(data)
        monkeypatch.chdir(directory)
        code, out, err = run("dump", *case.args)
        where = f"SEED={SEED}: {case.args}"
        assert out == kafka["out"], where
        lines = err.replace(str(directory), "{cwd}").splitlines()
        damaged = False
        if kafka["died"] is not None:
            assert lines.pop().startswith("kstore: "), where
        while lines and lines[-1].endswith(f"wrong checksum: {out.count('isvalid: false')}"):
            assert lines.pop().startswith("kstore: "), where
            damaged = True
        bad = damaged or any(line.startswith(BAD) for line in lines)
        assert code == (kafka["code"] or int(bad)), where
        assert lines == kafka["err"].splitlines(), where
        endings["died" if kafka["died"] else "bad" if bad else "done"] += 1
    assert min(endings["died"], endings["bad"], endings["done"]) > 0


def test_for_programs(run: Run) -> None:
    files = [f"{TXN}/{'0' * 20}{kind}" for kind in (".index", ".timeindex", ".txnindex")]
    lines = [json.loads(line) for line in run("dump", "--json", "--files", ",".join(files))[1].splitlines()]
    assert {"offset", "position"} < lines[0].keys()
    assert lines[-1]["lastStableOffset"] == 4
    out = run("dump", "--json", "--deep-iteration", f"{TXN}/{'0' * 20}.log")[1]
    assert json.loads(out.splitlines()[0])["batch"]["pid"] == 2000


def test_for_programs_has_what_a_decoder_says(tmp_path: Path, run: Run) -> None:
    def dumped(*words: object) -> Any:
        return json.loads(run("dump", "--json", *words)[1])

    with kstore.open(tmp_path / "__consumer_offsets-0", "a") as log:
        log.append(b"v", b"\0\x63")
        file = log.segments[0].path
    decoded = dumped("--offsets-decoder", file)["decoded"]
    assert decoded.keys() == {"key", "payload"}
    assert f"key: {decoded['key']}" in run("dump", "--offsets-decoder", file)[1]
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"\0\0\0\7", b"\0\0\0\0\0\0\0\5")
        file = log.segments[0].path
    decoders = ["--value-decoder-class", "IntegerDecoder", "--key-decoder-class", "LongDecoder"]
    assert dumped(*decoders, file)["decoded"] == {"key": "5", "payload": "7"}
    assert "decoded" not in dumped("--print-data-log", file)


def test_damage_is_an_exit_code(partition: Path, run: Run) -> None:
    index, log = partition / f"{0:020d}.timeindex", partition / f"{0:020d}.log"
    index.write_bytes((T + 7).to_bytes(8, "big") + (2).to_bytes(4, "big"))
    code, _, err = run("dump", index)
    assert (code, "timestamp mismatch" in err) == (1, True)
    flip(log, -2)
    for words in ([], ["--json"]):
        code, out, err = run("dump", log, *words)
        assert (code, err) == (1, f"kstore: {log}: batches with a wrong checksum: 1\n")
        assert out


def test_bytes_behind_the_last_batch_are_reported(partition: Path, run: Run) -> None:
    log = partition / f"{0:020d}.log"
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(b"abc")
    message = "Found 3 invalid bytes at the end of 00000000000000000000.log"
    assert run("dump", log)[1].endswith(f"{message}\n")
    for words in ([], ["--deep-iteration"]):
        code, out, err = run("dump", log, "--json", *words)
        assert (code, err) == (0, "")
        assert json.loads(out.splitlines()[-1]) == {"file": str(log), "position": size, "message": message}
    assert "message" not in run("dump", log, "--json", "--max-bytes", size)[1]


def test_a_compacted_log_is_no_damage(tmp_path: Path, run: Run) -> None:
    """A rebuilt index names the largest timestamp of a header whose records compaction took away."""
    log, index = tmp_path / f"{0:020d}.log", tmp_path / f"{0:020d}.timeindex"
    body = struct.pack(">hiqqqhii", 0, 4, T, T, 7, 0, 0, 0)
    log.write_bytes(struct.pack(">qiibI", 0, len(body) + 9, 0, 2, crc32c(body)) + body)
    index.with_suffix(".index").write_bytes(b"")
    index.write_bytes(struct.pack(">qi", T, 4))
    code, _, err = run("dump", index)
    assert (code, err) == (
        0,
        f"Found timestamp mismatch in :{index}\n  Index timestamp: {T}, log timestamp: -1\n",
    )


def test_files_and_decoders_that_are_not_there(tmp_path: Path, run: Run) -> None:
    gone, text = tmp_path / "nope.log", tmp_path / "README"
    text.write_text("x")
    assert run("dump", gone) == (1, f"Dumping {gone}\n", f"kstore: there is no file {gone}\n")
    assert run("dump", text) == (1, f"Dumping {text}\n", f"Ignoring unknown file {text}\n")
    assert run("dump")[0] == 2
    log = f"{TXN}/{'0' * 20}.log"
    code, out, err = run("dump", "--key-decoder-class", "com.example.Mine", log)
    assert (code, out) == (1, f"Dumping {log}\n")  # as Kafka's tool dies of it
    assert err.startswith("kstore: no decoder com.example.Mine")
