"""What tests in several rooms need."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore


@pytest.fixture
def ram() -> Iterator[Path]:
    """A directory in memory, where the system has such: for tests that sync thousands of times."""
    shm = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[kstore.LogWriter]:
    """An empty log, open for writing. Folders that need another have one of their own."""
    with kstore.open(tmp_path / "t-0", "a") as made:
        yield made
