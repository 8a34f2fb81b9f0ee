"""A repair loses nothing readable, leaves a log without problems, and does nothing a second time."""

import contextlib
import errno
import json
import os
import random
import re
import shutil
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.testing
from kstore.checking.repair import RepairStep, run_plan
from tests.checking import damage
from tests.checking.sound import KINDS, NOW, write_partition, write_store
from tests.golden.scenarios import Scenario, scenarios
from tests.helpers.calls import ends
from tests.helpers.effort import SEED, some, times
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.processes import run_command

# problems that stay after a repair
LEFT = {"checkpoint_kept", "hanging_transaction", "epochs_begin_later"}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", kstore.DataLossWarning)


def readable(path: Path) -> list[tuple[object, ...]]:
    """The records that a reader gets when it skips damage. Those that an interrupted compaction replaces do
    not count."""
    with kstore.open(path, recover=any(path.glob("*.swap"))) as log:
        records = log.from_file_start().records(on_error="skip")
        return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]


def contents(path: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file() and p.name != ".lock"}


@pytest.mark.parametrize("damaged", [0, 4, 8])
def test_a_wrong_length_hides_no_sound_batch(tmp_path: Path, damaged: int) -> None:
    """Each bit of the length of a batch; and its checksum, where its value holds batches that would fit."""
    path = tmp_path / "t-0"
    inner = b"".join(kstore.encode_batch([(1, None, b"inner", ())], base_offset=n) for n in range(9))
    file = path / "00000000000000000000.log"
    for value, field, bits in ((b"%0100d" % 0, 8, range(32)), (inner, 17, range(1))):
        values = [value if n == damaged else b"%0100d" % n for n in range(9)]
        with kstore.open(path, "a") as log:
            for each in values:
                log.append(each)
        with kstore.open(path) as log:
            at = [batch.position for batch in log.batches()][damaged] + field
        sound = file.read_bytes()
        (number,) = struct.unpack_from(">I", sound, at)
        expected = [(n, each) for n, each in enumerate(values) if n != damaged]
        repaired = some(bits, 4, damaged)
        for bit in bits:
            file.write_bytes(sound[:at] + struct.pack(">I", number ^ 1 << bit) + sound[at + 4 :])
            with kstore.open(path, recover=False) as log:
                assert [(r.offset, r.value) for r in log.records(on_error="skip")] == expected, bit
            if bit in repaired:
                copy = tmp_path / f"repaired-{field}-{bit}"
                shutil.copytree(path, copy)
                kstore.repair(copy, run=True)
                with kstore.open(copy) as log:
                    assert [(r.offset, r.value) for r in log] == expected, bit
        shutil.rmtree(path)


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
    assert [step.action for step in done.steps] == ["move_bytes", "note_gaps", "recover"]
    [kept] = done.kept
    [(position, size)] = done.steps[0].ranges
    assert Path(kept).read_bytes() == data[position : position + size]
    assert len(readable(path)) > 390


def gaps_found(path: Path) -> list[tuple[str, tuple[int, int] | None]]:
    return [(each.code, each.offsets) for each in kstore.check(path).findings if each.offsets is not None]


def test_a_gap_that_a_repair_has_left(tmp_path: Path) -> None:
    """It is a note from then on; what is lost later, or lost again, is none."""
    path = tmp_path / "orders-0"
    batches = [[b"v" * 50] * 10] * 9
    with kstore.open(path, "a") as log:
        for values in batches:
            log.extend(values)
        at = [batch.position for batch in log.batches()]
    file = path / f"{0:020}.log"
    _change(file, at[3] + 70)
    check_repair(path)
    assert kstore.check(path).is_whole
    assert gaps_found(path) == [("gap_noted", (30, 39))]
    _change(file, at[3] + 70)  # the batch that followed
    assert ("corrupt_batch", (30, 49)) in gaps_found(path)
    check_repair(path)
    assert gaps_found(path) == [("gap_noted", (30, 49))]
    with kstore.open(path, "r+") as log:
        log.truncate_to(20)
        for values in batches[:2]:
            log.extend(values)
        later = kstore.encode_batch([(1, None, b"v", None)], base_offset=50)
        log.append_batches(later, keep_offsets=True)
    assert gaps_found(path) == [("offset_gap", (40, 49))]  # which the log has had again, for all one knows


