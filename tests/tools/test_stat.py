"""kstore stat: every damage once, no segment hidden, and nothing wrong where nothing is."""

import json
import re
import struct
import time
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.files import flip
from tests.helpers.markers import transactional
from tests.hostile.material import resealed
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
    found = report(run, GOLDEN / "transactions" / "txn-0", "--verify")
    assert [s["base_offset"] for s in found["segments"]] == [0, 54, 118, 172, 235]
    assert sum(s["records"] for s in found["segments"]) == 294
    assert found["wrong"] == []
    assert "163 bytes would be cut off" in run("stat", GOLDEN / "crash_torn_tail" / "crash-0")[1]
    assert run("stat", GOLDEN / "broker" / "data")[1].count("closed cleanly") >= 10


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
def test_one_damage_is_reported_once(tmp_path: Path, segment: int, byte: int, what: str, run: Run) -> None:
    flip(four_segments(tmp_path / "t-0")[segment], byte, 0x41)
    found = report(run, tmp_path / "t-0", "--verify")
    assert [(s["base_offset"], s["bytes"]) for s in found["segments"]] == [(5 * n, 565) for n in range(4)]
    (wrong,) = (text for text in found["wrong"] if not text.startswith(("index rebuilt", "checkpoint")))
    assert what in wrong.replace("at byte 0: ", "")
    code, out, err = run("stat", tmp_path / "t-0", "--verify")
    assert sum(line.lstrip().startswith(("0 ", "5 ", "10 ", "15 ")) for line in out.splitlines()) == 4
    assert code == 1
    assert re.search(r"kstore: .*t-0: \d things? looks? wrong\n", err)
    assert "kstore stat" not in err  # the hint of errors elsewhere


def test_every_wrong_checksum_is_reported(tmp_path: Path, run: Run) -> None:
    file = four_segments(tmp_path / "t-0")[1]
    for byte in (80, 3 * 113 + 80):
        flip(file, byte)
    wrong = report(run, tmp_path / "t-0", "--verify")["wrong"]
    assert [re.findall(r"at byte (\d+): checksum", text) for text in wrong] == [["17"], [str(3 * 113 + 17)]]


def test_checksums_are_checked_if_asked(partition: Path, run: Run) -> None:
    assert report(run, partition)["checksums_checked"] is False
    assert "checksums not checked" in run("stat", partition)[1]
    assert run("stat", partition, "--verify")[1].endswith("nothing looks wrong\n")
    flip(partition / f"{0:020d}.log", -2)
    assert run("stat", partition)[::2] == (0, "")
    with kstore.open(partition.parent / "sound-0", "a") as log:
        log.append(b"v", timestamp=T)
    for words in ([partition], [partition, "--json"], [partition.parent]):
        code, out, err = run("stat", *words, "--verify")
        assert (code, err) == (1, f"kstore: {partition}: 1 thing looks wrong\n")
        assert "checksum" in out


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


# ---- nothing is wrong ----------------------------------------------------------------------------


def test_beside_a_writer(tmp_path: Path, run: Run) -> None:
    options: Any = {"internal_segment_bytes": 200, "retention_bytes": 200, "retention_ms": -1}
    with kstore.open(tmp_path / "t-0", "a", **options) as log:
        log.append(b"x")
        log.roll()
        assert "nothing looks wrong" in run("stat", tmp_path / "t-0")[1]
        for i in range(5):
            log.append(b"x" * 50, timestamp=T + i)
        log.retain()
        found = report(run, tmp_path / "t-0", "--verify")
        assert (found["wrong"], bool(found["leftovers"])) == ([], True)
        assert "files wait for their deletion" in run("stat", tmp_path / "t-0")[1]


def test_room_that_was_set_aside(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "t-0"
    log = kstore.open(path, "a", preallocate=True, internal_segment_bytes=2000)
    for step in (lambda: log.append(b"v"), log.roll, lambda: log.append(b"v"), log.abandon):
        step()
        code, out, err = run("stat", path, "--verify")
        assert (code, err, "nothing looks wrong" in out) == (0, "", True)
        assert run("records", path, "--format", "jsonl")[2] == ""
    findings = kstore.open(path, clean=False).recovery.findings
    assert [(f.kind, f.size) for f in findings] == [("preallocated", 1931)]
    flip(path / f"{1:020d}.log", -1)
    assert run("stat", path, "--verify")[0] == 1


def test_a_header_whose_largest_timestamp_is_too_small(tmp_path: Path, run: Run) -> None:
    """Lookups by time trust it, and miss the later records."""
    path = tmp_path / "t-0"
    sound = kstore.encode_batch([(T, None, b"v", None), (T + 2, None, b"w", None)], base_offset=1)
    with kstore.open(path, "a") as log:
        log.append(b"first", timestamp=T)
        log.append_batches(sound, keep_offsets=True)
    file = path / f"{0:020d}.log"
    file.write_bytes(
        file.read_bytes().replace(sound, resealed(sound[:35] + struct.pack(">q", T + 1) + sound[43:]))
    )
    wrong = report(run, path, "--verify")["wrong"]
    assert len([line for line in wrong if re.search("batch at offset 1: .*later", line)]) == 1


def test_what_a_recovery_has_cut_off_is_reported(tmp_path: Path, run: Run) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 3)
    (file,) = (tmp_path / "t-0").glob("*.log")
    flip(file, -2)
    with pytest.warns(kstore.DataLossWarning):
        kstore.open(tmp_path / "t-0", "a", clean=False, recovery_point=0).close()
    (cut,) = (tmp_path / "t-0").glob("*.cut")
    assert [text for text in report(run, tmp_path / "t-0")["wrong"] if text.startswith(f"{cut}: ")]
    code, out, _ = run("stat", tmp_path)
    assert (code, "nothing looks wrong" in out) == (1, False)
    cut.unlink()
    assert run("stat", tmp_path)[0] == 0


@pytest.mark.parametrize("policy", ["delete", None])
def test_offsets_between_segments_of_a_log_with_gaps_inside(
    tmp_path: Path, policy: str | None, run: Run
) -> None:
    """As a restore leaves them. Only the options tell such a log from a compacted one."""
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=600, cleanup_policy=policy) as log:
        log.extend([b"%03d" % i * 15 for i in range(20)], batch_bytes=0)
        batches = list(log.batches())
        with kstore.open(tmp_path / "u-0", "a", internal_segment_bytes=600, cleanup_policy=policy) as copy:
            for batch in batches[:2] + batches[3:6] + batches[8:]:
                copy.append_batches(batch.data, keep_offsets=True)
    stat = report(run, tmp_path / "u-0")
    assert any(segment["has_gaps"] for segment in stat["segments"])
    assert bool([text for text in stat["wrong"] if "are in no segment" in text]) == (policy == "delete")


def test_damaged_options_of_a_log(partition: Path, run: Run) -> None:
    options = partition / "kstore.json"
    options.write_bytes(b"damage")
    with pytest.raises(kstore.CorruptCheckpointError):
        kstore.open(partition, "a")
    code, out, _ = run("stat", partition)
    assert code == 1
    assert f"{options}: " in out
