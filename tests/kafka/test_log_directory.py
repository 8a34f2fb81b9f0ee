"""What lies around the partitions: lock, clean marker, checkpoints, as Kafka's own classes see them."""

import json
import uuid
from pathlib import Path

import pytest

import kstore
from tests.kafka.compare import Account
from tests.kafka.jvm import NOW, Kafka, KafkaError, KafkaLog
from tests.kafka.shapes import SMALL


def _clock() -> int:
    return NOW


def _open(directory: Path, number: int) -> kstore.LogWriter:
    config = kstore.LogConfig(**SMALL)
    return kstore.open(directory / f"orders-{number}", "a", config=config, clock=_clock)


def test_marker_and_checkpoints(kafka: Kafka, log_directory: Path) -> None:
    logs = [_open(log_directory, number) for number in range(3)]
    for number, log in enumerate(logs):
        log.extend([b"%d" % i for i in range(200)], batch_bytes=200)
        log.flush()
        assert not kafka.ask("checkpoints", log_directory)["clean"]
        if number == 1:
            log.delete_records(77)
    ends = {f"orders-{number}": 200 for number in range(3)}
    logs[0].close()
    logs[1].close()
    assert not kafka.ask("checkpoints", log_directory)["clean"]
    logs[2].close()
    assert kafka.ask("checkpoints", log_directory) == {
        "recovery-point": ends,
        "log-start": {"orders-1": 77},
        "replication": ends,
        "clean": True,
        "broker_epoch": -1,
    }

    accounts = [Account(kstore.open(log_directory / name)) for name in ends]
    assert sorted(kafka.start(log_directory)) == sorted(ends)
    assert any("Skipping recovery of 3 logs" in line for line in kafka.log)
    assert not kafka.complaints()
    for name, account in zip(ends, accounts, strict=True):
        account.check(KafkaLog(kafka, log_directory / name))
    KafkaLog(kafka, log_directory / "orders-2").ask("delete_records", offset=150)
    kafka.ask("shutdown", log_directory, broker_epoch=17)

    assert json.loads((log_directory / ".kafka_cleanshutdown").read_text())["brokerEpoch"] == 17
    with _open(log_directory, 2) as log:
        assert log.recovery.clean
        assert log.recovery.findings == []
        assert log.log_start_offset == 150
    # the partitions that were not opened are as clean as they were
    assert kafka.ask("checkpoints", log_directory)["clean"]
    assert kafka.ask("checkpoints", log_directory)["log-start"] == {"orders-1": 77, "orders-2": 150}


def test_one_of_several_not_closed(kafka: Kafka, log_directory: Path) -> None:
    logs = [_open(log_directory, number) for number in range(2)]
    for log in logs:
        log.extend([b"%d" % i for i in range(200)], batch_bytes=200)
    logs[0].abandon()
    logs[1].close()
    kafka.start(log_directory)
    assert any("Recovering 2 logs" in line or "was not found" in line for line in kafka.log)
    for number in range(2):
        assert KafkaLog(kafka, log_directory / f"orders-{number}").summary()["log_end_offset"] == 200
    kafka.ask("shutdown", log_directory)


def test_kafka_holds_the_lock(kafka: Kafka, log_directory: Path) -> None:
    _open(log_directory, 0).close()
    kafka.start(log_directory)
    with pytest.raises(kstore.LogLockedError) as caught:
        _open(log_directory, 0)
    assert caught.value.pid == kafka.pid
    assert str(kafka.pid) in str(caught.value)
    with pytest.raises(kstore.LogLockedError):
        _open(log_directory, 1)
    with kstore.open(log_directory / "orders-0") as log:  # readers ask for no lock
        assert log.log_end_offset == 0
    kafka.ask("shutdown", log_directory)
    _open(log_directory, 0).close()

    assert kafka.ask("lock", log_directory)["taken"]
    with pytest.raises(kstore.LogLockedError) as caught:
        _open(log_directory, 0)
    assert caught.value.pid == kafka.pid
    kafka.ask("unlock", log_directory)
    _open(log_directory, 0).close()


def test_kstore_holds_the_lock(kafka: Kafka, log_directory: Path) -> None:
    with _open(log_directory, 0), _open(log_directory, 1):
        assert not kafka.ask("lock", log_directory)["taken"]
        with pytest.raises(KafkaError, match="lock"):
            kafka.start(log_directory)
    assert kafka.ask("lock", log_directory)["taken"]
    kafka.ask("unlock", log_directory)
    with _open(log_directory, 0) as log:
        log.append(b"x")
        log.abandon()
    assert kafka.ask("lock", log_directory)["taken"]
    kafka.ask("unlock", log_directory)


def test_partition_that_keeps_its_own_state(kafka: Kafka, tmp_path: Path) -> None:
    """Without a log directory around it; Kafka passes over what kstore keeps beside the segments."""
    directory = tmp_path / "orders-0"
    with kstore.open(directory, "a", clock=_clock) as log:
        log.extend([b"%d" % i for i in range(200)], batch_bytes=200)
        log.delete_records(50)
    account = Account(kstore.open(directory))
    theirs = kafka.open(directory, clean=True, recovery_point=200, log_start_offset=50)
    assert not kafka.complaints()
    account.check(theirs)
    theirs.append(kstore.encode_batch([(NOW, b"k", b"v", None)]))
    theirs.ask("close")
    with kstore.open(directory, "a", clock=_clock) as log:
        found = [finding.code for finding in log.recovery.findings]
        assert found == ["ends_late"]  # a broker does not write a partition's own state
        assert (log.log_start_offset, log.log_end_offset) == (50, 201)


def test_topic_id(kafka: Kafka, log_directory: Path) -> None:
    """partition.metadata is read by Kafka when it loads a partition."""
    topic_id = uuid.UUID(int=2**100 + 12345)
    with kstore.open(log_directory / "orders-0", "a", topic_id=topic_id, clock=_clock) as log:
        log.append(b"x")
    kafka.start(log_directory)
    assert not kafka.complaints()
    found = KafkaLog(kafka, log_directory / "orders-0").ask("topic_id")
    assert uuid.UUID(hex=found["topic_id"]) == topic_id
    kafka.ask("shutdown", log_directory)
