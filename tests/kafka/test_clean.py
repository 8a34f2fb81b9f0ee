"""Kafka opens what kstore closed, as if it had written it, and goes on; then kstore goes on from there."""

import random
from pathlib import Path

import pytest

import kstore
from tests.kafka.compare import Account, files_of
from tests.kafka.jvm import NOW, Kafka, KafkaLog
from tests.kafka.shapes import SHAPES, Shape, encoded


@pytest.mark.parametrize("shape", SHAPES.values(), ids=str)
def test_there_and_back(shape: Shape, kafka: Kafka, log_directory: Path) -> None:
    directory, later = log_directory / "orders-0", NOW + 10**6
    config = shape.config.to_topic()
    shape.write(directory)
    written = files_of(directory)
    theirs = KafkaLog(kafka, directory)

    account = _account(directory)
    _start(kafka, log_directory, config)
    account.check(theirs)
    kafka.ask("shutdown", log_directory)
    assert not kafka.complaints()
    assert _segment_files(directory) == _segment_files(directory, written)

    _start(kafka, log_directory, config)
    _append(theirs, random.Random(1))
    kafka.ask("shutdown", log_directory)
    account = _account(directory)
    _start(kafka, log_directory, config)
    account.check(theirs)
    kafka.ask("shutdown", log_directory)

    written = files_of(directory)
    with kstore.open(directory, "r+", config=shape.config, clock=lambda: later) as log:
        assert log.recovery.findings == []
        assert log.recovery.clean
    assert files_of(directory) == written
    with kstore.open(directory, "r+", config=shape.config, clock=lambda: later) as log:
        log.extend([b"%d" % i for i in range(300)], [b"k"] * 300, later, batch_bytes=500)
    account = _account(directory)
    _start(kafka, log_directory, config)
    account.check(theirs)
    kafka.ask("shutdown", log_directory)


def test_key_files_are_passed_over(kafka: Kafka, log_directory: Path) -> None:
    directory, theirs = log_directory / "orders-0", KafkaLog(kafka, log_directory / "orders-0")
    config = kstore.LogConfig(internal_segment_bytes=2000)
    keys = [b"key-%d" % (i % 50) for i in range(300)]
    with kstore.open(directory, "a", config=config, clock=lambda: NOW) as log:
        log.extend([b"v" * 40] * 300, keys, NOW, batch_bytes=500)
        assert all(each.made for each in log.make_key_files())
    written = {path.name: path.read_bytes() for path in directory.glob("*.keys")}
    assert len(written) > 3
    account = _account(directory)
    _start(kafka, log_directory, config.to_topic())
    account.check(theirs)
    _append(theirs, random.Random(1))
    kafka.ask("shutdown", log_directory)
    assert not kafka.complaints()
    assert {path.name: path.read_bytes() for path in directory.glob("*.keys")} == written
    with kstore.open(directory, "r+", config=config, clock=lambda: NOW + 10**6) as log:
        records = list(log)
        for key in {record.key for record in records if record.key is not None}:
            assert log.last(key) == [record for record in records if record.key == key][-1]
        assert [each.made for each in log.make_key_files()][:3] == [False] * 3


def _segment_files(directory: Path, found: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """Without snapshots and epochs: loading drops those that nobody needs any more."""
    found = files_of(directory) if found is None else found
    return {
        name: data for name, data in found.items() if name[0].isdecimal() and not name.endswith(".snapshot")
    }


def _account(directory: Path) -> Account:
    with kstore.open(directory) as log:
        assert log.recovery.clean
        assert log.recovery.findings == []
        return Account(log)


def _start(kafka: Kafka, log_directory: Path, config: dict[str, str]) -> None:
    """A broker starts, finds everything clean, and does not complain."""
    assert kafka.start(log_directory, config, NOW + 10**6) == ["orders-0"]
    assert any("Skipping recovery of 1 logs" in line for line in kafka.log), kafka.log
    assert not kafka.complaints()
    assert not kafka.recovered()


def _append(theirs: KafkaLog, rnd: random.Random) -> None:
    for count in (1, 30, 5):
        theirs.append(encoded(rnd, count, at=NOW + 10**6), leader_epoch=9)
