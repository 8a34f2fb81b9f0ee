"""What tests in several rooms need."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def ram() -> Iterator[Path]:
    """A directory in memory, where the system has such: for tests that sync thousands of times."""
    shm = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    yield made
    shutil.rmtree(made)
