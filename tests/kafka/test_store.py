"""Directories that a store keeps, as Kafka's LogManager loads them, and the other way round."""

import shutil
from pathlib import Path

import pytest

import kstore
from tests.kafka.compare import Account
from tests.kafka.jvm import NOW, Kafka, KafkaLog
from tests.kafka.shapes import SMALL


def _clock() -> int:
    return NOW


def _store(directory: Path) -> kstore.LogStore:
    return kstore.LogStore(directory, mode="a", config=kstore.LogConfig(**SMALL), clock=_clock)


def _filled(directory: Path) -> kstore.LogStore:
    store = _store(directory)
    store.create_topic("orders", 4)
    store.create_topic("idle", 2)
    store.create_topic("gone", 2)
    for topic in ("orders", "gone"):
        for turn in range(5):
            keys = [b"%d" % i for i in range(200)]
            store.extend(topic, [b"value %d of turn %d" % (i, turn) for i in range(200)], keys, NOW)
    log = store.log("orders", 2)
    assert isinstance(log, kstore.LogWriter)
    log.delete_records(33)
    return store


def _load(kafka: Kafka, directory: Path) -> dict[str, KafkaLog]:
    return {name: KafkaLog(kafka, directory / name) for name in kafka.start(directory)}


@pytest.mark.parametrize("deleted", [False, True])
def test_a_store_that_was_closed(kafka: Kafka, log_directory: Path, deleted: bool) -> None:
    with _filled(log_directory) as store:
        if deleted:
            store.delete_topic("gone")
    names = (
        [f"orders-{n}" for n in range(4)] + ["idle-0", "idle-1"] + ([] if deleted else ["gone-0", "gone-1"])
    )
    accounts = {name: Account(kstore.open(log_directory / name)) for name in names}
    told = kafka.ask("checkpoints", log_directory)
    assert told["clean"]
    assert told["log-start"] == {"orders-2": 33}
    theirs = _load(kafka, log_directory)
    assert sorted(theirs) == sorted(names)
    assert not kafka.complaints()
    assert not kafka.recovered()
    for name, log in theirs.items():
        if name.startswith("idle"):  # the store has made no segment there, and Kafka does
            assert log.summary()["log_end_offset"] == 0
        else:
            accounts[name].check(log)
    theirs["idle-1"].append(kstore.encode_batch([(NOW, b"k", b"from Kafka", None)]))
    theirs["orders-0"].append(kstore.encode_batch([(NOW, b"k", b"from Kafka", None)]))
    kafka.ask("shutdown", log_directory)

    with _store(log_directory) as store:
        assert store.health().ok
        for name in ("idle-1", "orders-0"):
            topic, number = name.split("-")
            log = store.log(topic, int(number))
            assert log.recovery.clean
            assert log.recovery.findings == []
            assert log.get(log.log_end_offset - 1).value == b"from Kafka"
        store.append("idle", b"v", b"k")
    assert kafka.ask("checkpoints", log_directory)["clean"]


def test_a_topic_that_waits_to_be_removed(kafka: Kafka, log_directory: Path) -> None:
    """A process that died after a deletion leaves directories whose names end in -delete: Kafka schedules them too."""
    store = _filled(log_directory)
    store.delete_topic("gone")
    store.flush()
    left = sorted(name for name in store.others if name.endswith("-delete"))
    assert len(left) == 2
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


def test_what_kafka_made(kafka: Kafka, log_directory: Path) -> None:
    """Partitions of a broker that was killed are recovered by the store as by Kafka itself."""
    with _filled(log_directory):
        pass
    theirs = _load(kafka, log_directory)
    for turn in range(50):
        for n in range(4):
            theirs[f"orders-{n}"].append(kstore.encode_batch([(NOW, b"k", b"turn %d" % turn, None)]))
    ends = {n: theirs[f"orders-{n}"].summary()["log_end_offset"] for n in range(4)}
    for log in theirs.values():
        log.ask("flush")
    copy = log_directory.parent / "copy"
    shutil.copytree(log_directory, copy)
    kafka.ask("shutdown", log_directory)
    with _store(copy) as store:
        assert store.health().ok
        assert {n: store.log("orders", n).log_end_offset for n in range(4)} == ends
        assert store.log("orders", 2).log_start_offset == 33
    assert kafka.ask("checkpoints", copy)["clean"]
