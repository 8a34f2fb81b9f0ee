"""Fixtures for pytest. Write `pytest_plugins = ["kstore.testing.fixtures"]` into the conftest.py of your
tests.

`kstore_broker` is a broker. `kstore_log` is an empty log that is open for writing. `kstore_log_directory` is
a log directory with two partitions.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.testing import Broker, broker


@pytest.fixture
def kstore_log(tmp_path: Path) -> Iterator[kstore.LogWriter]:
    """An empty log, open for writing, with segments of 2,000 bytes. It is closed after the test."""
    with kstore.open(tmp_path / "log-0", "a", internal_segment_bytes=2000, segment_index_bytes=256) as log:
        yield log


@pytest.fixture
def kstore_broker() -> Iterator[Broker]:
    """A broker in this process, which creates the topics that clients ask for:
    `kstore_broker.bootstrap_servers` is its address. It is stopped after the test."""
    with broker() as running:
        yield running


@pytest.fixture
def kstore_log_directory(tmp_path: Path) -> Path:
    """A log directory, as in a broker's log.dirs, with the partitions orders-0 and orders-1, closed cleanly.
    Each has 100 records. The value of a record is b"orders-0 " plus its offset, its key b"k" plus the offset
    modulo 10, its timestamp 1,700,000,000,000 ms plus the offset."""
    home = tmp_path / "log-directory"
    home.mkdir()
    (home / "meta.properties").write_text("version=1\nnode.id=1\n")
    config = kstore.LogConfig(
        internal_segment_bytes=2000, segment_index_bytes=256, message_timestamp_before_max_ms=2**63 - 1
    )
    for name in ("orders-0", "orders-1"):
        with kstore.open(home / name, "a", config=config) as log:
            for offset in range(100):
                value = f"{name} {offset}".encode()
                log.append(value, b"k%d" % (offset % 10), 1_700_000_000_000 + offset)
    return home
