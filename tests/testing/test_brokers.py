"""A broker in the test process: its faults, its clock, its store."""

import threading
import time
from pathlib import Path

import confluent_kafka
import pytest

import kstore
from kstore.testing import Broker, broker

pytest_plugins = ["kstore.testing.fixtures"]


def produced(running: Broker, *values: bytes, **options: object) -> list[int]:
    """The codes with which a producer reports the values."""
    found: list[int] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": running.bootstrap_servers, "retry.backoff.ms": 10, "linger.ms": 0, **options}
    )
    for value in values:
        producer.produce(
            "orders", value, on_delivery=lambda error, _: found.append(error.code() if error else 0)
        )
        producer.flush(20)
    return found


def consumed(running: Broker, count: int, **options: object) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": running.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.subscribe(["orders"])
    found = [message.value() for message in consumer.consume(count, 20)]
    if found:
        consumer.commit(asynchronous=False)
    consumer.close()
    return found


def values(running: Broker) -> list[bytes | None]:
    return [record.value for record in running.store.log("orders")]


def test_a_broker() -> None:
    with broker({"orders": 3}) as running:
        assert running.store.topics == {"orders": [0, 1, 2]}
        assert produced(running, b"tea", b"coffee") == [0, 0]
        assert sorted(consumed(running, 2)) == [b"coffee", b"tea"]
        running.store.append("orders", b"milk")
        assert consumed(running, 1) == [b"milk"]  # the group goes on
        directory = running.store.path
    assert not directory.exists()


def test_a_directory_that_is_kept(tmp_path: Path) -> None:
    with broker(directory=str(tmp_path), retention_ms=5000) as running:
        assert produced(running, b"tea") == [0]  # the topic is created for it
        assert running.store.config.retention_ms == 5000
    assert [record.value for record in kstore.LogStore(tmp_path).log("orders")] == [b"tea"]


def test_fixture(kstore_broker: Broker) -> None:
    assert produced(kstore_broker, b"tea") == [0]
    assert values(kstore_broker) == [b"tea"]


def test_errors() -> None:
    with broker(["orders"]) as running:
        running.fail("Produce", "POLICY_VIOLATION")
        assert produced(running, b"a", b"b") == [44, 0]
        running.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)  # clients try again
        assert produced(running, b"c") == [0]
        running.fail("Fetch", 6, times=2)
        assert consumed(running, 2) == [b"b", b"c"]
        running.fail("OffsetCommit", "REBALANCE_IN_PROGRESS")
        with pytest.raises(confluent_kafka.KafkaException):
            consumed(running, 1, **{"group.id": "others"})
        assert values(running) == [b"b", b"c"]


def test_lost_answers() -> None:
    """A producer without idempotence writes a record twice if the answer is lost; with it, once."""
    with broker(["orders"]) as running:
        running.drop("Produce")
        assert produced(running, b"a") == [0]
        assert values(running) == [b"a"]
        running.drop("Produce", after=True)
        assert produced(running, b"b") == [0]
        assert values(running) == [b"a", b"b", b"b"]
        running.drop("Produce", after=True)
        assert produced(running, b"c", **{"enable.idempotence": True}) == [0]
        assert values(running) == [b"a", b"b", b"b", b"c"]


def test_delays() -> None:
    with broker(["orders"]) as running:
        produced(running, b"a")
        running.delay("Fetch", 1)
        before = time.monotonic()
        assert consumed(running, 1) == [b"a"]
        assert time.monotonic() >= before + 1  # a least time: a slow machine cannot break it


def test_a_coordinator_that_moves() -> None:
    with broker(["orders"]) as running:
        produced(running, b"a", b"b")
        assert consumed(running, 1) == [b"a"]
        running.move_coordinator()
        assert consumed(running, 1) == [b"b"]


@pytest.mark.parametrize("clean", [True, False])
def test_restart(clean: bool) -> None:
    with broker(["orders"]) as running:
        address = running.bootstrap_servers
        assert produced(running, b"a") == [0]
        thread = threading.Timer(0.2, running.restart, kwargs={"clean": clean})
        thread.start()
        options = {"enable.idempotence": True, "reconnect.backoff.max.ms": 100}
        assert produced(running, *[b"%d" % number for number in range(50)], **options) == [0] * 50
        thread.join()
        assert running.bootstrap_servers == address
        assert values(running) == [b"a", *[b"%d" % number for number in range(50)]]


def test_the_clock() -> None:
    with broker(["orders"], message_timestamp_type="LogAppendTime") as running:
        produced(running, b"a")
        running.advance(86_400)
        produced(running, b"b")
        first, second = (record.timestamp for record in running.store.log("orders"))
        assert second - first >= 86_400_000


def test_wrong_arguments() -> None:
    with broker() as running:
        for call in (
            lambda: running.fail("Nothing", 1),
            lambda: running.fail("Metadata", 1),
            lambda: running.drop("Nothing"),
            lambda: running.drop("Produce", 0),
            lambda: running.delay("Produce", -1),
        ):
            with pytest.raises(ValueError, match=r"api must|times|seconds"):
                call()
        with pytest.raises(ValueError, match="such as Produce, not 'Prodce'"):
            running.fail("Prodce", 1)
        running.fail("OffsetCommit", "INVALID_COMMIT_OFFSET_SIZE")
        with pytest.raises(ValueError, match=r"error is one of .*'NOT_ENOUGH_REPLICAS'"):
            running.fail("Produce", "NO_SUCH_ERROR")