@pytest.mark.parametrize("whole", [False, True])
def test_a_lost_segment(tmp_path: Path, whole: bool) -> None:
    first, *_ = _write(tmp_path / "data" / "orders-0")
    path = first.parent
    with kstore.open(path, "a") as log:
        log.roll()
        log.extend([b"v"] * 100)
    lost = sorted(path.glob("*.log"))[1]
    content = lost.read_bytes()
    if whole:
        for file in path.glob(f"{lost.stem}.*"):
            file.unlink()
    else:
        lost.write_bytes(b"")
    assert not kstore.check(path).is_whole
    done = check_repair(path)
    assert [step.ranges for step in done.steps if step.action == "note_gaps"] == [((52, 48),)]
    assert kstore.check(path).is_whole
    assert gaps_found(path) == [("gap_noted", (52, 99))]
    lost.write_bytes(content)
    assert gaps_found(path) == []
    with kstore.open(path, "a") as log:  # which ends the note: a later loss is another one
        log.append(b"v")
    lost.unlink()
    assert [code for code, offsets in gaps_found(path) if offsets == (52, 99)] != ["gap_noted"]
    assert not kstore.check(path).is_whole


@pytest.mark.parametrize(
    ("lost", "before", "after"),
    [
        (slice(-1, None), "ends_early", "end_noted"),
        (slice(0, 1), "offsets_missing", "gap_noted"),
        (slice(0, None), "flushed_is_lost", "end_noted"),
    ],
)
def test_a_loss_stays_a_note(tmp_path: Path, lost: slice, before: str, after: str) -> None:
    path = _write(tmp_path / "orders-0")[0].parent
    with kstore.open(path, "a") as log:
        log.roll()
        log.append(b"last")
    for file in sorted(path.glob("*.log"))[lost]:
        file.unlink()
    (found,) = kstore.check(path).problems("lost")
    assert found.code == before
    check_repair(path)
    assert found.offsets is not None
    for count in (1, 150):
        with kstore.open(path, "a") as log:
            log.extend([b"later"] * count)
            is_again = after == "end_noted" and log.log_end_offset > found.offsets[1]
        noted = [] if is_again else [(after, found.offsets)]
        assert [(each.code, each.offsets) for each in kstore.check(path).findings] == noted
    # a note ends when its offsets are in the log again, or are deleted
    with kstore.open(path, "a") as log:
        log.delete_records(log.log_end_offset)
    assert not kstore.check(path).findings


@pytest.mark.parametrize(("at", "noted"), [(0, "gap_noted"), (1, "end_noted")])
def test_a_segment_of_another_log(tmp_path: Path, at: int, noted: str) -> None:
    """One finding names it, and calls none of its sound batches damaged."""
    logs, others = (_write(tmp_path / name / "orders-0") for name in ("data", "other"))
    with kstore.open(logs[0].parent) as log:
        segment = log.segments[at]
        lost = segment.base_offset, segment.read_next_offset() - 1
    other = others[1 - at]
    shutil.copy(other, segment.path)
    problems = [each for each in kstore.check(logs[0].parent).problems() if each.file == segment.path]
    (foreign,) = [each for each in problems if each.code == "foreign_segment"]
    assert "corrupt_batch" not in {each.code for each in problems}
    with kstore.open(other) as log:
        bases = [batch.base_offset for batch in log.batches()]
    assert f"the base offsets {bases[0]} to {bases[-1]}" in foreign.meaning
    check_repair(logs[0].parent)
    found = [each for each in kstore.check(logs[0].parent).findings if each.code != "kept_file"]
    assert [(each.code, each.offsets) for each in found] == [(noted, lost)]


@pytest.mark.parametrize("with_index", [False, True])
def test_a_segment_that_was_added(tmp_path: Path, with_index: bool) -> None:
    """It is the finding, and not the segment whose offsets its name is among."""
    path = _write(tmp_path / "orders-0")[0].parent
    with kstore.open(path) as log:
        first, other, *_ = log.segments
        records = readable(path)
        name = f"{(first.base_offset + other.base_offset) // 2:020}"
    for kind in ("log", "index", "timeindex") if with_index else ("log",):
        shutil.copy(path / f"{other.stem}.{kind}", path / f"{name}.{kind}")
    (found,) = kstore.check(path).findings
    assert (found.code, found.file) == ("foreign_segment", f"{path}/{name}.log")
    check_repair(path)
    assert readable(path) == records
    assert {each.code for each in kstore.check(path).findings} == {"kept_file"}


