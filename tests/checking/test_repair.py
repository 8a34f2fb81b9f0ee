"""A repair loses nothing readable, leaves a log without problems, and does nothing a second time."""

import json
import random
import shutil
import warnings
from pathlib import Path

import pytest

import kstore
from tests.checking import damage
from tests.checking.sound import KINDS, write_partition, write_store
from tests.golden.scenarios import Scenario, scenarios
from tests.helpers.effort import SEED, times
from tests.helpers.processes import run_command

# what stays after a repair: what was moved, and what is gone
LEFT = {"cut_off", "hanging_transaction", "offsets_missing", "file_shortened", "offset_gap", "segment_empty"}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", kstore.DataLossWarning)


def readable(path: Path) -> list[tuple[object, ...]]:
    """The records that a reader gets when it skips damage. Those that an interrupted compaction replaces do not
    count."""
    with kstore.open(path, recover=any(path.glob("*.swap"))) as log:
        records = log.from_file_start().records(on_error="skip")
        return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]


def contents(path: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file() and p.name != ".lock"}


def check_repair(path: Path) -> kstore.RepairPlan:
    before = readable(path)
    plan = kstore.repair(path)
    assert not plan.is_done
    done = kstore.repair(path, run=True)
    assert done.steps == plan.steps
    after = readable(path)
    assert set(before) <= set(after)
    report = kstore.check(path)
    assert {finding.code for finding in report.problems()} <= LEFT, report
    files = contents(path)
    again = kstore.repair(path, run=True)
    assert again.steps == ()
    assert contents(path) == files
    return done


def test_damaged_batches_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    config = kstore.LogConfig(internal_segment_bytes=5000)
    with kstore.open(path, "a", config=config) as log:
        log.extend([b"v" * 50] * 400, batch_bytes=500)
    first = path / f"{0:020}.log"
    data = bytearray(first.read_bytes())
    data[1000] ^= 1
    first.write_bytes(data)
    done = check_repair(path)
    assert [step.action for step in done.steps] == ["move_bytes", "recover"]
    [kept] = done.kept
    [(position, size)] = done.steps[0].ranges
    assert Path(kept).read_bytes() == data[position : position + size]
    assert len(readable(path)) > 390


def test_damages(tmp_path: Path) -> None:
    """EFFORT=50 tries 1,000."""
    sound, damaged = tmp_path / "sound-0", tmp_path / "damaged-0"
    for number in range(times(20)):
        rng = random.Random(f"{SEED} {number}")
        if number % 5 == 0:
            shutil.rmtree(sound, ignore_errors=True)
            write_partition(sound, rng, KINDS[number // 5 % len(KINDS)])
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(sound, damaged)
        done = damage.do(rng, damaged, sound)
        # nothing else has the options of a partition, and where it begins
        if done is None or done.file.name in ("kstore.json", "log-start-offset-checkpoint"):
            continue
        print(f"SEED={SEED}, number {number}: {done}")
        check_repair(damaged)


CRASHED = [each for each in scenarios() if each.name.startswith(("crash_", "clean_", "swap_", "overflow"))]


@pytest.mark.parametrize("scenario", CRASHED, ids=str)
def test_golden(scenario: Scenario, tmp_path: Path) -> None:
    check_repair(scenario.unpack(tmp_path))


def test_a_store(tmp_path: Path) -> None:
    path = tmp_path / "data"
    write_store(path, random.Random(SEED))
    (path / "recovery-point-offset-checkpoint").unlink()
    (path / ".kafka_cleanshutdown").unlink()
    for file in path.rglob("*.index"):
        file.write_bytes(b"")
    assert kstore.check(path).findings
    done = kstore.repair(path, run=True)
    assert done.steps[-1].action == "recover_store"
    assert {finding.code for finding in kstore.check(path).findings} <= {"hanging_transaction"}
    assert kstore.repair(path).steps == ()


def test_a_live_writer(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    with kstore.open(path, "a") as log:
        log.append(b"v")
    next(path.glob("*.index")).write_bytes(b"\xff" * 8)
    with kstore.open(path, "a"):
        (path / "0.log.cleaned").write_bytes(b"")
        before = contents(path)
        with pytest.raises(kstore.LogLockedError):
            kstore.repair(path, run=True)
        assert contents(path) == before


def test_the_command(tmp_path: Path) -> None:
    path, plan = tmp_path / "orders-0", tmp_path / "plan.json"
    with kstore.open(path, "a") as log:
        log.extend([b"v" * 100] * 100, batch_bytes=1000)
    index = path / f"{0:020}.index"
    index.write_bytes(b"\x7f" * 8)
    shown = run_command("repair", path, "--plan", plan)
    assert "recover" in shown.stdout
    assert index.read_bytes() == b"\x7f" * 8
    assert json.loads(plan.read_text())[0]["action"] == "recover"
    assert "done: 1 step" in run_command("repair", path, "--plan", plan, "--run").stdout
    assert kstore.check(path).findings == ()
    assert "changed since" in run_command("repair", path, "--plan", plan, "--run").stderr
