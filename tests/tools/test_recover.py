"""kstore recover, truncate and retain: what they would remove, what they removed, and what they refuse."""

import json
import re
import shutil
from pathlib import Path

import pytest

import kstore
from tests.helpers.files import contents, flip
from tests.tools.conftest import Run, T
from tests.unit.logs import offsets

GOLDEN = Path(__file__).parents[1] / "golden" / "data"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A log of five segments that was not closed cleanly, one byte of the second flipped."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", internal_segment_bytes=200) as log:
        log.extend([b"v" * 20 for _ in range(10)], batch_bytes=0)
        segments = [segment.path for segment in log.segments]
    assert len(segments) == 5
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (path / name).unlink()
    flip(segments[1], 80)
    return path


# ---- recovery ------------------------------------------------------------------------------------


def test_what_recovery_would_cut_off_is_said_on_stderr(damaged: Path, run: Run) -> None:
    for words in (["records"], ["stat"], ["find", "--offset", "0"], ["follow", "--timeout", "0"]):
        code, _, err = run(words[0], damaged, *words[1:])
        assert code == 0
        assert re.fullmatch(
            r"kstore: .*t-0 ends at offset 2 here, .*: \d+ bytes in 4 files are left out, from byte 0 of "
            r".*002\.log on .*--as-is --on-error skip.*recover=False.*\n(kstore: .* look wrong\n)?",
            err,
        )
    code, out, err = run("records", damaged, "--as-is", "--on-error", "skip")
    assert (code, len(out.splitlines())) == (0, 9)
    assert err.startswith("kstore: left out ")


def test_a_lost_last_segment(tmp_path: Path, run: Run) -> None:
    shutil.copytree(GOLDEN / "broker" / "data", tmp_path / "data")
    *_, last = sorted((tmp_path / "data" / "events-0").glob("*.log"))
    last.unlink()
    code, out, err = run("records", tmp_path / "data" / "events-0")
    assert (code, len(out.splitlines()) > 0) == (0, True)
    assert re.search(r"events-0: records are lost: .* where it was closed at \d+; kstore check", err)


def test_a_dry_run_writes_nothing(damaged: Path, run: Run) -> None:
    before = contents(damaged)
    code, out, _ = run("recover", damaged, "--dry-run")
    assert code == 0
    assert "would be deleted: it comes after what was cut off" in out
    assert "kstore records --as-is, or recover=False, shows them" in out
    assert out.endswith("the log would hold offsets 0 to 2 (exclusive)\n")
    report = json.loads(run("recover", damaged, "--dry-run", "--json")[1])
    assert (report["written"], report["log_end_offset"], len(report["findings"])) == (False, 2, 4)
    cut = [re.findall(r"(\d)\.log would be cut off", loss) for loss in report["losses"]]
    assert cut == [["2"], ["4"], ["6"], ["8"]]
    assert contents(damaged) == before


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_losses_and_what_was_not_checked(damaged: Path, run: Run) -> None:
    code, out, err = run("recover", damaged)
    assert code == 0
    assert "bytes were cut off (with 1 sound batch, offsets 3 to 3; a .cut file keeps them)" in out
    assert "recover=False" not in out  # it shows them no more
    assert out.count("  lost: ") == 4
    assert "checksums" not in out
    assert "kept in 4 .cut files" in err
    assert "002.log.0.cut first" in err
    code, out, err = run("recover", damaged)
    assert (code, err) == (0, "")
    assert out.startswith("after a clean shutdown: 0 findings\n")
    assert out.endswith(f"no checksums were checked, as in Kafka: kstore check {damaged}\n")