def test_a_loss_that_the_high_watermark_shows(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_store(data, random.Random(SEED))
    file = data / "replication-offset-checkpoint"
    topic, number, end = file.read_text().split("\n")[2].split()
    file.write_text(re.sub(rf"{topic} {number} {end}", f"{topic} {number} {int(end) + 5}", file.read_text()))
    lost = (f"{data}/{topic}-{number}", (int(end), int(end) + 4))
    problems = kstore.check(data).problems("lost")
    assert [(each.code, each.file, each.offsets) for each in problems] == [("committed_is_lost", *lost)]
    kstore.repair(data, run=True)
    noted = [each.offsets for each in kstore.check(data).findings if each.code == "end_noted"]
    assert noted == [lost[1]]
    assert not kstore.check(data).problems("lost")
    assert kstore.repair(data, run=True).steps == ()


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_log_start_beyond_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_relative: bool
) -> None:
    with kstore.LogStore(tmp_path / "data", mode="a") as store:
        store.create_topic("t", 1)
        store.extend("t", [b"value"] * 10)
    (tmp_path / "data/log-start-offset-checkpoint").write_text("0\n1\nt 0 500\n")
    monkeypatch.chdir(tmp_path)
    data = Path("data") if is_relative else tmp_path / "data"
    (found,) = kstore.check(data).findings
    assert (found.code, found.file) == ("log_start_beyond_end", f"{data}/t-0")
    kstore.repair(data, run=True)
    assert kstore.check(data).findings == ()
    assert kstore.repair(data, run=True).steps == ()
    assert kstore.open(data / "t-0").log_start_offset == 0


def test_lost_log_starts(tmp_path: Path) -> None:
    """The leader epochs show where a log began, and a second repair leaves them."""
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 1)
        store.extend("t", [b"value"] * 5)
        store.extend("t", [b"value"] * 5)
    with kstore.open(tmp_path / "t-0", "r+") as log:
        log.delete_records(5)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\nx\nu 0 5\n")
    kstore.repair(tmp_path, run=True)
    (found,) = [each for each in kstore.check(tmp_path).problems() if each.code != "checkpoint_kept"]
    assert (found.code, found.offsets) == ("epochs_begin_later", (0, 4))
    assert kstore.repair(tmp_path, run=True).steps == ()
    assert found in kstore.check(tmp_path).problems()


def test_a_high_watermark_that_no_log_has(tmp_path: Path) -> None:
    """No record was lost, and no note of a loss stays for ever."""
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 1)
        store.extend("t", [b"value"] * 10)
    file = tmp_path / "replication-offset-checkpoint"
    file.write_text(f"0\n1\nt 0 {2**63 - 1}\n")
    assert [each.code for each in kstore.check(tmp_path).findings] == ["checkpoint_beyond_end"]
    kstore.repair(tmp_path, run=True)
    assert kstore.check(tmp_path).findings == ()


def test_a_packed_segment(tmp_path: Path) -> None:
    """A repair would end the log before it."""
    path = _write(tmp_path / "orders-0")[0].parent
    last = max(path.glob("*.log"))
    packed = last.with_name(f"{last.name}.gz")
    packed.write_bytes(b"\x1f\x8b" + last.read_bytes())
    last.rename(last.with_name(f"{last.name}.bak"))
    files = contents(path)
    for _ in range(2):  # with both, and with the copy
        with pytest.raises(kstore.KstoreError, match="may have records that the log lacks"):
            kstore.repair(path, run=True)
        assert contents(path) == files
        packed.unlink(missing_ok=True)
        files = contents(path)


@pytest.mark.parametrize("content", ["", "{}", "[" * 100_000, None])
def test_what_is_no_plan(tmp_path: Path, content: str | None) -> None:
    _write(tmp_path / "orders-0")
    plan = tmp_path / "plan"
    plan.write_text(content or "")
    if content is None:
        os.truncate(plan, 6 << 30)
    done = run_command("repair", tmp_path / "orders-0", "--run", "--plan", plan)
    assert done.returncode == (1 if content is None else 2)
    assert str(plan) in done.stderr
    assert len(done.stderr.splitlines()) == 1


def _write(path: Path, *, transaction: bool = False, killed: bool = False) -> list[Path]:
    """100 records in several segments. The .log files."""
    config = kstore.LogConfig(internal_segment_bytes=4000, index_interval_bytes=100, retention_ms=-1)
    with kstore.open(path, "a", config=config) as log:
        if transaction:
            about: dict[str, Any] = {"producer_id": 77, "producer_epoch": 0, "transactional": True}
            log.append_batches(kstore.encode_batch([(1, b"k", b"aborted", None)], base_sequence=0, **about))
            abort = kstore.encode_batch([(1, bytes(4), bytes(6), None)], control=True, **about)
            log.append_batches(abort, origin="coordinator", transaction_version=0)
        for number in range(100):
            log.append(b"record %d" % number, timestamp=1)
        log.flush()
        shutil.copytree(path.parent, path.parent.with_suffix(".killed"))
    if killed:
        shutil.rmtree(path.parent)
        path.parent.with_suffix(".killed").rename(path.parent)
    return sorted(path.glob("*.log"))


