"""Kafka opens what kstore closed as if it had written it, and goes on; then kstore goes on from there."""

import random
from pathlib import Path

import pytest

import kstore
from tests.kafka.compare import Account, files_of
from tests.kafka.jvm import NOW, Kafka, KafkaLog
from tests.kafka.shapes import SHAPES, Shape, encoded, smoke


@pytest.mark.parametrize("shape", smoke(SHAPES, "reopened_transactions", "packed_zstd"), ids=str)
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
    assert _segment_files(files_of(directory)) == _segment_files(written)

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


def _segment_files(found: dict[str, bytes]) -> dict[str, bytes]:
    """Without snapshots and epochs: loading drops those that are not needed any more."""
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
