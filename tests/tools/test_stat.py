"""kstore stat: figures, and no segment hidden."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.files import flip
from tests.helpers.markers import transactional
from tests.tools.conftest import Run, T

GOLDEN = Path(__file__).parents[1] / "golden" / "data"


def report(run: Run, path: object, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("stat", path, "--json", *words)[1])
    return found


def four_segments(path: Path) -> list[Path]:
    """A log that was closed cleanly; the .log files."""
    with kstore.open(path, "a", internal_segment_bytes=600) as log:
        log.extend([b"%03d" % i * 15 for i in range(20)], batch_bytes=0)
    return sorted(path.glob("*.log"))


def test_of_golden_data(run: Run) -> None:
    found = report(run, GOLDEN / "transactions" / "txn-0")
    assert [s["base_offset"] for s in found["segments"]] == [0, 54, 118, 172, 235]
    assert sum(s["records"] for s in found["segments"]) == 294
    assert run("stat", GOLDEN / "broker" / "data")[1].count("closed cleanly") >= 10


@pytest.mark.parametrize("byte", [3, 10, 16, 80])
def test_damage_hides_no_segment(tmp_path: Path, byte: int, run: Run) -> None:
    flip(four_segments(tmp_path / "t-0")[1], byte, 0x41)
    found = report(run, tmp_path / "t-0")
    assert [(s["base_offset"], s["bytes"]) for s in found["segments"]] == [(5 * n, 565) for n in range(4)]
    code, out, _ = run("stat", tmp_path / "t-0")
    assert sum(line.lstrip().startswith(("0 ", "5 ", "10 ", "15 ")) for line in out.splitlines()) == 4
    assert code == 0


def test_it_takes_a_file(partition: Path, run: Run) -> None:
    code, out, _ = run("stat", partition / f"{0:020d}.log")
    assert (code, ", 1 segment, 3 records, " in out) == (0, True)
    nothing = partition / "nothing"
    said = f"kstore: no partition and no log directory at {nothing}\n"
    assert run("stat", nothing)[::2] == (1, said)


def test_it_claims_no_more_than_it_knows(tmp_path: Path, run: Run) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 3, timestamps=[T + 55, T + 20, T + 230])
    [segment] = report(run, tmp_path / "t-0")["segments"]
    assert "min_timestamp" not in segment
    assert (segment["first_timestamp"], segment["max_timestamp"]) == (T + 55, T + 230)


def test_open_transactions_are_named(tmp_path: Path, run: Run) -> None:
    now = int(time.time() * 1000)
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"before")
        log.append_batches(transactional((now, None, b"x", None)))
    assert "a transaction of producer 7 is open since offset 1" in run("stat", tmp_path / "t-0")[1]
    [found] = report(run, tmp_path / "t-0")["open_transactions"]
    assert found == {"first_offset": 1, "producer_id": 7, "last_timestamp": now}


def test_beside_a_writer(tmp_path: Path, run: Run) -> None:
    options: Any = {"internal_segment_bytes": 200, "retention_bytes": 200, "retention_ms": -1}
    with kstore.open(tmp_path / "t-0", "a", **options) as log:
        for i in range(5):
            log.append(b"x" * 50, timestamp=T + i)
        log.retain()
        assert report(run, tmp_path / "t-0")["leftovers"]
        assert "files wait for their deletion" in run("stat", tmp_path / "t-0")[1]
