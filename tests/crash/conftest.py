"""Makes the modules beside the tests, and those of tests/faults, importable."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "faults")]


@pytest.fixture
def ram() -> Iterator[Path]:
    """A directory in memory, where the system has such; these tests sync thousands of times."""
    shm = Path("/dev/shm")  # noqa: S108
    made = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    yield made
    shutil.rmtree(made)
