"""Lock, clean marker, checkpoints and a store's files around the partitions, as Kafka sees them."""

import json
from pathlib import Path

import pytest

import kstore
from tests.kafka.compare import Account
from tests.kafka.jvm import NOW, Kafka, KafkaError, KafkaLog
from tests.kafka.shapes import SMALL

CONFIG = kstore.LogConfig(**SMALL)


def _clock() -> int:
    return NOW


def _open(directory: Path, number: int) -> kstore.LogWriter:
    return kstore.open(directory / f"orders-{number}", "a", config=CONFIG, clock=_clock)


def _fill(log: kstore.LogWriter) -> None:
    log.extend([b"%d" % i for i in range(200)], batch_bytes=200)


def test_marker_and_checkpoints(kafka: Kafka, log_directory: Path) -> None:
    logs = [_open(log_directory, number) for number in range(3)]
    for number, log in enumerate(logs):
        _fill(log)
        log.flush()
        assert not kafka.ask("checkpoints", log_directory)["clean"]
        if number == 1:
            log.delete_records(77)
    ends = {f"orders-{number}": 200 for number in range(3)}
    for log in logs:
        assert not kafka.ask("checkpoints", log_directory)["clean"]
        log.close()
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
    found = kafka.ask("checkpoints", log_directory)
    assert (found["clean"], found["log-start"]) == (True, {"orders-1": 77, "orders-2": 150})


def test_one_of_several_not_closed(kafka: Kafka, log_directory: Path) -> None:
    logs = [_open(log_directory, number) for number in range(2)]
    for log in logs:
        _fill(log)
    logs[0].abandon()
    logs[1].close()
    kafka.start(log_directory)
    assert any("Recovering 2 logs" in line or "was not found" in line for line in kafka.log)
    for number in range(2):
        assert KafkaLog(kafka, log_directory / f"orders-{number}").summary()["log_end_offset"] == 200
    kafka.ask("shutdown", log_directory)


def test_kafka_holds_the_lock(kafka: Kafka, log_directory: Path) -> None:
    _open(log_directory, 0).close()

    def check_refused(number: int) -> None:
        with pytest.raises(kstore.LogLockedError, match=str(kafka.pid)) as e:
            _open(log_directory, number)
        assert e.value.pid == kafka.pid

    kafka.start(log_directory)
    check_refused(0)
    check_refused(1)
    with kstore.open(log_directory / "orders-0") as log:  # readers need no lock
        assert log.log_end_offset == 0
    kafka.ask("shutdown", log_directory)
    _open(log_directory, 0).close()
    assert kafka.ask("lock", log_directory)["taken"]
    check_refused(0)
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


# ---- a store -----------------------------------------------------------------------------------------------


def _store(directory: Path) -> kstore.LogStore:
    return kstore.LogStore(directory, mode="a", config=CONFIG, clock=_clock)


def _filled(directory: Path) -> kstore.LogStore:
    store = _store(directory)
    store.create_topic("orders", 4)
    store.create_topic("idle", 2)
    store.create_topic("gone", 2)
    keys = [b"%d" % i for i in range(200)]
    for topic in ("orders", "gone"):
        for turn in range(5):
            store.extend(topic, [b"value %d of turn %d" % (i, turn) for i in range(200)], keys, NOW)
    log = store.log("orders", 2)
    log.delete_records(33)
    return store


def _load(kafka: Kafka, directory: Path) -> dict[str, KafkaLog]:
    return {name: KafkaLog(kafka, directory / name) for name in kafka.start(directory)}


@pytest.mark.parametrize("deleted", [False, True])
def test_a_store_that_was_closed(kafka: Kafka, log_directory: Path, deleted: bool) -> None:
    with _filled(log_directory) as store:
        if deleted:
            store.delete_topic("gone")
    names = [
        *(f"orders-{n}" for n in range(4)),
        "idle-0",
        "idle-1",
        *([] if deleted else ["gone-0", "gone-1"]),
    ]
    accounts = {name: Account(kstore.open(log_directory / name)) for name in names}
    checkpoints = kafka.ask("checkpoints", log_directory)
    assert (checkpoints["clean"], checkpoints["log-start"]) == (True, {"orders-2": 33})
    theirs = _load(kafka, log_directory)
    assert sorted(theirs) == sorted(names)
    assert not kafka.complaints()
    assert not kafka.recovered()
    for name, log in theirs.items():
        if name.startswith("idle"):  # the store has made no segment there, and Kafka does
            assert log.summary()["log_end_offset"] == 0
        else:
            accounts[name].check(log)
    for name in ("idle-1", "orders-0"):
        theirs[name].append(kstore.encode_batch([(NOW, b"k", b"from Kafka", None)]))
    kafka.ask("shutdown", log_directory)

    with _store(log_directory) as store:
        assert store.health().ok
        for topic, number in (("idle", 1), ("orders", 0)):
            log = store.log(topic, number)
            assert log.recovery.clean
            assert log.recovery.findings == []
            assert log.get(log.log_end_offset - 1).value == b"from Kafka"
        store.append("idle", b"v", b"k")
    assert kafka.ask("checkpoints", log_directory)["clean"]


def test_a_topic_that_waits_to_be_removed(kafka: Kafka, log_directory: Path) -> None:
    """A process that died after a deletion leaves directories that end in -delete: Kafka deletes them."""
    store = _filled(log_directory)
    store.delete_topic("gone")
    store.flush()
    assert len([name for name in store.others if name.endswith("-delete")]) == 2
    ends = {f"orders-{n}": store.log("orders", n).log_end_offset for n in range(4)}
    store.abandon()
    theirs = _load(kafka, log_directory)
    found = {name: log.summary()["log_end_offset"] for name, log in theirs.items() if name in ends}
    assert found == ends
    assert not any(name.startswith("gone") for name in theirs)
    kafka.ask("shutdown", log_directory)
    with _store(log_directory) as store:
        assert {f"orders-{n}": store.log("orders", n).log_end_offset for n in range(4)} == ends
        assert sorted(store.topics) == ["idle", "orders"]
    assert not [path for path in log_directory.iterdir() if path.name.endswith("-delete")]
