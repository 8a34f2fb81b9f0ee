"""Kafka itself, for the session: tests that ask for it are skipped where it cannot be had."""

from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent

pytest.register_assert_rewrite("tests.kafka.compare")

from tests.kafka.jvm import Kafka, KafkaMissingError


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)
            item.add_marker(pytest.mark.timeout(1800))  # the first one fetches Kafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    try:
        jvm = Kafka()
    except KafkaMissingError as e:
        pytest.skip(f"Kafka is not here: {e}")
    with jvm:
        yield jvm


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    """An empty log directory, as a broker has it."""
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return directory
