"""Opening Kafka's directories for writing does what Kafka's loading does, and so does closing."""

import warnings
from pathlib import Path

import pytest

import kstore
from tests.golden.replay import files_of
from tests.golden.scenarios import Scenario, scenarios

# Sound batches lie behind what Kafka cuts off, or the log was closed cleanly: kept in .cut files, and told.
KEPT = ("crash_bad_crc", "crash_middle_segment", "clean_garbage_tail")
SCENARIOS = [s for s in scenarios() if "/" not in s.name]


@pytest.fixture(params=SCENARIOS, ids=str)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return request.param


def test_opening_and_closing(scenario: Scenario, tmp_path: Path) -> None:
    directory = scenario.unpack(tmp_path)
    checkpoint = directory.parent / "recovery-point-offset-checkpoint"
    if not checkpoint.exists():
        checkpoint.write_text("0\n0\n")  # makes it a log directory, as the scenario's was
    opened = scenario.open()
    lines = scenario.lines("records.jsonl")
    summary = lines[-1]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        log = kstore.open(
            directory,
            "a",
            config=kstore.LogConfig.from_topic(opened["config"]),
            clock=lambda: opened["now_ms"],
            clean=opened["clean"],
            recovery_point=opened["recovery_point"],
            log_start_offset=opened["log_start_offset"],
        )
    assert [w.category for w in told] == [kstore.DataLossWarning] * (scenario.name in KEPT)
    if "error" in summary:  # Kafka cannot open it; all its records are there
        assert scenario.name == "kafka_cannot_recover"
        assert [r.offset for r in log] == list(range(24))
        log.close()
        return
    assert log.log_start_offset == summary["log_start_offset"]
    assert log.log_end_offset == summary["log_end_offset"]
    assert log.last_stable_offset() == summary["last_stable_offset"]
    assert [list(entry) for entry in log.leader_epochs] == summary["leader_epochs"]
    if scenario.name != "crash_below_recovery_point":  # Kafka keeps the bad batch, and so must we
        ours = [(b.base_offset, b.last_offset, b.crc) for b in log.from_file_start().batches()]
        theirs = {
            (r["batch"]["base_offset"], r["batch"]["last_offset"], r["batch"]["crc"]) for r in lines[:-1]
        }
        if all(r["batch"]["magic"] == 2 for r in lines[:-1]):
            assert set(ours) == theirs
    log.flush()
    log.close()
    for kept in directory.glob("*.cut"):
        assert scenario.name in KEPT
        if scenario.name == "clean_garbage_tail":  # Kafka lets the tail be, and would append behind it
            path = directory / kept.name[:24]
            path.write_bytes(path.read_bytes() + kept.read_bytes())
        kept.unlink()
    assert files_of(directory) == summary["files_after_close"]


def test_what_is_cut_off_is_kept_when_asked(tmp_path: Path) -> None:
    scenario = next(s for s in SCENARIOS if s.name == "crash_torn_tail")
    directory = scenario.unpack(tmp_path)
    opened = scenario.open()
    before = {p.name: p.read_bytes() for p in directory.glob("*.log")}
    options = {name: opened[name] for name in ("clean", "recovery_point", "log_start_offset")}
    with kstore.open(
        directory, "a", config=kstore.LogConfig.from_topic(opened["config"]), keep_cut=True, **options
    ) as log:
        cut = log.recovery.truncated_bytes
        assert cut > 0
        assert any(f.kind == "torn_tail" for f in log.recovery.findings)
    (kept,) = directory.glob("*.cut")
    name, position = kept.name.removesuffix(".cut").rsplit(".", 1)
    assert kept.read_bytes() == before[name][int(position) :]
    assert kept.stat().st_size == cut


def test_loss_of_what_was_flushed_is_loud(tmp_path: Path) -> None:
    """Damage below the recovery point, in a recovered segment: truncated as Kafka does, with a warning."""
    directory = tmp_path / "t-0"
    with kstore.open(directory, "a") as log:
        for i in range(50):
            log.append(b"%d" % i * 20)
    path = directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.warns(kstore.DataLossWarning, match=r"had been flushed.*\.cut"):
        log = kstore.open(directory, "a", clean=False)
    assert any(f.kind == "corrupt_batch" for f in log.recovery.findings)
    end = log.log_end_offset
    assert 0 < end < 50
    log.close()
    (kept,) = directory.glob("*.cut")
    assert path.read_bytes() + kept.read_bytes() == bytes(data)
    assert [r.offset for r in kstore.open(directory)] == list(range(end))
