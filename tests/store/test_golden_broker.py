"""A log directory that a real broker wrote, opened as a store, read and written."""

import shutil
from pathlib import Path

import pytest

import kstore
from kstore import LogStore
from tests.golden.answers import all_lines
from tests.golden.scenarios import Scenario, scenarios

BROKER = Path(__file__).parents[1] / "golden" / "data" / "broker" / "data"


def ends(store: LogStore) -> dict[kstore.TopicPartition, tuple[int, int]]:
    logs = {tp: store.open(*tp) for tp in store}
    return {tp: (log.log_start_offset, log.log_end_offset) for tp, log in logs.items()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    shutil.copytree(BROKER, tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize("marker", [True, False], ids=["closed", "killed"])
def test_written_and_closed(data: Path, marker: bool) -> None:
    before = ends(LogStore(data))
    assert len(before) > 10
    epoch = (data / ".kafka_cleanshutdown").read_bytes()
    if not marker:
        (data / ".kafka_cleanshutdown").unlink()
    with LogStore(data, mode="a", retention_ms=-1, message_timestamp_after_max_ms=2**62) as store:
        assert store.health().ok
        assert not (data / ".kafka_cleanshutdown").exists()
        places = [store.append("events", b"v%d" % i, b"k%d" % i) for i in range(20)]
        store.create_topic("mine", 2)
        store.append("mine", b"v", b"k")
    after = LogStore(data)
    assert after.closed_cleanly
    assert epoch != (data / ".kafka_cleanshutdown").read_bytes()
    for tp, (start, end) in ends(after).items():
        if tp.topic == "mine":
            continue
        more = sum(tp == ("events", partition) for partition, _ in places)
        assert (start, end) == (before[tp][0], before[tp][1] + more)
        if tp.topic != "__cluster_metadata":
            log = after.open(*tp)
            assert log.recovery.clean
            assert log.recovery.findings == []
    for i, (partition, offset) in enumerate(places):
        assert after.open("events", partition).get(offset).value == b"v%d" % i
    names = {path.name for path in data.iterdir()} - {path.name for path in BROKER.iterdir()}
    assert names <= {"kstore-topics.json", "mine-0", "mine-1", "log-start-offset-checkpoint"}


def test_what_is_not_touched_stays(data: Path) -> None:
    """Opening and closing changes nothing of a partition that nobody used."""
    with LogStore(data, mode="a"):
        pass
    for path in BROKER.rglob("*"):
        if path.is_file() and path.parent != BROKER:
            assert (data / path.relative_to(BROKER)).read_bytes() == path.read_bytes(), path
    for path in BROKER.glob("*-checkpoint"):
        assert set((data / path.name).read_text().split("\n")) == set(path.read_text().split("\n"))


def unpacked(name: str, into: Path) -> tuple[Path, dict[kstore.TopicPartition, Scenario]]:
    """A copy of the log directory of a broker, and Kafka's answers about each partition."""
    found = [scenario for scenario in scenarios() if scenario.name.startswith(f"{name}/")]
    data = found[0].unpack(into).parent
    return data, {kstore.TopicPartition(*_split(each.partition)): each for each in found}


def _split(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("name", ["broker", "broker_running", "broker_killed"])
def test_whole_directories_read(name: str, tmp_path: Path) -> None:
    """Stopped, copied file by file while it ran, and killed: the records that Kafka's own classes read."""
    data, answers = unpacked(name, tmp_path)
    store = LogStore(data)
    assert set(store) == set(answers)
    for tp, scenario in answers.items():
        log = store.open(*tp)
        *expected, summary = scenario.lines("records.jsonl")
        assert all_lines(log) == expected, tp
        assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset()) == (
            summary["log_start_offset"],
            summary["log_end_offset"],
            summary["last_stable_offset"],
        )
    if name == "broker_killed":
        assert [
            other for other in store.others if other.startswith("doomed-0.") and other.endswith("-delete")
        ]


@pytest.mark.parametrize("name", ["broker", "broker_running", "broker_killed"])
def test_whole_directories_written(name: str, tmp_path: Path) -> None:
    """They are recovered, go on where Kafka's own recovery would, and are closed cleanly."""
    data, answers = unpacked(name, tmp_path)
    ends_of = {tp: each.lines("records.jsonl")[-1]["log_end_offset"] for tp, each in answers.items()}
    with LogStore(data, mode="a", retention_ms=-1, message_timestamp_after_max_ms=2**62) as store:
        assert store.health().ok
        for tp, end in ends_of.items():
            if not tp.topic.startswith("__") and tp.topic != "state_store":
                log = store.log(*tp)
                assert isinstance(log, kstore.LogWriter)
                assert log.append(b"v", b"k") == end
    after = LogStore(data)
    assert after.closed_cleanly
    for tp, end in ends_of.items():
        log = after.open(*tp)
        if tp.topic == "__cluster_metadata":
            continue
        assert log.recovery.clean
        assert not log.recovery.findings
        assert log.log_end_offset == end + (not tp.topic.startswith("__") and tp.topic != "state_store")
        assert all(record.offset < log.log_end_offset for record in log)
