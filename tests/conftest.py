"""What tests in several rooms need."""

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.io.file import fail_call, trace_calls
from tests.helpers.java import options

HERE = Path(__file__).parent
for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(name, options())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if group := _shared_by(item):
            item.add_marker(pytest.mark.xdist_group(group))


def _shared_by(item: pytest.Item) -> str:
    """What takes long to begin, a JVM, and is had by several tests: with `pytest -n`, one process runs them all."""
    if item.path.is_relative_to(HERE / "kafka"):
        return "kafka"
    if item.get_closest_marker(
        "spark"
    ):  # those that start drivers themselves wait a lot: another process may run them
        return "spark" if "spark" in getattr(item, "fixturenames", ()) else "drivers"
    return ""


@pytest.fixture
def ram() -> Iterator[Path]:
    """A directory in memory, where the system has such: for tests that sync thousands of times."""
    shm = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def sound_calls() -> Iterator[None]:
    """System calls neither fail nor are traced any more when the test has ended."""
    yield
    fail_call(0)
    trace_calls(None)


@pytest.fixture
def tried(record_property: Callable[[str, object], None]) -> Callable[[int], None]:
    """Notes how many cases a test has tried: `make evidence` adds them up."""
    return lambda count: record_property("tried", count)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[kstore.LogWriter]:
    """An empty log, open for writing. Folders that need another have one of their own."""
    with kstore.open(tmp_path / "t-0", "a") as made:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """A report of a test in another process may name a file that is no UTF-8, which pytest-xdist cannot send: it would end
    the whole run, without the names of the tests that failed."""
    return _sendable((yield))


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_sendable(key): _sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_sendable, value))
    return value
