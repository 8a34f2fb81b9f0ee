"""Log directories of a real broker as stores: stopped, copied while it ran, and killed."""

import shutil
from pathlib import Path

import pytest

import kstore
from kstore import LogStore, TopicPartition
from kstore.__main__ import main
from tests.golden.scenarios import Scenario, scenarios
from tests.store.stores import opened

BROKER = Path(__file__).parents[1] / "golden" / "data" / "broker" / "data"


def unpacked(name: str, into: Path) -> tuple[Path, dict[TopicPartition, Scenario]]:
    """A copy of a broker's log directory, and Kafka's own answers about each partition."""
    found = [scenario for scenario in scenarios() if scenario.name.startswith(f"{name}/")]
    data = found[0].unpack(into).parent
    answers = {}
    for each in found:
        topic, _, number = each.partition.rpartition("-")
        answers[TopicPartition(topic, int(number))] = each
    return data, answers


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("name", ["broker", "broker_running", "broker_killed"])
def test_read_and_written(name: str, tmp_path: Path) -> None:
    """A store has the partitions and offsets that Kafka's classes find, appends where Kafka's recovery would,
    and leaves a clean directory, in which only its own files are new."""
    data, answers = unpacked(name, tmp_path)
    before = {path.name for path in data.iterdir()}
    summaries = {tp: each.lines("records.jsonl")[-1] for tp, each in answers.items()}
    reader = LogStore(data)
    assert set(reader) == set(answers)
    for tp, summary in summaries.items():
        log = reader.open(*tp)
        assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset()) == (
            summary["log_start_offset"],
            summary["log_end_offset"],
            summary["last_stable_offset"],
        )
    if name == "broker_killed":
        assert [each for each in reader.others if each.startswith("doomed-0.") and each.endswith("-delete")]
    ends = {tp: summary["log_end_offset"] for tp, summary in summaries.items()}
    written = {tp for tp in ends if not tp.topic.startswith("__") and tp.topic != "state_store"}
    with opened(data, retention_ms=-1, message_timestamp_after_max_ms=2**62) as store:
        assert store.health().ok
        assert not (data / ".kafka_cleanshutdown").exists()
        for tp in written:
            log = store.log(*tp)
            assert log.append(b"v", b"k") == ends[tp]
        store.create_topic("mine", 2)
        store.append("mine", b"v", b"k")
    after = LogStore(data)
    assert after.closed_cleanly
    for tp, end in ends.items():
        log = after.open(*tp)
        if tp.topic != "__cluster_metadata":
            assert log.recovery.clean
            assert not log.recovery.findings
            assert log.log_end_offset == end + (tp in written)
            assert all(record.offset < log.log_end_offset for record in log)
            assert tp not in written or log.get(end).value == b"v"
    assert {path.name for path in data.iterdir()} - before <= {
        ".kafka_cleanshutdown",
        "kstore.json",
        "mine-0",
        "mine-1",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }


def test_what_is_not_used_stays_as_it_is(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(BROKER, data)
    with LogStore(data, mode="a"):
        pass
    for path in BROKER.rglob("*"):
        if path.is_file() and path.parent != BROKER:
            assert (data / path.relative_to(BROKER)).read_bytes() == path.read_bytes(), path
    for path in BROKER.glob("*-checkpoint"):
        assert set((data / path.name).read_text().split("\n")) == set(path.read_text().split("\n"))
    marker = ".kafka_cleanshutdown"
    assert (data / marker).read_bytes() != (BROKER / marker).read_bytes()


@pytest.mark.parametrize("is_tiered", [True, False])
@pytest.mark.parametrize("how", ["store", "log"])
def test_a_log_start_below_the_first_segment_stays(
    tmp_path: Path, is_tiered: bool, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tiered topic keeps records there: without that line deleted ones come back in the broker."""
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    if is_tiered:
        (tmp_path / "remote-log-index-cache").mkdir()
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.truncate_fully_and_start_at(5000)
        log.extend([b"v"] * 10)
    starts = tmp_path / "log-start-offset-checkpoint"
    starts.write_text("0\n1\nt 0 3000\n")
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 3000\n")
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')

    def write(deleted: int = -1) -> int:
        with (
            LogStore(tmp_path, mode="a") if how == "store" else kstore.open(tmp_path / "t-0", "a") as writing
        ):
            log = writing.log("t", 0) if isinstance(writing, LogStore) else writing
            log.append(b"more")
            log.roll()
            return log.delete_records(deleted) if deleted >= 0 else log.log_start_offset

    for _ in range(2):
        assert write() == 5000
        assert starts.read_text() == "0\n1\nt 0 3000\n"
        findings = kstore.open(tmp_path / "t-0").recovery.findings
        assert [f.kind for f in findings] == ["remote" if is_tiered else "gap"]
        assert "3000 to 4999" in findings[0].text
    assert main(["check", str(tmp_path / "t-0")]) == (0 if is_tiered else 1)
    assert ("moved them to remote storage" in capsys.readouterr().out) == is_tiered
    assert write(5005) == 5005
    assert starts.read_text() == "0\n1\nt 0 5005\n"