def _change(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 255
    file.write_bytes(data)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("count", [1, 12, 50, 5000])
def test_zeros_behind_a_sealed_segment(tmp_path: Path, count: int, killed: bool) -> None:
    first, *later = _write(tmp_path / "data" / "orders-0", killed=killed)
    with first.open("ab") as file:
        file.write(bytes(count))
    assert first.name in {Path(finding.file).name for finding in kstore.check(tmp_path / "data").problems()}
    check_repair(first.parent)
    assert later
    assert len(readable(first.parent)) == 100


@pytest.mark.parametrize("kind", ["txnindex", "index", "timeindex", "snapshot"])
def test_a_damaged_batch_beside_another_damaged_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data" / "orders-0"
    first = _write(path, transaction=True)[0]
    _change(first, first.read_bytes().index(b"record 10"))
    _change(sorted(path.glob(f"*.{kind}"))[-1 if kind == "snapshot" else 0], 10)
    check_repair(path)
    assert len(readable(path)) == 99 + 1


def test_a_transaction_that_began_below_the_log_start(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    config = kstore.LogConfig(internal_segment_bytes=400, retention_ms=-1)
    about: dict[str, Any] = {"producer_id": 77, "producer_epoch": 0, "transactional": True}
    with kstore.open(path, "a", config=config) as log:
        for number in range(20):
            log.append_batches(
                kstore.encode_batch([(1, b"k", b"aborted", None)], base_sequence=number, **about)
            )
        abort = kstore.encode_batch([(1, bytes(4), bytes(6), None)], control=True, **about)
        log.append_batches(abort, origin="coordinator", transaction_version=0)
        log.append(b"end", timestamp=1)
        log.delete_records(12)
    assert kstore.check(path).findings == ()
    with kstore.open(path, "r+", clean=False, recovery_point=0):
        pass
    assert kstore.check(path).findings == ()
    _change(max(path.glob("*.txnindex")), 10)
    check_repair(path)
    with kstore.open(path) as log:
        assert [record.value for record in log.records(isolation="read_committed")] == [b"end"]


def test_transactions_at_the_log_start(tmp_path: Path) -> None:
    """A recovery reads from the log start offset on, and makes other entries than all batches would."""
    whole, path = tmp_path / "whole-0", tmp_path / "t-0"
    with kstore.open(whole, "a", config=kstore.LogConfig(internal_segment_bytes=500, retention_ms=-1)) as log:
        sequences = [0, 0]
        for number in range(12):
            producer = number % 2
            for _ in range(2):
                record = (NOW, b"k", b"%d" % number, None)
                log.append_batches(transactional(record, producer=producer, sequence=sequences[producer]))
                sequences[producer] += 1
            if number % 3 != 2:
                end_transaction(log, "ABORT" if number % 4 != 3 else "COMMIT", NOW, producer)
        end = log.log_end_offset
    for start in range(end):
        shutil.copytree(whole, path)
        with kstore.open(path, "r+") as log:
            log.delete_records(start)
            committed = [record.value for record in log.records(isolation="read_committed")]
        assert kstore.check(path).is_whole, start
        with kstore.open(path, "r+", clean=False, recovery_point=0) as log:
            assert [record.value for record in log.records(isolation="read_committed")] == committed
        assert kstore.check(path).is_whole, start
        shutil.rmtree(path)


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_an_index_of_the_last_segment_after_an_unclean_stop(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "data"
    _write(directory / "orders-0")
    with kstore.LogStore(directory, mode="a"):
        pass
    (directory / ".kafka_cleanshutdown").unlink()
    _change(max((directory / "orders-0").glob(f"*.{kind}")), 7)
    kstore.repair(directory, run=True)
    assert kstore.check(directory).findings == ()


def test_a_damaged_checkpoint_of_a_cleaner(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    _write(directory / "orders-0")
    file = directory / "cleaner-offset-checkpoint"
    file.write_text("0\n2\norders 0 7\ngarbage\n")
    kstore.repair(directory, run=True)
    assert file.read_text().splitlines() == ["0", "1", "orders 0 7"]
    assert {finding.code for finding in kstore.check(directory).problems()} == {"checkpoint_kept"}
    assert kstore.repair(directory).steps == ()


def test_a_log_that_ends_below_its_start(tmp_path: Path) -> None:
    """The leader epochs in the file begin at the log start offset, which does not count any more."""
    path = tmp_path / "orders-0"
    *first, last = _write(path)
    with kstore.open(path, "r+") as log:
        log.delete_records(95)
    data = bytearray(last.read_bytes())
    last.write_bytes(bytes(byte ^ 255 for byte in data))
    check_repair(path)
    with kstore.open(path) as log:
        assert (log.log_start_offset, log.leader_epochs) == (0, ((0, 0),))
    assert first


def test_no_opening_that_removes_sound_batches(tmp_path: Path) -> None:
    """A plan that has no step for a damaged segment."""
    directory = tmp_path / "data"
    first = _write(directory / "orders-0", killed=True)[0]
    (first.parent / "recovery-point-offset-checkpoint").unlink()
    _change(first, 1000)
    before, files = readable(first.parent), contents(directory)
    plan = kstore.repair(directory)
    for path, action in ((first.parent, "recover"), (directory, "recover_store")):
        steps = (RepairStep(action, str(path), "", (), ("not_closed",)),)
        with pytest.raises(kstore.KstoreError, match=r"orders-0 is not recovered.* sound batches"):
            run_plan(plan._replace(steps=steps), [str(directory)])
        assert contents(directory) == files
    check_repair(first.parent)
    assert readable(first.parent) == before


def test_a_failed_system_call_while_the_plan_is_made(tmp_path: Path) -> None:
    """Any of them: an error, or the plan that is made without it: no sound file is changed."""
    first = _write(tmp_path / "data" / "orders-0")[0]
    _change(first, 1000)
    directory = tmp_path / "data"
    plan = kstore.repair(directory)
    raised = 0
    for number in range(1, kstore.testing.count_calls(lambda: kstore.repair(directory)) + 1):
        try:
            with kstore.testing.failing(number):
                found = kstore.repair(directory)
        except (OSError, kstore.KstoreError):
            raised += 1
        else:
            assert found.steps == plan.steps, number
    assert raised


def test_damages(tmp_path: Path) -> None:
    """EFFORT=100 tries 1,000."""
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


def _lose(file: Path) -> None:
    file.unlink()


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:1])


def _drop_a_line(file: Path) -> None:
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], str(len(lines) - 3), *lines[3:], ""]))


