"""What tests in several rooms need."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import kstore
from kstore.engine.io.faults import fail_call, trace_calls
from kstore.log.files import manifest
from kstore.log.files.truncations import NO_TRUNCATIONS
from tests.helpers.java import options

# but for what is marked as smoke
NIGHTLY = ("broker", "kafka", "performance", "power_cuts", "spark")
SHARING = ("broker", "kafka", "performance", "spark")  # a JVM, what valgrind has counted, a session of Spark
# of the last, those that need no session, or start their own
ALONE = (
    "test_changed_logs.py",
    "test_cluster_demo.py",
    "test_connect.py",
    "test_drivers.py",
    "test_sink_recovery.py",
    "test_splits.py",
)
ROOT = Path(__file__).parent
settings.register_profile("untimed", deadline=None)  # a case may wait for a loaded machine, or an import
settings.load_profile("untimed")
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell has it for what runs in the background
    # else programs that tests start would ignore it too
    signal.signal(signal.SIGINT, signal.default_int_handler)
# A child must not collect what its parent has left: librdkafka crashes when a client is freed after a fork.
os.register_at_fork(after_in_child=gc.freeze)
for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(name, options())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--spark-master",
        default="local",
        metavar="local|cluster|spark://…",
        help="where the Spark tests run: here, on a cluster of two workers that they start, or on that one",
    )
    parser.addoption(
        "--record-instructions",
        action="store_true",
        help="tests/performance records its counts anew instead of comparing them",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _folder(item) in NIGHTLY and item.get_closest_marker("smoke") is None:
            item.add_marker(pytest.mark.nightly)
    items.sort(key=lambda item: _folder(item) not in SHARING)  # what takes long to begin begins first


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT).parts[0]


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, if it is installed
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `pytest -n`, one process runs all tests of a room that share what takes long to begin; the rest
    goes to whoever is free."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # the order is that of pytest_collection_modifyitems

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            room = path.removeprefix("tests/").partition("/")[0]
            return room if room in SHARING and not path.endswith(ALONE) else nodeid

    return Scheduling(config, log)


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
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Truncations are as those of a broker: no manifest tells readers of them."""
    write = manifest.write_manifest

    def without_truncations(directory: str, content: manifest.Manifest, **options: bool) -> None:
        write(directory, content._replace(truncations=NO_TRUNCATIONS), **options)

    monkeypatch.setattr(manifest, "write_manifest", without_truncations)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[kstore.LogWriter]:
    """An empty log, open for writing. Folders that need another have one of their own."""
    with kstore.open(tmp_path / "t-0", "a") as made:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """A report of a test in another process may name a file that is no UTF-8, which pytest-xdist cannot send:
    it would end the whole run, without the names of the tests that failed."""
    return _sendable((yield))


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_sendable(key): _sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_sendable, value))
    return value