def test_only_what_was_flushed_is_not_checked(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "t-0"
    log = kstore.open(path, "a")
    log.append(b"v")
    log.roll()
    log.append(b"v")
    log.flush()
    log.abandon()
    # a sync in the background may have stored it before flush() did
    point = kstore.open(path).recovery.recovery_point
    assert point > 0
    said = f"no checksums were checked before offset {point}, as in Kafka: kstore check {path}\n"
    assert run("recover", path)[1].endswith(said)


@pytest.mark.parametrize("tail", [b"garbage", bytes(200), b"x" * 200])
def test_a_dry_run_says_what_is_cut_off_after_a_clean_stop(partition: Path, run: Run, tail: bytes) -> None:
    """A reader passes over what follows the last batch; opening the log for writing cuts it off."""
    with (partition / f"{0:020d}.log").open("ab") as file:
        file.write(tail)
    plan = json.loads(run("recover", partition, "--dry-run", "--json")[1])
    done = json.loads(run("recover", partition, "--json")[1])
    assert (plan.pop("written"), done.pop("written")) == (False, True)
    assert plan["truncated_bytes"] == len(tail)
    for report in (plan, done):
        for finding in report["findings"]:
            finding["text"] = finding["text"].replace("would be", "were")
    assert plan == done


def test_all_batches_after_a_clean_stop(partition: Path, run: Run) -> None:
    file = partition / f"{0:020d}.log"
    flip(file, file.stat().st_size * 2 // 3 - 2)  # in the second of three batches
    for words, end in (([], 3), (["--dry-run"], 3), (["--all", "--dry-run"], 1)):
        code, out, _ = run("recover", partition, *words)
        assert (code, f"offsets 0 to {end} (exclusive)" in out) == (0, True)
    assert kstore.open(partition).log_end_offset == 3
    assert run("recover", partition, "--all")[0] == 0
    assert kstore.open(partition).log_end_offset == 1


# ---- truncation ----------------------------------------------------------------------------------


def test_truncating_inside_a_batch(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.extend([b"x"] * 100)
    assert run("truncate", path, "--to", "100")[1] == "nothing to remove: the log ends at offset 100\n"
    assert "ends at offset 100, below --to 200" in run("truncate", path, "--to", "200")[1]
    with kstore.open(path, "a"):
        would = "10 records would be removed, from offset 90 on\n"
        refused = f"kstore: {path} is open for writing now: without --dry-run this would be refused\n"
        assert run("truncate", path, "--to", "90", "--dry-run") == (0, would, refused)
    assert run("truncate", path, "--to", "90")[0] == 0
    assert len(list(kstore.open(path))) == 90


def test_truncating_takes_damage_along(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        for _ in range(4):
            log.extend([b"x"] * 10)
        position = int(log.segments[0].read_headers()["position"][2])
    flip(path / f"{0:020d}.log", position + 70, 0xFF)
    said = "20 records removed, from offset 10 on\n"
    assert run("truncate", path, "--to", "10")[:2] == (0, said)
    assert offsets(kstore.open(path)) == list(range(10))


def test_a_dry_run_refuses_what_the_real_one_refuses(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.extend([b"x"] * 100)
    file = path / f"{0:020d}.log"
    for words in (
        ["truncate", path, "--to", "0", "--config", "no.such.option=1"],
        ["truncate", file, "--to", "0"],
        ["retain", path, "--config", "retention.ms=1", "--config", "no.such.option=1"],
        ["retain", file, "--defaults"],
        ["compact", path, "--config", "cleanup.policy=delete"],
        ["compact", file],
        ["recover", file],
    ):
        refused = run(*words)
        assert refused[:2] in ((1, ""), (2, ""))
        assert run(*words, "--dry-run") == refused


# ---- retention -----------------------------------------------------------------------------------


def test_retention_needs_a_configuration(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a", retention_ms=-1) as log:
        log.append(b"kept for ever", timestamp=T)
    assert run("retain", path, "--defaults")[0] == 0  # for options that are not kept of the log
    assert len(list(kstore.open(path))) == 1
    kstore.open(path, "a", retention_ms=None).close()
    for more in ([], ["--dry-run"]):
        code, out, err = run("retain", path, *more)
        assert (code, out, "--config" in err) == (2, "", True)
    (tmp_path / "server.properties").write_text("log.retention.ms=-1\n")
    for given in (["--config", "retention.ms=-1"], ["--server-properties", tmp_path / "server.properties"]):
        assert run("retain", path, *given)[0] == 0
        assert len(list(kstore.open(path))) == 1
    assert run("retain", path, "--defaults")[0] == 0
    assert list(kstore.open(path)) == []