def _raise(file: Path) -> None:
    file.write_text(
        "\n".join(re.sub(r"(.* .* )(\d+)", r"\g<1>9\2", line) for line in file.read_text().split("\n"))
    )


@pytest.mark.parametrize("damage", [_lose, _cut, _drop_a_line, _raise])
@pytest.mark.parametrize("name", ["recovery-point", "replication", "cleaner"])
def test_checkpoints_of_a_store(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    path = tmp_path / "data"
    write_store(path, random.Random(SEED))
    damage(path / f"{name}-offset-checkpoint")
    kstore.repair(path, run=True)
    assert {finding.code for finding in kstore.check(path).findings} <= {
        "hanging_transaction",
        "checkpoint_kept",
        "end_noted",  # by a recovery point that was raised, offsets are lost
    }
    files = contents(path)
    assert kstore.repair(path, run=True).steps == ()
    assert contents(path) == files


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


@pytest.mark.parametrize("words", ["check fifo", "repair fifo", "repair orders-0 --plan fifo"])
def test_a_fifo_is_not_waited_for(tmp_path: Path, words: str) -> None:
    kstore.open(tmp_path / "orders-0", "a").close()
    os.mkfifo(tmp_path / "fifo")
    done = run_command(*[tmp_path / word if word in ("fifo", "orders-0") else word for word in words.split()])
    assert done.returncode
    assert "fifo" in done.stderr
    assert "regular file" in done.stderr


def test_a_full_disk(tmp_path: Path) -> None:
    """A later repair does the rest, whichever write failed, and nothing of the failed one looks lost."""
    whole = tmp_path / "whole" / "orders-0"
    _write(whole)
    file = min(whole.glob("*.log"))
    _change(file, file.read_bytes().index(b"record 10"))
    path = tmp_path / "data" / "orders-0"

    def begin() -> None:
        shutil.rmtree(path.parent, ignore_errors=True)
        shutil.copytree(whole, path)

    begin()
    total = kstore.testing.count_calls(lambda: kstore.repair(path, run=True))
    for end in ends(total, 60, "repair", [(errno.ENOSPC, "error"), (errno.ENOSPC, "half")]):
        begin()
        with contextlib.suppress(OSError, kstore.KstoreError), kstore.testing.failing(*end):
            kstore.repair(path, run=True)
        assert "cut_off" not in {each.code for each in kstore.check(path).findings}, end
        assert kstore.repair(path, run=True).left == (), end
        assert kstore.check(path).is_whole, end
        assert len(readable(path)) == 99, end
