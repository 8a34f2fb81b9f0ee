"""Kafka opens what several processes have written together, and recovers what they left when they were killed."""

import signal
from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import SEED
from tests.kafka.compare import Account
from tests.kafka.jvm import NOW, Kafka, KafkaLog
from tests.kafka.test_recovery import check_recovery
from tests.shared.life import OPTIONS, live
from tests.shared.processes import ended, started

OPERATIONS = ["append", "extend", "batch", "transaction", "roll", "flush", "retain"]
CONFIG = kstore.LogConfig(**OPTIONS)  # type: ignore[arg-type]


def write(log_directory: Path, *, dies_at: int) -> None:
    """Four processes write at random. With `dies_at`, all of them are killed at calls on files, this and later ones."""
    journals = log_directory.parent / "journals"
    journals.mkdir()
    directory = log_directory / "orders-0"
    children = [
        started(
            lambda name=name: live(
                directory, journals, name, f"{SEED} {name}", OPERATIONS, openings=2, dies_at=dies_at * name
            )
        )
        for name in range(1, 5)
    ]
    assert [ended(child) for child in children] == [-signal.SIGKILL if dies_at else 0] * len(children)


@pytest.mark.smoke
def test_closed(kafka: Kafka, log_directory: Path) -> None:
    write(log_directory, dies_at=0)
    with kstore.open(log_directory / "orders-0") as log:
        assert log.recovery.clean
        assert not log.recovery.findings
        account = Account(log)
    assert kafka.start(log_directory, CONFIG.to_topic(), NOW + 10**6) == ["orders-0"]
    assert not kafka.complaints()
    assert not kafka.recovered()
    account.check(KafkaLog(kafka, log_directory / "orders-0"))
    kafka.ask("shutdown", log_directory)


def test_killed(kafka: Kafka, log_directory: Path) -> None:
    write(log_directory, dies_at=60)
    directory = log_directory / "orders-0"
    for left in directory / "kstore-shared", *directory.glob("*.tmp"):  # which only kstore removes
        left.unlink()
    check_recovery(kafka, log_directory, CONFIG)
